"""What a child process and its parent say to each other, by stdin and stdout.

The parent is a launcher in Python or the Spark plugin in Java; the child a coordinator or a server.

* stdin: the first line, JSON, says what to do; later lines (a coordinator's only) are events that
  the parent alone knows. The end of stdin is the leash: the parent is gone, and the child leaves.
* stdout: lines that begin with the word ``sparkps``, then a verb, then text that the parent takes
  as it is. All else on stdout is noise (a print of a ``sitecustomize``), which no parent minds.
  ``failed`` is said before a child ends that cannot start or go on, with a sentence for the user;
  ``leaving`` before a server ends that was told to.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
from typing import Final

#: What every line for the parent begins with.
MARK: Final = b"sparkps "
_CHUNK: Final = 65_536


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
        line, end, self._buffer = self._buffer.partition(b"\n")
        return line if end else b""

    def read(self) -> list[bytes]:
        """Lines that have come, once the descriptor is readable; see :attr:`ended` too."""
        self._fill()
        *lines, self._buffer = self._buffer.split(b"\n")
        return [line for line in lines if line]

    def _fill(self) -> None:
        chunk = os.read(self.fd, _CHUNK)
        self._buffer += chunk
        self.ended = not chunk


class Parent:
    """The way to the parent: this process's stdout, kept before the log takes its place, and its
    stdin.

    A parent that is gone, or does not read, is told nothing and holds up nobody.
    """

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.set_inheritable(self._fd, False)
        if stat.S_ISFIFO(os.fstat(self._fd).st_mode):  # of a terminal, others would be changed too
            os.set_blocking(self._fd, False)

    def tell(self, verb: str, text: object = "") -> None:
        """Say a line."""
        line = MARK + f"{verb} {text}".strip().replace("\n", " | ").encode() + b"\n"
        with contextlib.suppress(OSError):
            os.write(self._fd, line)

    def is_gone(self) -> bool:
        """Whether it has let go of the leash."""
        leash = select.poll()
        leash.register(0, select.POLLHUP)
        return bool(leash.poll(0))


def told(line: bytes) -> tuple[str, str] | None:
    """Read a line of a child: its verb and text, or None if it is noise.

    Examples
    --------
    >>> told(b"sparkps ready 2"), told(b"hello")
    (('ready', '2'), None)
    """
    if not line.startswith(MARK):
        return None
    verb, _, text = line[len(MARK) :].decode("utf-8", "replace").strip().partition(" ")
    return verb, text
