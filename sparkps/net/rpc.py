"""The calling side of a data connection: a DEALER that never reconnects by itself.

Covers one connection and waiting for several. Which requests are unanswered, and what is sent
again on a new connection, is known by the client's core.

Rules:

* A connection is used once. libzmq's own reconnect drops messages from the middle of what is in
  flight, so it is off; a lost connection is closed, and its owner opens a new one and sends again,
  in order, what was not answered.
* The end of a connection is an event of the socket's monitor. It is looked for only when no
  message came, so that it costs a call nothing.
* Sending never blocks and never fails: what is in flight is bounded by the owner. Large buffers
  are not copied: they stay as they are until the request is answered.
* One thread at a time uses a connection.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Final

import zmq

from sparkps.net.curve import Curve
from sparkps.net.endpoint import Endpoint, parse
from sparkps.net.sockets import Context, Event, Frames, Monitor, Socket, widen
from sparkps.net.wakeup import Wakeup
from sparkps.wire.effects import Buffer

_LOST: Final = {
    zmq.EVENT_DISCONNECTED: "the connection was closed",
    zmq.EVENT_CLOSED: "the connection was refused",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the other side ended the handshake: it is of an "
    "application with another key or other security, or not of sparkps",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "the handshake failed: the other side is of an "
    "application with another key, or not of sparkps",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the other side refused to admit us",
}


class Connection:
    """One connection to a server.

    Parameters
    ----------
    context
        Of :func:`sparkps.net.sockets.new_context`.
    endpoint
        Where to connect. The constructor does not wait: what is sent before the connection stands
        goes out then, and a connection that is refused is soon :attr:`lost`.
    curve
        Speak CURVE, with the application's keys.

    Attributes
    ----------
    lost : str
        Why the connection is lost; empty while it lives.
    """

    def __init__(self, context: Context, endpoint: str, curve: Curve | None = None) -> None:
        where = parse(endpoint)
        self.endpoint = str(where)
        self.lost = ""
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.RECONNECT_IVL, -1)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        dial(self._socket, where, curve)
        self._frames = Frames(self._socket)
        self._monitor = Monitor(self._socket)
        self._socket.connect(self.endpoint)
        self._poll = select.poll()
        self.register(self._poll)

    def register(self, poll: select.poll) -> None:
        """Let ``poll`` wait for this connection. Sleep in it only after :attr:`ready` was False."""
        poll.register(int(self._socket.getsockopt(zmq.FD)), select.POLLIN)
        poll.register(self._monitor.fd, select.POLLIN)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message; on a lost connection it is dropped."""
        if not self.lost:
            try:
                self._frames.send(frames)
            except zmq.Again:  # it has just ended, which its events will tell
                return

    def receive(self, timeout_ms: float = 0) -> list[Buffer] | None:
        """The next message, waiting for it at most ``timeout_ms`` (-1: as long as it takes).

        None says that nothing came in time, or that the connection is :attr:`lost`.
        """
        frames = self._frames.receive()
        if frames is not None or self.lost:
            return frames
        if timeout_ms == 0:
            self._check_lost()
            return None
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            for fd, _ in self._poll.poll(timeout_ms if timeout_ms > 0 else None):
                if fd == self._monitor.fd:
                    self._check_lost()
            frames = self._frames.receive()
            if frames is not None or self.lost:
                return frames
            if timeout_ms > 0:
                timeout_ms = (deadline - time.monotonic()) * 1000
                if timeout_ms <= 0:
                    return None

    @property
    def ready(self) -> bool:
        """Whether a message waits, or the connection is lost."""
        return self._frames.readable() or self._check_lost()

    def close(self) -> None:
        """Close; what was not sent yet is dropped."""
        if not self._socket.closed:
            self.lost = self.lost or "closed"
            self._monitor.close()
            self._socket.close()

    def _check_lost(self) -> bool:
        while not self.lost:
            event = self._monitor.next()
            if event is None:
                return False
            if event.kind == zmq.EVENT_CONNECTED:
                widen(event.value)
            self.lost = reason_of(event)
        return True


def dial(socket: Socket, endpoint: Endpoint, curve: Curve | None) -> None:
    """Set what a socket needs before it connects to an address."""
    if endpoint.is_ipv6:
        socket.set(zmq.IPV6, 1)
    if curve is not None:
        curve.call(socket)


def reason_of(event: Event) -> str:
    """Why an event ends a connection; empty if it does not."""
    return _LOST.get(zmq.Event(event.kind), "")


def wait(
    connections: Sequence[Connection], timeout_ms: float, wakeup: Wakeup | None = None
) -> list[Connection]:
    """Wait until some of the connections have a message or are lost, and return those.

    An empty list says that ``timeout_ms`` (-1: as long as it takes) has passed, or that ``wakeup``
    was set; it is left set.
    """
    ready = [connection for connection in connections if connection.ready]
    if ready or timeout_ms == 0:
        return ready
    poll = select.poll()
    for connection in connections:
        connection.register(poll)
    if wakeup is not None:
        poll.register(wakeup.fileno(), select.POLLIN)
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        polled = poll.poll(timeout_ms if timeout_ms > 0 else None)
        ready = [connection for connection in connections if connection.ready]
        if (
            ready
            or not polled
            or (wakeup is not None and any(fd == wakeup.fileno() for fd, _ in polled))
        ):
            return ready
        if timeout_ms > 0:
            timeout_ms = max(0.0, (deadline - time.monotonic()) * 1000)
            if timeout_ms == 0:
                return []
