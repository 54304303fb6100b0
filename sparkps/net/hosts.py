"""Addresses of hosts: what to bind, and what to tell others.

Rules:

* A listener is bound to the address of its host as Spark knows it (libzmq binds addresses, not
  names, so a name is resolved here), never to all interfaces unless told to.
* What is told to others is what was bound; where that is not what others reach (all interfaces, a
  translated address), it is the host's name, or what the setting ``advertise.host`` says.
"""

from __future__ import annotations

import ipaddress
import socket

from sparkps.errors import InvalidSetting
from sparkps.net.endpoint import parse, tcp


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
    except OSError as error:
        raise InvalidSetting(
            name="bind.host", value=host, reason=f"is no address of a host: {error.strerror}"
        ) from None
    addresses = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(addresses[0][4][0])


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


def is_any(address: str) -> bool:
    """Whether an address means all interfaces."""
    return ipaddress.ip_address(address).is_unspecified
