"""What is bound, and what others are told."""

from __future__ import annotations

import errno
import socket

import pytest

from sparkps.config import Settings
from sparkps.errors import InvalidSetting
from sparkps.net.hosts import advertised, listening, resolve, why_unknown


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.5", "127.0.0.5"),
        ("0.0.0.0", "0.0.0.0"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("::", "::"),
        ("0:0:0:0:0:0:0:1", "::1"),
    ],
)
def test_an_address_is_bound_as_it_is(host: str, address: str) -> None:
    assert resolve(host) == address


def test_a_name_of_both_families_is_bound_by_its_ipv4_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::5", 0, 0, 0))
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.5", 0))
    cases = (([six, four], "10.0.0.5"), ([four, six], "10.0.0.5"), ([six], "fd00::5"))
    for found, address in cases:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=found, **__: found)
        assert resolve("worker-1") == address


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 70])
def test_a_name_that_nobody_knows_is_an_error_of_the_setting(host: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        resolve(host)
    assert str(error.value).startswith(f"setting bind.host={host!r}: is no address of a host: ")


@pytest.mark.parametrize(
    ("bound", "host", "told"),
    [
        ("tcp://10.0.0.1:7000", "", "tcp://10.0.0.1:7000"),
        ("tcp://[fd00::1]:7000", "", "tcp://[fd00::1]:7000"),
        ("tcp://0.0.0.0:7000", "worker-1", "tcp://worker-1:7000"),
        ("tcp://[::]:7000", "fd00::7", "tcp://[fd00::7]:7000"),
        ("tcp://10.0.0.1:7000", "[fd00::7]", "tcp://[fd00::7]:7000"),
        ("tcp://172.17.0.2:7000", "203.0.113.9", "tcp://203.0.113.9:7000"),
        ("ipc:///tmp/s0", "worker-1", "ipc:///tmp/s0"),
    ],
)
def test_others_are_told_what_they_can_reach(bound: str, host: str, told: str) -> None:
    assert advertised(bound, host) == told


def test_a_host_of_its_own_name_is_told_instead_of_all_interfaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everywhere = Settings(bind_host="0.0.0.0")
    assert listening(everywhere, "worker-1") == ("0.0.0.0", "worker-1")
    assert listening(Settings(bind_host="::"), "worker-1") == ("::", "worker-1")
    assert listening(Settings(), "0.0.0.0") == ("0.0.0.0", socket.gethostname())
    assert listening(Settings(), "worker-1", "127.0.0.1") == ("127.0.0.1", "worker-1")
    named = Settings(advertise_host="outside")
    assert listening(named, "127.0.0.1") == ("127.0.0.1", "outside")
    monkeypatch.setenv("SPARKPS_ADVERTISE_HOST", "mine")
    assert listening(named, "127.0.0.1") == ("127.0.0.1", "mine")


def names(monkeypatch: pytest.MonkeyPatch, *answers: int) -> list[int]:
    """Let the name service fail with these errors, then answer; what is still to come."""
    left = list(answers)

    def asked(*_: object, **__: object) -> None:
        if left:
            raise socket.gaierror(left.pop(0), "as it says")

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    return left


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_is_known(address: str) -> None:
    assert why_unknown(address, 0.0) == ""


def test_a_host_that_nobody_knows_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, socket.EAI_NONAME)
    assert why_unknown("worker-1", 1000.0).startswith("there is no such host")


def test_names_are_looked_for_as_libzmq_does(monkeypatch: pytest.MonkeyPatch) -> None:
    families = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, __, family, ___: families.append(family))
    for host in ("worker-1", "10.0.0.1", "fd00::1"):
        assert why_unknown(host, 0.0) == ""
    assert families == [socket.AF_INET, socket.AF_INET, socket.AF_INET6]


def test_a_host_that_cannot_be_looked_for_is_no_unknown_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for error in (
        OSError(errno.EMFILE, "Too many open files"),
        socket.gaierror(socket.EAI_FAIL, "Too many open files"),
    ):

        def asked(*_: object, error: OSError = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(socket, "getaddrinfo", asked)
        told = "its host could not be looked up: Too many open files"
        assert why_unknown("worker-1", 1000.0) == told


def test_a_name_service_that_cannot_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    left = names(monkeypatch, socket.EAI_AGAIN)
    assert why_unknown("worker-1", 1000.0) == ""
    assert left == []
    names(monkeypatch, socket.EAI_AGAIN)
    told = "its host could not be looked up: as it says"
    assert why_unknown("worker-1", 0.0) == told
