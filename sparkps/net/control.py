"""The link to the coordinator: one small thread that owns the socket and keeps the heartbeat.

Covers joining, heartbeats, requests that are answered once, and one-way messages both ways. What
the messages mean is for the two sides; this module knows the envelope only: Joined, Beat, Answer
and Denied.

Rules:

* The socket belongs to the link's thread. Others hand it messages through a queue and a wake-up;
  they leave in the order in which they were told, requests included.
* A heartbeat leaves every ``Joined.heartbeat`` seconds, whatever the process computes meanwhile.
* The link does not reconnect. When its connection ends it is lost for good: every open and later
  request raises :class:`~sparkps.errors.CoordinatorLost`, and ``on_lost`` is called once.
* Every wait is bounded: joining and requests end by a deadline with an error that names what was
  waited for.
* A callback that raises ends the link, with the exception in the log: after it nobody would know
  what was missed.
"""

from __future__ import annotations

import itertools
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import zmq

from sparkps.errors import (
    CoordinatorLost,
    CoordinatorUnreachable,
    PSError,
    RequestTimeout,
    WrongType,
    from_wire,
)
from sparkps.net.curve import Curve
from sparkps.net.endpoint import nearest, parse
from sparkps.net.hosts import why_unknown
from sparkps.net.rpc import dial, reason_of
from sparkps.net.sockets import Context, Frames, Monitor, new_context
from sparkps.net.wakeup import Wakeup
from sparkps.wire.frames import decode_control, encode_control
from sparkps.wire.messages import Answer, Beat, Control, Denied, Joined, Message

#: How long close() lets told messages leave, in milliseconds.
LINGER_MS: Final = 1000
#: Seconds for the link's thread to end after it was told to. All but libzmq's own end of the
#: context is bounded, and that was seen to hang once after a coordinator was killed.
CLOSING: Final = 10.0
#: Seconds for a name service that cannot answer at the moment; a resolver of its own waits about
#: as long for each answer.
NAMING: Final = 5.0
#: The id under which the answer to the first message is awaited; requests count from 1.
_JOIN: Final = 0

_log = logging.getLogger(__name__)


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("error", "event", "result")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.result: Any = None
        self.error: PSError | None = None


