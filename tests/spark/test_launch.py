"""Where servers come from, found out from what Spark says of itself. No JVM is asked here."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkps.config import Settings
from sparkps.coordinator.launch import LocalLauncher
from sparkps.errors import InvalidSetting
from sparkps.plugin import ADDRESS_KEY, PLUGIN, SECRET_KEY
from sparkps.spark.configure import configure, submit_arguments
from sparkps.spark.launch import RunningLauncher, launcher_for, warn_of_overhead

KEY = "7f" * 32
LOADED = {
    ADDRESS_KEY: "ipc:///nowhere/c,tcp://10.0.0.1:7000",
    SECRET_KEY: KEY,
    "spark.executor.instances": "3",
}


class FakeSpark:
    """A session as far as the choice of a launcher looks at it."""

    def __init__(
        self, master: str, core: dict[str, str] | None = None, later: dict[str, str] | None = None
    ) -> None:
        self.sparkContext = self.conf = self
        self.master = master
        self._core, self._later = core or {}, later or {}

    def getConf(self) -> FakeCore:
        return FakeCore(self._core)

    def get(self, key: str, default: str) -> str:
        """Of ``spark.conf``, which tells of settings that came too late, too."""
        return {**self._core, **self._later}.get(key, default)


class FakeCore(dict[str, str]):
    """The SparkContext's own configuration."""

    def getAll(self) -> list[tuple[str, str]]:
        return list(self.items())


