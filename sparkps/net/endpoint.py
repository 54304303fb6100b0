"""Addresses: ``ipc://path`` and ``tcp://host:port``.

Covers what can be known from the text of an address. It opens no socket and resolves no name.

Several addresses of one listener are one text, joined by commas; :func:`nearest` takes the local
one where it is there.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from typing import Final, NamedTuple

from sparkps.errors import InvalidArgument

#: ``sun_path`` of a Unix socket holds 108 bytes with its final zero (Linux; 104 elsewhere).
MAX_IPC_PATH: Final = 107


class Endpoint(NamedTuple):
    """A parsed address: ``path`` for ipc; ``host`` and ``port`` (0 = any free one) for tcp.

    Examples
    --------
    >>> parse("tcp://127.0.0.1:0")
    Endpoint(scheme='tcp', path='', host='127.0.0.1', port=0)
    >>> str(parse("ipc:///tmp/sparkps-1/c"))
    'ipc:///tmp/sparkps-1/c'
    >>> str(parse("tcp://[::1]:7000"))
    'tcp://[::1]:7000'
    """

    scheme: str
    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"ipc://{self.path}" if self.scheme == "ipc" else tcp(self.host, self.port)

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an IPv6 address."""
        return ":" in self.host


def parse(text: str) -> Endpoint:
    """Parse an address.

    Raises
    ------
    InvalidArgument
        That says what is wrong: another scheme, a relative or too long path, no port, an IPv6
        address without brackets.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("ipc", "tcp"):
        raise _bad(text, "an address is ipc:///absolute/path or tcp://host:port")
    if scheme == "ipc":
        return Endpoint("ipc", path=_checked_path(text, rest))
    host, separator, port = rest.rpartition(":")
    if host[:1] == "[" and host[-1:] == "]" and _is_ipv6(host[1:-1]):
        host = host[1:-1]
    elif "[" in rest or ":" in host:
        raise _bad(text, "an IPv6 address stands in brackets, as in tcp://[::1]:7000")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise _bad(text, "a tcp address is tcp://host:port with a port of 0 to 65535")
    return Endpoint("tcp", host=host, port=int(port))


def tcp(host: str, port: int) -> str:
    """The address of a port; an IPv6 address of a host gets its brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def nearest(addresses: str) -> str:
    """Choose among the addresses of one listener: a local socket of this user's, or else the first
    tcp address.

    Examples
    --------
    >>> nearest("ipc:///nowhere/c,tcp://10.0.0.1:7000")
    'tcp://10.0.0.1:7000'

    Raises
    ------
    InvalidArgument
        One of them is no address.
    """
    found = [parse(text) for text in addresses.split(",")]
    for endpoint in found:
        if endpoint.scheme == "ipc" and is_ours(endpoint.path):
            return str(endpoint)
    return str(next((endpoint for endpoint in found if endpoint.scheme == "tcp"), found[0]))


def is_ours(path: str) -> bool:
    """Whether there is a local socket of this user's own. The path may come from another host: what
    somebody else has put in that place here would be taken for the listener.
    """
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


def ipc(directory: str, name: str) -> str:
    """The address of the socket ``name`` in ``directory``; a path that is too long to bind is
    refused."""
    path = os.path.join(os.path.abspath(directory), name)
    return f"ipc://{_checked_path(path, path)}"


def _checked_path(text: str, path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise _bad(text, "the path of an ipc address is absolute")
    length = len(os.fsencode(path))
    if length > MAX_IPC_PATH:
        raise _bad(
            text,
            f"its path has {length} bytes and the system binds at most {MAX_IPC_PATH}; "
            "use a shorter directory",
        )
    return path


def _is_ipv6(host: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(host), ipaddress.IPv6Address)
    except ValueError:
        return False


def _bad(text: str, reason: str) -> InvalidArgument:
    return InvalidArgument(name="endpoint", value=text, reason=reason)
