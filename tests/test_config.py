"""Settings: where they come from, what they refuse, what they tell about themselves."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sparkps.config import PREFIX, Settings, child_environment, parse_bytes, parse_seconds
from sparkps.errors import InvalidSetting


def test_later_sources_win():
    conf = {f"{PREFIX}server.memory": "2g", f"{PREFIX}heartbeat": "500ms", "spark.app.name": "x"}
    settings = Settings.load(conf, server_memory="1g", servers=None)
    assert (settings.server_memory, settings.heartbeat, settings.servers) == (2**30, 0.5, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("64k", 65536), ("1.5g", 3 * 2**29), ("2GiB", 2**31), ("3mb", 3 * 2**20)],
)
def test_bytes_have_units(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("500ms", 0.5), ("2min", 120.0), ("1h", 3600.0), (4, 4.0)]
)
def test_times_have_units(text, seconds):
    assert parse_seconds(text) == seconds


def test_an_unknown_key_is_refused_and_the_nearest_suggested():
    with pytest.raises(InvalidSetting, match=r"did you mean 'message.maxBytes'\?"):
        Settings.load({f"{PREFIX}message.maxByte": "1m"})
    with pytest.raises(InvalidSetting, match=r"did you mean 'gang_timeout'\?"):
        Settings.load(None, gang_timeot=3)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("servers", 0, "setting servers=0: must be a whole number, 1 to 1024"),
        ("servers", "two", "setting servers='two': must be a whole number, 1 to 1024"),
        ("servers", True, "setting servers=True: must be a whole number"),
        (
            "server_memory",
            "12q",
            "setting server.memory='12q': must be bytes as in 65536, 64m or 2g",
        ),
        ("message_max_bytes", 10, "setting message.maxBytes=10: must be bytes"),
        ("gang_timeout", "-3s", "setting gang.timeout='-3s': must be a positive time"),
        ("heartbeat", float("nan"), "setting heartbeat=nan: must be a positive time"),
        ("progress", "maybe", "setting progress='maybe': must be true or false"),
        ("launch", "magic", "setting launch='magic': must be auto, plugin, local or external"),
        ("ports", "7000-6000", "setting ports='7000-6000': must be 0, or a range as in 7000-7099"),
        ("ports", "http", "setting ports='http': must be 0, or a range"),
        ("security", "no", "setting security='no': must be auth, encrypt or none"),
        ("log_dir", "", "setting log.dir='': must not be empty"),
        ("heartbeat", 20, "setting heartbeat=20.0: must not exceed dead=10.0"),
        ("stall_warn", 301, "setting stall.warn=301.0: must not exceed stall.fatal=300.0"),
    ],
)
def test_a_bad_value_is_refused_with_what_it_must_be(name, value, sentence):
    with pytest.raises(InvalidSetting) as refused:
        Settings.load(None, **{name: value})
    assert str(refused.value).startswith(sentence)


def test_settings_travel_as_json_and_only_what_differs():
    settings = Settings.load({f"{PREFIX}ports": "7000"}, faults_delay_ms=2.5, servers=3)
    travelled = json.loads(json.dumps(settings.to_dict()))
    assert travelled == {"ports": "7000", "faults_delay_ms": 2.5, "servers": 3}
    assert Settings.from_dict(travelled) == settings


def test_every_setting_is_described():
    table = Settings.describe()
    assert table.count("\n") == len(dataclasses.fields(Settings)) + 1
    assert "| `spark.sparkps.model.localBytes` | bytes | 256000000 |" in table
    for field in dataclasses.fields(Settings):
        assert len(field.metadata["doc"]) > 20


def test_a_childs_environment_has_no_secret_of_spark(monkeypatch):
    for name in (
        "_SPARK_AUTH_SECRET",
        "SPARK_AUTH_SECRET",
        "PYSPARK_GATEWAY_SECRET",
        "PYSPARK_GATEWAY_PORT",
    ):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "needed to save models")
    environment = child_environment()
    assert "hush" not in environment.values()
    assert "AWS_SECRET_ACCESS_KEY" in environment
