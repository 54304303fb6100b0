"""Addresses: ``ipc://path`` and ``tcp://host:port``.

Covers what can be known from the text of an address. It opens no socket and resolves no name.
"""

from __future__ import annotations

import os
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
    """

    scheme: str
    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"ipc://{self.path}" if self.scheme == "ipc" else f"tcp://{self.host}:{self.port}"


def parse(text: str) -> Endpoint:
    """Parse an address.

    Raises
    ------
    InvalidArgument
        That says what is wrong: another scheme, a relative or too long path, no port, an IPv6
        address.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("ipc", "tcp"):
        raise _bad(text, "an address is ipc:///absolute/path or tcp://host:port")
    if scheme == "ipc":
        return Endpoint("ipc", path=_checked_path(text, rest))
    host, separator, port = rest.rpartition(":")
    if "[" in rest or ":" in host:
        raise _bad(text, "IPv6 addresses are not supported; give an IPv4 address or a host name")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise _bad(text, "a tcp address is tcp://host:port with a port of 0 to 65535")
    return Endpoint("tcp", host=host, port=int(port))


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


def _bad(text: str, reason: str) -> InvalidArgument:
    return InvalidArgument(name="endpoint", value=text, reason=reason)
