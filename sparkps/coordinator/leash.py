"""The coordinator's stdin: its leash, and the voice of its parent.

The first line says what to do. Later lines are events that only the parent knows; the end of the
stream means that the parent is gone. All lines are JSON:

* ``{"exited": [server, incarnation, status, tail]}``: ``waitpid`` has certified the exit of a
  server.
* ``{"shutdown": true}``: stop the servers, then leave.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

_CHUNK: Final = 65_536


class FirstLine(msgspec.Struct):
    """What the coordinator is started with.

    ``servers`` make the first view; ``endpoint`` is bound; ``directory`` is removed when the parent
    is gone.
    """

    endpoint: str
    directory: str
    servers: int
    log: str = ""
    settings: dict[str, object] = {}


class Line(msgspec.Struct):
    """A later line."""

    exited: tuple[int, int, str, str] | None = None
    shutdown: bool = False


class Report(msgspec.Struct, omit_defaults=True):
    """A line of the coordinator's stdout: it listens; or all servers have come, the last line."""

    endpoint: str = ""
    servers: int = 0


class Lines:
    """Lines from a descriptor, without blocking for more than is there (but for the first)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._buffer = b""
        self.ended = False

    def first(self) -> bytes:
        """Wait for a line; empty if the stream ends before."""
        while b"\n" not in self._buffer and not self.ended:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def read(self) -> list[bytes]:
        """Lines that have come, once the descriptor is readable; see :attr:`ended` too."""
        self._fill()
        *lines, self._buffer = self._buffer.split(b"\n")
        return [line for line in lines if line]

    def _fill(self) -> None:
        chunk = os.read(self.fd, _CHUNK)
        self._buffer += chunk
        self.ended = not chunk
