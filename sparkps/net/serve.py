"""The listening side of a connection: a bound ROUTER that never blocks and that says when a peer
has gone.

Covers one socket. The loop that serves several of them is :mod:`sparkps.net.loop`; what a message
means is not known here.

Rules:

* ``ROUTER_MANDATORY`` is on: a message to a peer that has gone is reported, never dropped in
  silence.
* Nothing blocks. When libzmq takes no more for a peer, its messages are kept here in order, sent
  when it takes them again, and their bytes are counted in :attr:`Router.backlog`, so that the
  owner can stop reading. For that to be a limit libzmq's own queues are short in both directions:
  a reader that stops is felt by the sender's socket.
* A peer is one connection. Its identity is made by libzmq and is never used again.
* The end of a connection is an event of the socket's monitor, which names a descriptor; each
  message names the descriptor it came from. Two orders matter and are kept: a peer is known under
  a descriptor only from events older than its first message (descriptors are used again), and its
  end is told after its last message (libzmq tells of the end *before* it hands over what it had
  read; it closes the descriptor after). Every peer that a message came from is told to have gone,
  once for each time that it was heard.
* A peer that was cut gets the answers that were sent before, and is not listened to any more. What
  strangers may take is bounded (:mod:`sparkps.net.strangers`).
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Container, Sequence
from typing import Final

import zmq

from sparkps.errors import InvalidSetting, PortsTaken
from sparkps.net.curve import Curve
from sparkps.net.endpoint import Endpoint, parse
from sparkps.net.sockets import Context, Frames, Monitor, bound_endpoint, widen
from sparkps.net.strangers import Strangers
from sparkps.wire.effects import Buffer

#: Messages that libzmq holds per peer, each way; a message has at most ``message.maxBytes`` (4
#: MiB).
QUEUE: Final = 64
#: A connection that ended has at most this many messages left, and each waits for one of every
#: other peer's.
_LEFT: Final = QUEUE + 1
#: Looks at a descriptor that libzmq is about to close. It takes microseconds; a thread that was
#: put aside in between
#: takes a time slice.
_LOOKS: Final = 50
#: In place of a peer's descriptor: its connection has ended; libzmq does not tell (its end is not
#: seen then).
_ENDED, _UNTOLD = -1, -2
#: How long :meth:`Router.close` lets libzmq go on sending, in milliseconds: the last answers leave.
LINGER_MS: Final = 200
#: Largest frame of a stranger, who is read before he is known: far more than a message has
#: (``message.maxBytes``, but at least one row), far less than would hurt.
STRANGERS_FRAME: Final = 256 * 2**20


class Router:
    """A bound ROUTER. A peer is the bytes that libzmq identifies its connection by.

    Parameters
    ----------
    context
        Of :func:`sparkps.net.sockets.new_context`.
    endpoints
        Addresses to bind; ``tcp://host:0`` takes any free port of ``ports``.
    ports
        First and last port to try; (0, 0) is any.
    curve
        Speak CURVE, and let in whom the gate of the context lets in.

    Raises
    ------
    PortsTaken
        All ports of the range are in use.
    InvalidSetting
        An address is not of this host.

    Attributes
    ----------
    endpoints : list of str
        What was bound, with real ports.
    backlog : int
        Bytes that wait here for peers that are slow to read.
    fd, events_fd : int
        Descriptors that become readable when there may be messages, and when connections came or
        went.
    deaf : set of bytes
        Peers that were cut; what still comes from them is to be dropped.
    dirty : bool
        Whether there may be messages that ``fd`` will not tell of: libzmq's descriptors are
        edge-triggered, and any use of a socket may swallow the edge. It is safe to sleep on ``fd``
        only while this is False.
    """

    def __init__(
        self,
        context: Context,
        endpoints: Sequence[str],
        *,
        ports: tuple[int, int] = (0, 0),
        curve: Curve | None = None,
    ) -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, LINGER_MS)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, QUEUE)
        self._socket.set(zmq.RCVHWM, QUEUE)
        self._socket.set(zmq.MAXMSGSIZE, STRANGERS_FRAME)
        if curve is not None:
            curve.listen(self._socket)
        self._frames = Frames(self._socket)
        self._monitor = Monitor(self._socket)
        self.endpoints: list[str] = []
        self.backlog = 0
        self.dirty = True
        self._received = 0
        self._waiting: dict[bytes, deque[list[Buffer]]] = {}
        self._fd_of: dict[bytes, int] = {}
        self._peer_at: dict[int, bytes] = {}
        self._open: dict[int, int] = {}
        self._strangers = Strangers()
        self.deaf: set[bytes] = set()
        self._ending: list[_Ending] = []
        try:
            for text in endpoints:
                self._bind(parse(text), ports)
                self.endpoints.append(bound_endpoint(self._socket))
        except BaseException:
            self.close()
            raise
        self.fd = int(self._socket.getsockopt(zmq.FD))
        self.events_fd = self._monitor.fd

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        """The next message as ``(peer, frames)``; None if there is none. Never blocks."""
        peer = self._frames.head()
        if peer is None:
            self.dirty = False
            return None
        frames, last = self._frames.rest()
        self._received += 1
        if peer not in self._fd_of:
            self._admit(peer, last)
        return peer, frames

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> bool:
        """Send a message, or keep it until the peer takes it; False says that the peer has gone."""
        if peer not in self._fd_of:
            return False
        self.dirty = True
        if self._waiting and peer in self._waiting:
            self._keep(peer, frames)
            return True
        try:
            self._frames.send([peer, *frames])
        except zmq.Again:
            self._keep(peer, frames)
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return True

    def cut(self, peer: bytes) -> None:
        """End a peer's connection, a moment after what it was sent."""
        fd = self._fd_of.get(peer, _ENDED)
        if fd >= 0:
            self.deaf.add(peer)
            self._strangers.show_out(fd, self._open[fd])

    @property
    def watching(self) -> bool:
        """Whether :meth:`look` has to be called from time to time."""
        return bool(self._strangers)

    def look(self, now: float) -> None:
        """End the connections of strangers who ask too much, and of those who were cut."""
        if self._strangers.due(now):
            self._read_events()
            self._strangers.look(
                now, received=self._received, others=len(self._fd_of), empty=not self.dirty
            )

    def flush(self) -> None:
        """Send what was kept, as far as the peers take it."""
        if not self._waiting:
            return
        self._frames.readable()  # lets libzmq learn that peers have read
        for peer in list(self._waiting):
            waiting = self._waiting[peer]
            try:
                while waiting:
                    self._frames.send([peer, *waiting[0]])
                    self.backlog -= _bytes(waiting.popleft())
            except zmq.Again:
                continue
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                self._forget(peer)
            else:
                del self._waiting[peer]
        self.dirty = self._frames.readable()

    @property
    def flushing(self) -> bool:
        """Whether something is kept back."""
        return bool(self._waiting)

    @property
    def ending(self) -> bool:
        """Whether :meth:`gone` has to be asked again soon."""
        return bool(self._ending)

    def gone(self) -> list[bytes]:
        """Peers whose connections have ended and whose messages were all received.

        Ask when ``events_fd`` is readable, and again soon while :attr:`ending`.
        """
        self._read_events()
        if not self._ending:
            return []
        # What came from a connection is in our queue once its descriptor is closed; it has been
        # received when the queue was seen empty after that, or when enough was received for its
        # turn to have come.
        reach = self._received + _LEFT * (len(self._fd_of) + 1)
        closed = [ending for ending in self._ending if ending.complete(self._open, reach)]
        empty = bool(closed) and not self._frames.readable()
        self.dirty = self.dirty or not empty
        told = [ending for ending in closed if empty or self._received >= ending.reach]
        for ending in told:
            self._ending.remove(ending)
            self._forget(ending.peer)
        return [ending.peer for ending in told]

    def close(self) -> None:
        """Close the socket; what libzmq has taken is sent, what was kept back is not."""
        if not self._socket.closed:
            self._monitor.close()
            self._socket.close()

    def _bind(self, endpoint: Endpoint, ports: tuple[int, int]) -> None:
        if endpoint.is_ipv6:
            self._socket.set(zmq.IPV6, 1)
        first, last = ports
        if endpoint.scheme == "ipc" or endpoint.port or not first:
            self._bind_one(endpoint)
            return
        for port in range(first, last + 1):
            try:
                self._bind_one(endpoint._replace(port=port))
            except zmq.ZMQError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return
        raise PortsTaken(ports=f"{first}-{last}", host=endpoint.host, needed=2)

    def _bind_one(self, endpoint: Endpoint) -> None:
        try:
            self._socket.bind(str(endpoint))
        except zmq.ZMQError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.ENODEV):
                raise
            raise InvalidSetting(
                name="bind.host", value=endpoint.host, reason="is no address of this host"
            ) from None

    def _admit(self, peer: bytes, frame: zmq.Frame) -> None:
        fd = _descriptor(frame)
        if fd is None:
            self._fd_of[peer] = _UNTOLD
            return
        self._read_events()
        if fd in self._open:
            before = self._peer_at.get(fd)
            if before is not None:
                self._end(before, fd)
            self._fd_of[peer] = fd
            self._peer_at[fd] = peer
            self._strangers.heard(fd)
        else:  # it sent and left at once
            self._fd_of[peer] = _ENDED
            self._ending.append(_Ending(peer, fd))

    def _read_events(self) -> None:
        while (event := self._monitor.next()) is not None:
            if event.kind == zmq.EVENT_ACCEPTED:
                widen(event.value)
                self._open[event.value] = self._strangers.accepted(event.value)
            elif event.kind == zmq.EVENT_DISCONNECTED:
                self._open.pop(event.value, None)
                self._strangers.ended(event.value)
                peer = self._peer_at.get(event.value)
                if peer is not None:
                    self._end(peer, event.value)

    def _end(self, peer: bytes, fd: int) -> None:
        del self._peer_at[fd]
        self._fd_of[peer] = _ENDED
        self._ending.append(_Ending(peer, fd))

    def _forget(self, peer: bytes) -> None:
        if self._fd_of.get(peer) == _ENDED:
            del self._fd_of[peer]
            self.deaf.discard(peer)
        for frames in self._waiting.pop(peer, ()):
            self.backlog -= _bytes(frames)

    def _keep(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        kept = list(frames)
        self._waiting.setdefault(peer, deque()).append(kept)
        self.backlog += _bytes(kept)


class _Ending:
    """A connection that has ended and may still have messages on the way to us."""

    __slots__ = ("_fd", "_looks", "peer", "reach")

    def __init__(self, peer: bytes, fd: int) -> None:
        self.peer = peer
        self.reach = (
            -1
        )  # the number of messages received when its last was, at the latest; once it is known
        self._fd = fd
        self._looks = 0

    def complete(self, opened: Container[int], reach: int) -> bool:
        """Whether libzmq has closed the descriptor (or it is another connection's by now)."""
        if self.reach < 0:
            self._looks += 1
            if self._fd not in opened and self._looks <= _LOOKS and _is_open(self._fd):
                return False
            self.reach = reach
        return True


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _descriptor(frame: zmq.Frame) -> int | None:
    """The descriptor of the connection that a frame came from; None where libzmq does not tell."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return None


def _bytes(frames: Sequence[Buffer]) -> int:
    return sum(len(frame) if isinstance(frame, bytes) else frame.nbytes for frame in frames)
