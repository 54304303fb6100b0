"""The wire of libzmq by hand (ZeroMQ RFC 23), for what libzmq would not send."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Final

from sparkps.net.endpoint import parse

#: Bound of every wait here, in seconds.
LONG: Final = 10.0
#: Bytes of greeting and READY, of either side.
HANDSHAKE: Final = 107
READY: Final = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"


def connect(endpoint: str) -> socket.socket:
    where = parse(endpoint)
    stranger = socket.create_connection((where.host, where.port), LONG)
    stranger.settimeout(LONG)
    return stranger


def greeting(mechanism: bytes = b"NULL") -> bytes:
    return b"\xff" + bytes(8) + b"\x7f\x03\0" + mechanism.ljust(20, b"\0") + bytes(32)


def admitted(endpoint: str, said: bytes = greeting() + READY) -> socket.socket:
    """A connection after its handshake, for a listener without CURVE. What comes before the other
    side's READY, libzmq takes for a part of the handshake.
    """
    stranger = connect(endpoint)
    stranger.sendall(said)
    stranger.recv(HANDSHAKE, socket.MSG_WAITALL)
    return stranger


def head(length: int, *, more: bool = False, command: bool = False) -> bytes:
    """What stands before the bytes of a frame."""
    return bytes([2 | more | 4 * command]) + struct.pack(">Q", length)


def frame(data: bytes, *, more: bool = False) -> bytes:
    return head(len(data), more=more) + data


def ended(stranger: socket.socket) -> bytes:
    """Read until the other side has ended the connection; what it had said."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while data := stranger.recv(65_536):
            said += data
    stranger.close()
    return said


def pour(stranger: socket.socket, data: bytes, most: int) -> int:
    """Send the same bytes until the connection ends; how many were sent."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most:
            stranger.sendall(data)
            sent += len(data)
    return sent
