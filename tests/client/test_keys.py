"""Where a process finds the application's key."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkps.client import keys
from sparkps.client.keys import forget, key_of, read_key, remember
from sparkps.config import Settings
from sparkps.errors import InvalidSetting, KeyMissing
from sparkps.plugin import ENDPOINT_FILE
from sparkps.wire.auth import Secret

HERE = "ipc:///tmp/sparkps-1/c,tcp://10.0.0.1:7000"
GIVEN, WRITTEN, FILED = (Secret(digit * 64) for digit in "abc")


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    forget(HERE)


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The private directory of an executor whose task we are."""
    monkeypatch.setattr(keys, "executor_directory", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(FILED.hex + "\n")
    path.chmod(0o600)
    return path


def written(executor: Path, **fields: str) -> None:
    """What the plugin writes."""
    text = json.dumps({"coordinator": HERE, "secret": WRITTEN.hex, **fields})
    (executor / ENDPOINT_FILE).write_text(text)


def found(settings: Settings | None = None, coordinator: str = HERE) -> str | None:
    secret = key_of(coordinator, settings or Settings())
    return None if secret is None else secret.hex


def test_without_security_or_tcp_none_is_looked_for() -> None:
    assert found(Settings(security="none")) is None
    assert found(coordinator="ipc:///tmp/sparkps-1/c") is None


def test_the_places_are_asked_in_their_order(executor: Path, key_file: Path) -> None:
    settings = Settings(key_file=str(key_file))
    assert found(settings) == FILED.hex
    written(executor)
    assert found(settings) == WRITTEN.hex
    remember(HERE, GIVEN)
    assert found(settings) == GIVEN.hex
    forget(HERE)
    assert found(settings) == WRITTEN.hex


def test_the_key_of_another_application_is_passed_over(executor: Path, key_file: Path) -> None:
    remember("tcp://10.0.0.1:7001", GIVEN)
    try:
        written(executor, coordinator="tcp://10.0.0.1:7001")
        assert found(Settings(key_file=str(key_file))) == FILED.hex
        with pytest.raises(KeyMissing):
            found()
    finally:
        forget("tcp://10.0.0.1:7001")


def test_who_reaches_the_coordinator_by_its_local_socket_goes_without(tmp_path: Path) -> None:
    path = tmp_path / "c"
    here = f"ipc://{path},tcp://10.0.0.1:7000"
    with pytest.raises(KeyMissing):
        found(coordinator=here)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert found(coordinator=here) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"coordinator": 7}', "\xff"])
def test_a_broken_file_of_the_plugin_is_as_none(executor: Path, text: str) -> None:
    (executor / ENDPOINT_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(KeyMissing, match="no plugin wrote one for this executor"):
        found()


def test_no_key_is_an_error_that_says_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "executor_directory", lambda: "")
    with pytest.raises(PermissionError) as error:
        found()
    assert str(error.value) == (
        "the key of the application at tcp://10.0.0.1:7000 is not on this host (this is no Spark "
        "task, and key.file is not set). Put it into a file that only you can read, on every "
        "host, and name that in spark.sparkps.key.file (PSContext.connect(..., key_file=)), or "
        "start Spark with the plugin, which hands it on (python -m sparkps conf prints how)"
    )


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_that_only_its_user_reads_is_taken(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    assert read_key(str(key_file)).hex == FILED.hex


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o611])
def test_a_file_that_others_may_touch_is_refused(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    with pytest.raises(InvalidSetting) as error:
        read_key(str(key_file))
    assert str(error.value) == (
        f"setting key.file={str(key_file)!r}: others may read it; chmod 600 {key_file}"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it holds no key"),
        (b"secret!", "it holds no key"),
        (b"a" * 63, "it holds no key"),
        (b"a" * 64 + b"\n" + b"b" * 64, "it holds no key"),
        (b"\xff" * 64, "it is no text"),
    ],
)
def test_a_file_of_something_else_is_refused_and_not_shown(
    key_file: Path, content: bytes, reason: str
) -> None:
    key_file.write_bytes(content)
    with pytest.raises(InvalidSetting, match=reason) as error:
        read_key(str(key_file))
    assert "secret" not in str(error.value)
    assert "a" * 63 not in str(error.value)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="No such file or directory"):
        read_key(str(tmp_path / "nowhere"))
    with pytest.raises(InvalidSetting, match="Is a directory"):
        found(Settings(key_file=str(tmp_path)))
