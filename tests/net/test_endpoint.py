import os
import stat

import pytest

from sparkps.errors import InvalidArgument
from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.net.endpoint import MAX_IPC_PATH, ipc, parse


@pytest.mark.parametrize(
    "text", ["ipc:///tmp/sparkps-x/c", "tcp://127.0.0.1:0", "tcp://host.example:65535"]
)
def test_an_address_survives_parsing(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("udp://x:1", "an address is ipc:///absolute/path or tcp://host:port"),
        ("nothing", "an address is ipc:///absolute/path or tcp://host:port"),
        ("ipc://relative", "the path of an ipc address is absolute"),
        ("ipc://", "the path of an ipc address is absolute"),
        ("tcp://host", "with a port of 0 to 65535"),
        ("tcp://host:65536", "with a port of 0 to 65535"),
        ("tcp://:80", "with a port of 0 to 65535"),
        ("tcp://host:-1", "with a port of 0 to 65535"),
        ("tcp://::1:80", "an IPv6 address stands in brackets"),
        ("tcp://[localhost]:80", "an IPv6 address stands in brackets"),
        ("tcp://[::1:80", "an IPv6 address stands in brackets"),
    ],
)
def test_a_bad_address_is_refused_with_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        parse(text)


def test_a_path_of_107_bytes_is_the_longest() -> None:
    path = "/" + "x" * (MAX_IPC_PATH - 1)
    assert parse(f"ipc://{path}").path == path
    with pytest.raises(
        InvalidArgument, match="its path has 108 bytes and the system binds at most 107"
    ):
        parse(f"ipc://{path}x")
    with pytest.raises(InvalidArgument, match="use a shorter directory"):
        ipc("/" + "é" * 50, "socket-name")


def test_a_runtime_directory_is_short_and_private_and_goes_away() -> None:
    path = runtime_directory()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert os.path.basename(path).startswith("sparkps-")
    assert parse(ipc(path, "s1234")).path == f"{path}/s1234"
    remove_directory(path)
    assert not os.path.exists(path)
    remove_directory(path)


def test_a_long_temporary_directory_is_not_used(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path_factory.mktemp("d" * 90)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    path = runtime_directory()
    assert len(path) < 60
    assert os.listdir(deep) == []
    remove_directory(path)
