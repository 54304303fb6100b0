"""Addresses of hosts: what to bind, and what to tell others.

Rules:

* A listener is bound to the address of its host as Spark knows it (libzmq binds addresses, not
  names, so a name is resolved here), never to all interfaces unless told to.
* What is told to others is what was bound; where that is not what others reach (all interfaces, a
  translated address), it is the host's name, or what the setting ``advertise.host`` says, or, host
  by host, the environment of its executors.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from typing import Final

from sparkps.config import Settings, host_for_others
from sparkps.errors import InvalidSetting
from sparkps.net.endpoint import parse, tcp

#: Seconds between two questions to a name service that could not answer.
_ASK_AGAIN: Final = 0.5
#: What a name service says of a name that has no address of the family that was asked for.
_NO_ADDRESS: Final = tuple(
    getattr(socket, name)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
    if hasattr(socket, name)
)
_NO_HOST: Final = "there is no such host, or it has no IPv4 address"


def resolve(host: str) -> str:
    """Return the address to bind for a host: IPv4 where it has one.

    Raises
    ------
    InvalidSetting
        There is no such host.

    Examples
    --------
    >>> resolve("127.0.0.1"), resolve("[::1]")
    ('127.0.0.1', '::1')
    """
    name = host.strip("[]")
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no name"
        raise InvalidSetting(
            name="bind.host", value=host, reason=f"is no address of a host: {why}"
        ) from None
    addresses = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(addresses[0][4][0])


def is_loopback(address: str) -> bool:
    """Whether other hosts cannot reach an address.

    Examples
    --------
    >>> is_loopback("127.0.1.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return ipaddress.ip_address(address).is_loopback


def why_unknown(host: str, seconds: float) -> str:
    """Why a host has no address that libzmq connects to (IPv6 only if it is written out); empty
    where it has one. libzmq would look once, and say nothing.

    Parameters
    ----------
    seconds
        How long to ask again where the name service can say nothing at the moment.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while True:
        try:
            socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)
            return ""
        except UnicodeError:
            return _NO_HOST
        except OSError as error:
            told = error.errno if isinstance(error, socket.gaierror) else None
            if told in _NO_ADDRESS:
                return _NO_HOST
            if told != socket.EAI_AGAIN or time.monotonic() >= deadline:
                return f"its host could not be looked up: {error.strerror}"
        pause.wait(_ASK_AGAIN)


def advertised(endpoint: str, host: str) -> str:
    """Return what to tell others of a bound endpoint.

    Parameters
    ----------
    host
        What others reach this host by, if it is not what was bound.

    Examples
    --------
    >>> advertised("tcp://10.0.0.1:7000", ""), advertised("tcp://0.0.0.0:7000", "worker-1")
    ('tcp://10.0.0.1:7000', 'tcp://worker-1:7000')
    """
    bound = parse(endpoint)
    if bound.scheme != "tcp" or not host:
        return endpoint
    return tcp(host.strip("[]"), bound.port)


def listening(settings: Settings, host: str, bind: str = "") -> tuple[str, str]:
    """Return the address to bind, and what to tell others instead where it is not empty.

    Parameters
    ----------
    host
        By which others reach this host, as Spark or a launcher knows it.
    bind
        What Spark binds on this host, where that is another.

    Examples
    --------
    >>> listening(Settings(), "127.0.0.1")
    ('127.0.0.1', '')
    >>> listening(Settings(bind_host="0.0.0.0"), "worker-1")
    ('0.0.0.0', 'worker-1')
    """
    address = resolve(settings.bind_host or bind or host)
    told = host_for_others() or settings.advertise_host
    if told or not (bind or ipaddress.ip_address(address).is_unspecified):
        return address, told or ""
    return address, socket.gethostname() if _is_any(host) else host


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False