def choose(spark: Any, **options: Any) -> Any:
    settings = Settings.load(None, **options)
    return launcher_for(spark, settings, Settings())


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "yarn", "k8s://x", "local-cluster[2,1,1024]"]
)
def test_another_master_than_local_needs_the_plugin_or_a_word_said_aloud(master: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        choose(FakeSpark(master))
    sentence = str(caught.value)
    assert f"--conf spark.plugins={PLUGIN}" in sentence
    assert "--jars" in sentence
    assert "python -m sparkps conf" in sentence
    assert 'launch="local"' in sentence
    launcher, count = choose(FakeSpark(master), launch="local", servers=2)
    assert (type(launcher), count) == (LocalLauncher, 2)


def test_beside_the_driver_of_several_hosts_all_listen_and_find_their_key_in_a_file(
    tmp_path: Path,
) -> None:
    spark = FakeSpark("spark://host:7077", {"spark.driver.host": "10.0.0.7"})
    with pytest.raises(InvalidSetting, match=r"key\.file=None: tasks on other hosts need the key"):
        choose(spark, launch="local", servers=1)
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    launcher, _ = choose(spark, launch="local", servers=1, key_file=str(key))
    assert (launcher.host, launcher.secret.hex) == ("10.0.0.7", KEY)
    assert choose(spark, launch="local", servers=1, security="none")[0].secret is None


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_a_local_master_needs_no_word(master: str) -> None:
    launcher, count = choose(FakeSpark(master), servers=3)
    assert (type(launcher), launcher.host, launcher.secret, count) == (LocalLauncher, "", None, 3)


def test_the_plugins_servers_are_those_of_all_executors_that_spark_was_asked_for() -> None:
    launcher, count = choose(FakeSpark("yarn", LOADED), servers_per_executor=1)
    assert isinstance(launcher, RunningLauncher)
    assert (launcher.endpoint, launcher.secret.hex) == (LOADED[ADDRESS_KEY], KEY)
    assert (launcher.origin, count) == ("beside the executors", 3)
    assert choose(FakeSpark("local-cluster[4, 1, 1024]", LOADED))[1] == 4
    assert choose(FakeSpark("yarn", LOADED), servers=2)[1] == 2
    cores = {**LOADED, "spark.cores.max": "8", "spark.executor.cores": "2"}
    del cores["spark.executor.instances"]
    assert choose(FakeSpark("spark://host:7077", cores))[1] == 4


def test_a_plugin_that_came_too_late_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    late = {"spark.plugins": PLUGIN}
    with pytest.raises(InvalidSetting, match="on a session that exists already they are ignored"):
        choose(FakeSpark("yarn", None, late))
    with caplog.at_level(logging.WARNING):
        choose(FakeSpark("local[2]", None, late), servers=1)
    assert "must be set before Spark starts" in caplog.text
    with pytest.raises(InvalidSetting, match="told it to start nothing"):
        choose(FakeSpark("yarn", {"spark.plugins": PLUGIN}), launch="plugin")


def test_what_servers_need_when_they_start_cannot_be_an_option_of_a_later_context() -> None:
    with pytest.raises(InvalidSetting, match=r"give it to Spark as spark\.sparkps\.server\.memory"):
        choose(FakeSpark("yarn", LOADED), server_memory="2g")
    assert choose(FakeSpark("yarn", LOADED), progress=False, request_timeout="5s")


def test_an_external_cluster_has_an_address_and_a_key_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    launcher, _ = choose(FakeSpark("yarn"), coordinator="tcp://10.0.0.1:7000", key_file=str(key))
    assert (launcher.origin, launcher.secret.hex) == ("of an external cluster", KEY)
    with pytest.raises(InvalidSetting, match="python -m sparkps cluster prints it"):
        choose(FakeSpark("yarn"), launch="external")
    with pytest.raises(ValueError, match="a tcp address is"):
        choose(FakeSpark("yarn"), coordinator="tcp://10.0.0.1")


@pytest.mark.parametrize(
    ("conf", "memory", "warned"),
    [
        ({"spark.master": "yarn"}, None, "memoryOverhead is not set"),
        ({"spark.master": "yarn"}, "2g", "Set spark.executor.memoryOverhead=2432m"),
        ({"spark.master": "yarn", "spark.executor.memoryOverhead": "3g"}, "2g", ""),
        ({"spark.master": "spark://host:7077"}, "2g", ""),
    ],
)
def test_too_little_overhead_for_the_servers_is_warned_of(
    conf: dict[str, str], memory: str | None, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_overhead(conf, Settings.load(None, server_memory=memory))
    assert warned in caplog.text
    assert bool(caplog.text) == bool(warned)


@pytest.mark.parametrize("authenticate", ["", "false", "TRUE"])
def test_who_may_ask_spark_for_the_key_is_told(
    authenticate: str, caplog: pytest.LogCaptureFixture
) -> None:
    conf = LOADED | ({"spark.authenticate": authenticate} if authenticate else {})
    choose(FakeSpark("spark://host:7077", conf))
    assert ("spark.authenticate is off" in caplog.text) == (authenticate != "TRUE")


class FakeBuilder:
    """As much of a session builder as is used."""

    def __init__(self, **options: str) -> None:
        self._options = {key.replace("_", "."): value for key, value in options.items()}

    def config(self, key: str, value: str) -> FakeBuilder:
        self._options[key] = value
        return self


def test_configure_adds_to_what_is_there_and_does_so_once() -> None:
    builder: Any = FakeBuilder(spark_jars="a.jar", spark_plugins="x.Y")
    options = configure(configure(builder))._options
    assert options["spark.jars"].startswith("a.jar,")
    assert options["spark.jars"].count("sparkps.jar") == 1
    assert options["spark.plugins"] == f"x.Y,{PLUGIN}"
    assert options["spark.pyspark.driver.python"] == sys.executable


def test_spark_submits_arguments_have_the_jar_the_plugin_and_the_python() -> None:
    arguments = submit_arguments({"spark.jars": "a.jar"})
    assert arguments[0] == "--jars"
    assert arguments[1].startswith("a.jar,")
    assert f"spark.plugins={PLUGIN}" in arguments


@pytest.mark.parametrize(
    ("python", "driver", "told"),
    [
        ("", "", (sys.executable, sys.executable)),
        ("/env/python", "", ("/env/python", "/env/python")),
        # An archive's Python is on executors only.
        ("./env/bin/python", "/venv/python", ("./env/bin/python", "/venv/python")),
    ],
)
def test_spark_submit_is_told_which_python_runs_where(
    monkeypatch: pytest.MonkeyPatch, python: str, driver: str, told: tuple[str, str]
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", driver)
    arguments = submit_arguments({})
    assert f"spark.pyspark.python={told[0]}" in arguments
    assert f"spark.pyspark.driver.python={told[1]}" in arguments
    # The plugin's own setting would be both's.
    assert not any("spark.sparkps.python" in argument for argument in arguments)


def test_a_python_that_the_builder_has_is_kept() -> None:
    builder: Any = FakeBuilder(spark_pyspark_python="/opt/env/bin/python")
    assert configure(builder)._options["spark.pyspark.python"] == "/opt/env/bin/python"
