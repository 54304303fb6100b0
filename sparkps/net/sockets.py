"""The few zmq calls that everything in ``net`` is made of: a context, multipart frames in and out,
and a monitor.

What costs time here is per frame, so the calls go to pyzmq's compiled socket and past its Python
wrappers. Measured on two cores: ``recv_multipart`` + ``send_multipart`` of 3 frames 22 µs, the
loops below 5 µs.

Small frames are copied and large ones are not, in both directions. Receiving without copying is a
view of libzmq's own memory, and free. Sending without copying makes libzmq call back into Python
when it is done, from a thread that needs the GIL; below :data:`COPY_SEND` the copy is cheaper
(measured one way and back, copied against not: 64 KiB 265 and 307 µs, 400 KiB 566 and 584, 800 KiB
1132 and 1019, 4 MiB 5381 and 4102).

A local connection holds 208 KiB where its kernel is not asked for more, and libzmq asks for tcp
only; tcp's own grow. A larger message then waits for its reader again and again: replies of 400 KiB
came at 0.97 times tcp's rate, and at 1.03 with :func:`widen`.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import zmq

from sparkps.wire.effects import Buffer

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

#: Frames of at least this many bytes are sent without a copy.
COPY_SEND: Final = 1 << 19
#: Frames of at least this many bytes are received without a copy. Under 8 KiB libzmq's own memory
#: is shared between frames and unaligned; from there on each frame has its own.
COPY_RECEIVE: Final = 1 << 13

#: Bytes that a local connection is to hold; the kernel gives what net.core.wmem_max allows.
_HELD: Final = 1 << 20

#: Names of monitors; libzmq lets go of an address some time after its socket was closed.
_numbers = itertools.count()

_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)

_MONITORED: Final = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
)
_EVENT: Final = struct.Struct("=Hi")


def new_context() -> Context:
    """A context with one I/O thread; end it with ``.term()`` after its sockets are closed.

    More I/O threads would let a connection's first message overtake the event that tells of the
    connection, which :class:`~sparkps.net.serve.Router` relies on.
    """
    return zmq.Context(io_threads=1)


class Frames:
    """Multipart messages of one socket, never blocking. Not thread-safe, as the socket is not."""

    __slots__ = ("_get", "_receive", "_send", "socket")

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        raw: Any = super(zmq.Socket, socket)
        self._send = raw.send
        self._receive = raw.recv
        self._get = raw.get

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message. Raises ``zmq.ZMQError`` only at its first frame, and then nothing was
        sent."""
        send = self._send
        last = len(frames) - 1
        for number, frame in enumerate(frames):
            length = len(frame) if type(frame) is bytes else frame.nbytes  # type: ignore[union-attr]
            send(frame, _NOBLOCK if number == last else _MORE, length < COPY_SEND)

    def head(self) -> bytes | None:
        """The first frame of the next message, which is known to have more; None if there is no
        message."""
        if not self.readable():
            return None
        head: bytes = self._receive(_NOBLOCK)
        return head

    def rest(self) -> tuple[list[Buffer], zmq.Frame]:
        """The remaining frames of the message, and the last of them as libzmq has it (for its
        metadata)."""
        receive = self._receive
        frames: list[Buffer] = []
        while True:
            frame = receive(_NOBLOCK, False)
            frames.append(frame.bytes if len(frame) < COPY_RECEIVE else frame.buffer)
            if not frame.more:
                return frames, frame

    def receive(self) -> list[Buffer] | None:
        """The next message; None if there is none."""
        if not self.readable():
            return None
        frame = self._receive(_NOBLOCK, False)
        frames: list[Buffer] = [frame.bytes if len(frame) < COPY_RECEIVE else frame.buffer]
        if frame.more:
            frames += self.rest()[0]
        return frames

    def readable(self) -> bool:
        """Whether a message waits; to ask costs a tenth of the exception of a vain try.

        It also makes the file descriptor tell of the next one (libzmq's descriptors are
        edge-triggered: only after a socket was found empty does theirs become readable again).
        """
        return bool(self._get(_EVENTS) & _POLLIN)


class Event(NamedTuple):
    """Something that happened to a connection; ``value`` is its file descriptor or an error
    number."""

    kind: int
    value: int


class Monitor:
    """The connection events of one socket, in order; made before the socket is bound or connected.

    Attributes
    ----------
    fd : int
        Readable when there are events; it stays so until :meth:`next` has returned None.
    """

    def __init__(self, socket: Socket) -> None:
        self._watched = socket
        address = f"inproc://monitor-{next(_numbers)}"
        socket.monitor(address, _MONITORED)
        self._socket = socket.context.socket(zmq.PAIR)
        self._socket.set(
            zmq.RCVHWM, 0
        )  # libzmq's I/O thread waits for a full monitor, and all connections with it
        self._socket.connect(address)
        self._frames = Frames(self._socket)
        # A pipe that was never found empty does not make its descriptor readable.
        self._frames.readable()
        self.fd = int(self._socket.getsockopt(zmq.FD))

    def next(self) -> Event | None:
        """The next event; None if there is none."""
        frames = self._frames.receive()
        if frames is None:
            return None
        return Event(*_EVENT.unpack(bytes(frames[0])))

    def close(self) -> None:
        """Stop watching; the watched socket must be open still."""
        self._watched.disable_monitor()
        self._socket.close(linger=0)


def widen(fd: int) -> None:
    """Let a local connection, given by an event's descriptor, hold more of what we send; others
    stay as they are. (If it has ended, and the number is another's by now, that does no harm.)
    """
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=fd)
        try:
            if connection.family == socket.AF_UNIX:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _HELD)
        finally:
            connection.detach()  # it is libzmq's to close


def bound_endpoint(socket: Socket) -> str:
    """The address that was bound last, with its real port."""
    return bytes(socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
