import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkps.errors import InvalidArgument
from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.net.endpoint import MAX_IPC_PATH, ipc, is_ours, nearest, parse


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


@pytest.fixture
def local(tmp_path: Path) -> Iterator[str]:
    """A local socket of ours."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        yield str(tmp_path / "s")


def test_the_nearest_address_is_a_local_socket_of_ours(local: str) -> None:
    assert nearest(f"tcp://10.0.0.1:7000,ipc://{local}") == f"ipc://{local}"
    assert nearest(f"ipc://{local},tcp://10.0.0.1:7000") == f"ipc://{local}"


def test_from_another_host_the_nearest_address_is_the_first_tcp_one(tmp_path: Path) -> None:
    far = f"ipc://{tmp_path}/nobody"
    assert nearest(f"{far},tcp://[::1]:7000,tcp://10.0.0.1:7000") == "tcp://[::1]:7000"
    assert nearest(far) == far  # there is no other, and the error will name it


def test_what_somebody_else_has_put_in_the_place_of_a_socket_is_not_taken_for_it(
    local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(local)
    for name in ("file", "link", "."):
        assert nearest(f"ipc://{tmp_path}/{name},tcp://h:1") == "tcp://h:1"
    assert is_ours(local)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not is_ours(local)
    assert nearest(f"ipc://{local},tcp://h:1") == "tcp://h:1"


def test_one_bad_address_among_several_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="an address is"):
        nearest("tcp://h:1,nothing")
