"""Connections to a port that nobody has been heard on, and those that are shown out.

A port can be reached by anybody, and libzmq by itself lets a connection that never completes a
message take any amount of memory (the limits of its queues count whole messages, and that of a
frame counts one of them) and a descriptor for ever. It closes no single connection on request
either; but it obeys the end of its socket, so that is what a stranger is given here.

Rules:

* A connection is a *stranger's* until its first message was received. What follows is for the
  listener's owner, who answers, and may have it shown out.
* A stranger that has sent :data:`LOUD` bytes, that says nothing for :data:`PATIENCE` seconds, or
  that is the oldest of too many, is shut. It has had its turn first: the listener was found empty
  since, or enough was received for everybody to have been heard.
* Who is shown out gets :data:`FAREWELL` seconds, in which the last answer leaves.
* A descriptor may be another connection's by now. So what is remembered with it is the number of
  its socket, and what is shut is a copy of the descriptor of which the number was found right.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
from typing import Final

#: Bytes of a stranger, by tcp: a handshake and a first message have less than 2 KiB.
LOUD: Final = 1 << 16
#: Seconds for a first message: those that libzmq gives a handshake.
PATIENCE: Final = 30.0
#: Seconds from the last answer to the end of a connection.
FAREWELL: Final = 0.25
#: Seconds between two looks at the strangers: each costs a system call for each of them.
LOOK: Final = 0.1
#: Looks at which one must be found at fault. What has come to the socket is not in libzmq's queue
#: yet while its thread waits for a core.
_LOOKS: Final = 3
#: Where ``struct tcp_info`` (linux/tcp.h) has ``tcpi_bytes_received``.
_BYTES_RECEIVED: Final = struct.Struct("=128xQ")


class _Stranger:
    __slots__ = ("inode", "looks", "reach", "since")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.since = -1.0
        self.looks = 0
        self.reach = 0


class Strangers:
    """See the module. Descriptors are libzmq's.

    Parameters
    ----------
    most
        How many there may be at a time; 0: half of the descriptors that this process may have.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most or resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._unheard: dict[int, _Stranger] = {}
        self._leaving: dict[int, tuple[int, float]] = {}
        self._next = 0.0
        self.shut = 0

    def __bool__(self) -> bool:
        """Whether there is anyone to look at."""
        return bool(self._unheard or self._leaving)

    def accepted(self, fd: int) -> int:
        """A connection was accepted; return the number of its socket."""
        try:
            inode = os.fstat(fd).st_ino
        except OSError:  # it has ended by now, which will be told
            return 0
        self._unheard[fd] = _Stranger(inode)
        self._leaving.pop(fd, None)
        return inode

    def heard(self, fd: int) -> None:
        """A message came."""
        self._unheard.pop(fd, None)

    def ended(self, fd: int) -> None:
        """A connection has ended."""
        self._unheard.pop(fd, None)
        self._leaving.pop(fd, None)

    def show_out(self, fd: int, inode: int) -> None:
        """End a connection in a moment."""
        self._leaving.setdefault(fd, (inode, -1.0))

    def due(self, now: float) -> bool:
        """Whether it is time for another look."""
        return now >= self._next

    def look(self, now: float, *, received: int, others: int, empty: bool) -> None:
        """Shut whom the rules say.

        Parameters
        ----------
        now
            Seconds.
        received
            Messages that the listener has received so far.
        others
            How many connections it receives from.
        empty
            Whether it was found empty.
        """
        self._next = now + LOOK
        for fd, (inode, until) in list(self._leaving.items()):
            if until < 0:
                self._leaving[fd] = (inode, now + FAREWELL)
            elif now >= until:
                del self._leaving[fd]
                self._shut(fd, inode)
        crowd = len(self._unheard) - self._most
        for number, (fd, stranger) in enumerate(list(self._unheard.items())):
            if stranger.since < 0:
                stranger.since = now
            late = now - stranger.since >= PATIENCE
            if not (late or number < crowd or _received(fd) > LOUD):
                stranger.looks = 0
                continue
            if not stranger.looks:
                stranger.reach = received + others + len(self._unheard)
            stranger.looks += 1
            if stranger.looks >= _LOOKS and (empty or received >= stranger.reach):
                del self._unheard[fd]
                self._shut(fd, stranger.inode)

    def _shut(self, fd: int, inode: int) -> None:
        with contextlib.suppress(OSError):  # it has ended by itself
            copy = os.dup(fd)
            if os.fstat(copy).st_ino != inode:
                os.close(copy)
                return
            with socket.socket(fileno=copy) as connection:
                connection.shutdown(socket.SHUT_RDWR)
            self.shut += 1


def _received(fd: int) -> int:
    """Bytes that have come by a tcp connection; 0 if it is none (a local socket has an owner)."""
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    except OSError:
        return 0
    if len(info) < _BYTES_RECEIVED.size:  # a kernel before 4.1
        return 0
    count: int = _BYTES_RECEIVED.unpack(info)[0]
    return count