class ControlLink:
    """A connection to the coordinator that has been joined.

    Parameters
    ----------
    addresses
        Where the coordinator listens; the nearest one is taken.
    first_message
        Join or ServerUp.
    on_message
        Gets every message but Joined, Answer and Denied, in the link's thread; it must not block.
    on_lost
        Gets the reason, once, when the connection ends other than by :meth:`close`; in the link's
        thread.
    timeout
        Seconds for connecting and joining.
    log
        Path of the coordinator's log, for errors.
    load
        Gives the figures that a heartbeat carries; called in the link's thread.
    context
        A context to share; None makes one.
    curve
        The application's keys; tcp connections speak CURVE with them.

    Attributes
    ----------
    joined : Joined
        What the coordinator answered to ``first_message``.
    lost : str
        Why the link is lost; empty while it lives.

    Raises
    ------
    CoordinatorUnreachable
        If nobody listens there, or there is no such host.
    RequestTimeout
        If nobody answers in time.
    PSError
        What the coordinator refuses the first message with (VersionMismatch).
    """

    joined: Joined

    def __init__(
        self,
        addresses: str,
        first_message: Message,
        on_message: Callable[[Control], object],
        on_lost: Callable[[str], object],
        *,
        timeout: float = 10.0,
        log: str = "",
        load: Callable[[], dict[str, float]] | None = None,
        context: Context | None = None,
        curve: Curve | None = None,
    ) -> None:
        self.endpoint = nearest(addresses)
        where = parse(self.endpoint)
        deadline = time.monotonic() + timeout
        if where.scheme == "tcp" and (why := why_unknown(where.host, min(timeout, NAMING))):
            raise CoordinatorUnreachable(endpoint=self.endpoint, status=why)
        self._curve = curve if where.scheme == "tcp" else None
        self.lost = ""
        self._on_message = on_message
        self._on_lost = on_lost
        self._log_path = log
        self._load = load
        self._own_context = context is None
        self._context = context or new_context()
        self._ids = itertools.count(_JOIN + 1)
        self._lock = threading.Lock()
        join = _Pending()
        self._pending: dict[int, _Pending] = {_JOIN: join}
        self._told: deque[bytes] = deque([encode_control(first_message)])
        self._wakeup = Wakeup()
        self._closing = False
        self._heartbeat = 0.0
        self._thread = threading.Thread(target=self._run, name="sparkps-control", daemon=True)
        self._thread.start()
        try:
            left = max(0.0, deadline - time.monotonic())
            self.joined = self._await(join, "joining", timeout, left)
        except BaseException:
            self.close()
            raise

    def request(self, make: Callable[[int], Message], timeout: float) -> Any:
        """Send the request that ``make(id)`` gives and wait for its answer, from any thread but
        the link's own.

        Returns
        -------
        object
            ``Answer.result``: plain MessagePack types, for ``msgspec.convert`` where a struct is
            meant.

        Raises
        ------
        PSError
            What the request was denied with; RequestTimeout; CoordinatorLost.
        """
        number = next(self._ids)
        message = make(number)
        pending = _Pending()
        with self._lock:
            lost = self.lost
            if not lost:
                self._pending[number] = pending
        if lost:
            raise self._lost_error()
        try:
            self.tell(message)
            return self._await(pending, type(message).__name__, timeout)
        finally:
            self._pending.pop(number, None)

    def tell(self, message: Message) -> None:
        """Send a one-way message, from any thread; on a lost link it is dropped.

        Raises
        ------
        WrongType
            It holds something that MessagePack does not take; here, in the caller, since in the
            link's thread it would end the link.
        """
        try:
            frame = encode_control(message)
        except (TypeError, ValueError, OverflowError) as error:
            raise WrongType(
                what=f"a field of {type(message).__name__}",
                got=f"not to be sent ({error})",
                expected="text, numbers and lists of them",
            ) from error
        self._told.append(frame)
        self._wakeup.set()

    def close(self) -> None:
        """Send what was told, then end; closing twice is no error."""
        self._closing = True
        self._wakeup.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSING)
            if self._thread.is_alive():
                _log.warning("the link to the coordinator at %s does not end", self.endpoint)

    def _await(
        self, pending: _Pending, what: str, timeout: float, left: float | None = None
    ) -> Any:
        if not pending.event.wait(timeout if left is None else left):
            raise RequestTimeout(
                what=what, peer="the coordinator", seconds=timeout, log=self._log_path or "its log"
            )
        if pending.error is not None:
            raise pending.error
        return pending.result

    def _lost_error(self) -> CoordinatorLost:
        log = self._log_path or "(on its host)"
        return CoordinatorLost(status=self.lost, log=log, tail="  (not known here)")

    # --- the link's thread ---

    def _run(self) -> None:
        socket = self._context.socket(zmq.DEALER)
        monitor = None
        reason = ""
        try:
            # libzmq ends a connection that was refused or cut with the linger of this moment: with
            # any but 0 it, and so the context's end, waits for ever for what was not sent.
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.RECONNECT_IVL, -1)
            socket.set(zmq.SNDHWM, 0)
            socket.set(zmq.RCVHWM, 0)
            dial(socket, parse(self.endpoint), self._curve)
            monitor = Monitor(socket)
            socket.connect(self.endpoint)
            reason = self._serve(Frames(socket), monitor)
        except Exception as error:  # noqa: BLE001 - a callback may raise anything; nothing is lost: it ends the link
            _log.exception("the link to the coordinator at %s ends", self.endpoint)
            reason = f"{type(error).__name__}: {error}"
        finally:
            if monitor is not None:
                monitor.close()
            socket.close(linger=0 if reason else LINGER_MS)
        self._end(reason)
        self._wakeup.close()
        if self._own_context:
            self._context.term()

    def _serve(self, frames: Frames, monitor: Monitor) -> str:
        """Serve the socket until the link is closed or lost; return why it is lost."""
        poll = select.poll()
        for fd in (int(frames.socket.getsockopt(zmq.FD)), monitor.fd, self._wakeup.fileno()):
            poll.register(fd, select.POLLIN)
        beat: float | None = None
        while True:
            if beat is not None and beat <= time.monotonic():
                beat = time.monotonic() + self._heartbeat
                beaten = Beat(load=self._load() if self._load else {})
                self._told.append(encode_control(beaten))
            while self._told:
                try:
                    frames.send([self._told.popleft()])
                except zmq.Again:  # the connection has just ended, which its events will tell
                    self._told.clear()
            while (message := frames.receive()) is not None:
                self._received(decode_control(message[0]))
            if beat is None and self._heartbeat:
                beat = time.monotonic() + self._heartbeat
            if self._told:
                continue  # by a callback
            if self._closing:
                return ""
            wait = None if beat is None else max(0.0, beat - time.monotonic()) * 1000
            for fd, _ in poll.poll(wait):
                if fd == self._wakeup.fileno():
                    self._wakeup.clear()
                elif fd == monitor.fd:
                    while (event := monitor.next()) is not None:
                        reason = reason_of(event)
                        if reason:
                            return self._last_words(frames) or reason

    def _last_words(self, frames: Frames) -> str:
        """Take what came before the end of the connection: it may say why."""
        while (message := frames.receive()) is not None:
            self._received(decode_control(message[0]))
        return ""

    def _received(self, message: Control) -> None:
        if isinstance(message, Answer):
            self._settle(message.id, message.result, None)
        elif isinstance(message, Denied):
            self._settle(message.id, None, from_wire(message.code, message.fields))
        elif isinstance(message, Joined):
            self._heartbeat = message.heartbeat
            self._settle(_JOIN, message, None)
        else:
            self._on_message(message)

    def _settle(self, number: int, result: Any, error: PSError | None) -> None:
        """Give a request its answer; one that nobody waits for any more is dropped."""
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.result, pending.error = result, error
            pending.event.set()

    def _end(self, reason: str) -> None:
        """Nothing comes any more: tell everyone who waits."""
        joined = _JOIN not in self._pending
        with self._lock:
            self.lost = reason or "the link was closed"
            waiting = list(self._pending)
        for number in waiting:
            lost = self._lost_error()
            if not joined:
                lost = CoordinatorUnreachable(endpoint=self.endpoint, status=self.lost)
            self._settle(number, None, lost)
        if reason and joined:
            try:
                self._on_lost(reason)
            except Exception:  # noqa: BLE001 - the thread ends here, whatever it was
                _log.exception("after the link to the coordinator at %s was lost", self.endpoint)
