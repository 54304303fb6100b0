"""The poll loop of a server or a coordinator process.

Everything runs in the one thread that calls :meth:`Loop.run`: messages of routers, timers,
descriptors (the leash on stdin), and calls that other threads post. Latency is what it is made
for: an empty round trip is a headline figure.

Rules:

* Routers are served in the order in which they were given: in every round the first is read before
  the second, up to ``batch`` messages each, so that control traffic never waits behind more than
  one batch of data.
* A router is touched only when its descriptor said so, or when it was used since it was last found
  empty (libzmq's descriptors are edge-triggered). An idle loop sleeps in ``poll`` until a
  descriptor or a timer; it never spins.
* The time is read once per round, and is what timers and handlers get.
* A router whose backlog passes its limit is not read until its peers have taken some of it
  (back-pressure).
* A router that has strangers, or peers to cut, is told the time; what comes from a peer that was
  cut is dropped.
* An exception from a handler ends the loop: handlers are shells around cores that answer with
  errors, so one that raises is a bug, and a process that goes on after it would serve from a
  broken state.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from sparkps.net.serve import Router
from sparkps.net.strangers import LOOK
from sparkps.net.wakeup import Wakeup
from sparkps.wire.effects import Buffer

OnMessage = Callable[[bytes, list[Buffer], float], object]
OnGone = Callable[[bytes, float], object]

#: Messages of one router before the next is looked at.
BATCH: Final = 16
#: Bytes of unsent replies beyond which a router is not read: eight clients' windows.
BACKLOG: Final = 256 << 20
#: How soon a router is looked at again that has something unfinished, in seconds.
_SOON: Final = 0.001
#: How soon kept messages are offered again, in seconds. Mostly the descriptor says when; but an
#: offer to one peer may swallow the edge that says that another one takes more.
_LATER: Final = 0.005


class Timer:
    """Calls back once at a time; made by :meth:`Loop.timer`."""

    def __init__(self, loop: Loop, on_time: Callable[[float], object]) -> None:
        self._loop = loop
        self.on_time = on_time
        self.when: float | None = None

    def set(self, when: float | None) -> None:
        """Call back when the loop's clock has reached ``when``; None turns the timer off."""
        self.when = when
        self._loop.reschedule()


class _Served:
    """A router and what the loop knows of it."""

    __slots__ = ("batch", "events", "limit", "on_gone", "on_message", "router")

    def __init__(
        self, router: Router, on_message: OnMessage, on_gone: OnGone, batch: int, limit: int
    ) -> None:
        self.router = router
        self.on_message = on_message
        self.on_gone = on_gone
        self.batch = batch
        self.limit = limit
        self.events = True

    def has_messages(self) -> None:
        self.router.dirty = True

    def has_events(self) -> None:
        self.events = True


class Loop:
    """See the module.

    Parameters
    ----------
    clock
        Seconds that never go backwards.

    Attributes
    ----------
    now : float
        The time of this round.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.now = clock()
        self._poll = select.poll()
        self._served: list[_Served] = []
        self._watched: dict[int, Callable[[], object]] = {}
        self._timers: list[Timer] = []
        self._next: float | None = None
        self._posted: deque[Callable[[], object]] = deque()
        self._wakeup = Wakeup()
        self._stopped = False
        self.watch(self._wakeup.fileno(), self._run_posted)

    def serve(
        self,
        router: Router,
        on_message: OnMessage,
        on_gone: OnGone,
        *,
        batch: int = BATCH,
        limit: int = BACKLOG,
    ) -> None:
        """Read a router: ``on_message(peer, frames, now)`` for each message, ``on_gone(peer,
        now)`` for each peer that left, after its last message. Handlers answer by ``router.send``.
        A router that is given first is read first."""
        served = _Served(router, on_message, on_gone, batch, limit)
        self._served.append(served)
        self.watch(router.fd, served.has_messages)
        self.watch(router.events_fd, served.has_events)

    def watch(self, fd: int, on_readable: Callable[[], object]) -> None:
        """Call back in every round in which the descriptor is readable, at its end, or broken."""
        self._watched[fd] = on_readable
        self._poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor; do it before it is closed."""
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def timer(self, on_time: Callable[[float], object]) -> Timer:
        """A timer that is off; ``on_time(now)`` may set it again."""
        timer = Timer(self, on_time)
        self._timers.append(timer)
        return timer

    def reschedule(self) -> None:
        """A timer has changed."""
        self._next = min(
            (timer.when for timer in self._timers if timer.when is not None), default=None
        )

    def post(self, call: Callable[[], object]) -> None:
        """Run ``call`` in the loop's thread; from any thread, in order."""
        self._posted.append(call)
        self._wakeup.set()

    def stop(self) -> None:
        """Let :meth:`run` return after this round; from the loop's own thread (others post it)."""
        self._stopped = True

    def run(self) -> None:
        """Serve until :meth:`stop`."""
        poll, watched, served = self._poll.poll, self._watched, self._served
        while not self._stopped:
            ready = poll(self._timeout())
            self.now = self._clock()
            for fd, _ in ready:
                if fd in watched:
                    watched[fd]()
            if self._next is not None and self._next <= self.now:
                self._run_timers()
            for each in served:
                if each.router.dirty or each.router.flushing:
                    self._read(each)
                if each.router.watching:
                    each.router.look(self.now)
                # Receiving and looking read events too, and swallow the edge that tells of them.
                if each.events or each.router.ending:
                    self._tell_gone(each)

    def close(self) -> None:
        """Give the loop's own descriptors back. The routers are their owner's."""
        self._wakeup.close()

    def _timeout(self) -> float | None:
        """Milliseconds that poll may sleep; None for as long as it takes."""
        wait: float | None = None
        for each in self._served:
            if each.router.dirty:
                return 0
            if each.events:
                wait = _SOON
            elif each.router.flushing:
                wait = _LATER if wait is None else wait
            elif each.router.watching:
                wait = LOOK if wait is None else wait
        if self._next is not None:
            until = max(0.0, self._next - self._clock())
            wait = until if wait is None else min(wait, until)
        return None if wait is None else wait * 1000  # poll rounds up: a timer is never early

    def _read(self, served: _Served) -> None:
        router, on_message, now = served.router, served.on_message, self.now
        if router.flushing:
            router.flush()
            if router.backlog > served.limit:
                router.dirty = False  # until a peer has read
                return
        receive = router.receive
        for _ in range(served.batch):
            message = receive()
            if message is None:
                if router.flushing:
                    router.flush()  # receiving may have swallowed the edge that a peer takes more
                return
            if not router.deaf or message[0] not in router.deaf:
                on_message(message[0], message[1], now)
            if self._stopped or router.backlog > served.limit:
                return

    def _tell_gone(self, served: _Served) -> None:
        for peer in served.router.gone():
            served.on_gone(peer, self.now)
        served.events = served.router.ending

    def _run_timers(self) -> None:
        for timer in list(self._timers):
            if timer.when is not None and timer.when <= self.now:
                timer.when = None
                timer.on_time(self.now)
        self.reschedule()

    def _run_posted(self) -> None:
        self._wakeup.clear()
        for _ in range(len(self._posted)):
            self._posted.popleft()()
