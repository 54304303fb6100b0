"""A task that holds a rank: the part of :mod:`sparkps.client.training` and :mod:`..worker` that
waits, told as a story.

It uses the shipped mailbox, and the shipped handles (:mod:`.hands`). What it says to the
coordinator, and when, follows :class:`sparkps.client.worker.Worker` line by line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparkps.client.mailbox import Mailbox
from sparkps.client.seat import Seat
from sparkps.client.worker import REPORT
from sparkps.consistency.policy import may_go, must_reach
from sparkps.errors import PSError, TokenLost
from sparkps.net.loopback import Network
from sparkps.spec import SessionSpec, TableInfo, View, parse_consistency
from sparkps.testing.simulation.hands import Hands
from sparkps.testing.simulation.history import History
from sparkps.testing.simulation.plan import Plan
from sparkps.testing.simulation.process import Process, Story, T
from sparkps.wire.messages import (
    Begin,
    Failed,
    Finish,
    GetView,
    Granted,
    Message,
    Ready,
    RegisterRank,
    Tick,
)

#: Markers that one read asks for.
_SAMPLE: Final = 8
#: Steps that what a task does before it finishes takes as long as, at most.
_FINISH: Final = 10


class _NotYet(Exception):
    """What a mailbox is asked for has not come."""


class PatientMailbox(Mailbox):
    """A mailbox that says so when it would wait."""

    def _wait(self, get: Callable[[], T | None], timeout: float | None, what: str) -> T:
        found = get()
        if found is None:
            self.check()
            raise _NotYet
        return found


class WorkerTask(Process):
    """A task of a rank."""

    def __init__(
        self,
        network: Network,
        plan: Plan,
        history: History,
        name: str,
        *,
        rank: int,
        session: SessionSpec,
        tables: dict[str, TableInfo],
        left: Callable[[WorkerTask], None],
    ) -> None:
        self.rank = rank
        self._left = left
        self._session, self._tables = session, tables
        self._mode, self._staleness = parse_consistency(session.consistency)
        self._barrier = self._mode == "bsp" or session.barrier_epochs
        self._mailbox = PatientMailbox(session.id)
        self._seat: Seat | None = None
        self._numbers: list[tuple[int, dict[str, Any]]] = []
        self._acknowledged = self._reported = 0
        self._reported_at = 0.0
        self._mailbox.on_slowest = self._slowest_moved
        self._stopped = False
        #: Whether the work of its rank is done, by it or by another.
        self.done = False
        super().__init__(network, plan, history, name, "worker")

    def heard(self, message: Message) -> None:
        """Put it where the story looks."""
        self._mailbox.put(message)

    def link_lost(self) -> None:
        """Whoever waits hears of it."""
        self._mailbox.lost("cut")

    def ended(self, error: PSError | None) -> None:
        """Tell a failure, as a task does, and leave; what it has sent lives on."""
        if error is not None and self._seat is not None and not self._mailbox.over:
            text = f"{type(error).__name__}: {error}"
            self.tell(Failed(self._session.id, self.rank, self._seat.token, b"", text, True))
        self.control.close()
        self._left(self)

    def mail(self, wait: Callable[..., T], *args: Any) -> Story[T]:
        """Wait for the coordinator's word."""
        while True:
            try:
                return wait(*args)
            except _NotYet:
                yield

    # --- the run

    def story(self) -> Story[None]:
        """Register, train, finish."""
        self.tell(RegisterRank(self._session.id, self.rank, self.name, 1, 0))
        granted = yield from self.mail(self._mailbox.wait_granted)
        self._take(granted)
        if not self.done:
            yield from self.mail(self._mailbox.wait_gang)
        while not self.done and self._seat is not None:
            try:
                yield from self._train(self._seat)
            except TokenLost:
                self.history.counts["tokens lost"] += 1
                granted = yield from self.mail(self._mailbox.take_granted, self._seat.token)
                self._take(granted)

    def _take(self, granted: Granted) -> None:
        self.history.note("{} is granted {}", self.name, granted)
        self._numbers.clear()
        self._acknowledged = self._reported = 0
        if granted.finished:
            self.done = True
        elif self._seat is None:
            self._seat = Seat(
                self._session.id,
                self.rank,
                granted.token,
                bsp=self._mode == "bsp",
                synchronous=False,
                staleness=self._staleness if self._mode == "ssp" else None,
            )
        else:
            self._seat.renew(granted.token)

    def _train(self, seat: Seat) -> Story[None]:
        batches = self.plan.batches[self.rank]
        self.tell(Ready(self._session.id, self.rank, seat.token, batches, batches, 7))
        begin = yield from self.mail(self._mailbox.wait_begin)
        hands = Hands(self, self._tables, seat)
        self._acknowledged = self._reported = begin.clock
        self._stopped = begin.stop
        seat.clock, seat.slowest = begin.clock, self._mailbox.slowest
        self.history.begins(self.rank, seat.clock)
        for epoch in range(0 if begin.stop else begin.epoch, 0 if begin.stop else self.plan.epochs):
            yield from self._epoch(epoch, begin, hands)
            if self._stopped:
                break
        yield from hands.settle()
        if self._numbers or seat.acknowledged > self._reported:
            self._report(seat, seat.acknowledged, waiting=False)
        yield from self.rest(_FINISH * self.plan.pace[self.rank] * self.network.random.random())
        self.tell(Finish(self._session.id, self.rank, seat.token))
        # A Finish that is lost with its connection must not look like the end of the work: the
        # answer to a question behind it, on the same connection, says that it has come.
        yield from self.ask(GetView, View)
        self._mailbox.check_token()
        self.done = True

    def _epoch(self, epoch: int, begin: Begin, hands: Hands) -> Story[None]:
        seat, every = hands.seat, self._session.clock_every
        end = (epoch + 1) * begin.clocks
        first = seat.clock - epoch * begin.clocks if every == "batch" else 0
        last = self.plan.batches[self.rank] - 1
        for number in range(first, last + 1):
            yield from self._step(hands, epoch, number)
            if every == "batch" and number < last:
                yield from self._end_clock(hands, {"ticks": 1}, seat.clock + 1)
        numbers = {"ticks": 1} if first <= last else {}
        yield from self._end_clock(hands, numbers, end, barrier=self._barrier)

    def _step(self, hands: Hands, epoch: int, batch: int) -> Story[None]:
        random = self.network.random
        step = self.plan.steps[self.rank, epoch, batch]
        clock = hands.seat.clock
        known = [m for w in self.history.writes if w.clock <= clock + 1 for m in w.markers]
        sample = random.sample(known, min(_SAMPLE, len(known)))
        yield from hands.read(f"rank {self.rank}", sample, clock)
        pulled = yield from hands.pull_weights()
        yield from self.rest(self.plan.pace[self.rank] * random.random())
        for write in step.counts:
            hands.write(write)
            yield from hands.room()
        for change in step.weights:
            hands.change(change, pulled)
            yield from hands.room()

    # --- the end of a clock

    def _end_clock(
        self, hands: Hands, numbers: dict[str, Any], after: int, *, barrier: bool = False
    ) -> Story[None]:
        seat, mailbox = hands.seat, self._mailbox
        if numbers:
            self._numbers.append((seat.clock, numbers))
        mailbox.check()
        if self._mode == "bsp" or barrier:
            yield from hands.settle()
            self._report(seat, after, waiting=True)
            released = yield from self.mail(mailbox.wait_released, after)
            self.history.released(self.name, released)
            self._stopped = released.stop
            seat.clock = max(after, released.clock)
        else:
            if self._mode == "ssp":
                yield from hands.settle()
            seat.raise_error()
            seat.clock = after
            self._report_if_due(seat)
            if not may_go(self._mode, self._staleness, after, mailbox.slowest):
                self.history.counts["held back"] += 1
                self._report(seat, after, waiting=True)
                needed = must_reach(self._mode, self._staleness, after)
                yield from self.mail(mailbox.wait_slowest, needed)
            seat.slowest = mailbox.slowest
        if seat.clock < self.plan.clocks.total:
            self.history.begins(self.rank, seat.clock)

    def _report_if_due(self, seat: Seat) -> None:
        self._acknowledged = acknowledged = seat.acknowledged
        due = self.network.now >= self._reported_at + REPORT
        if acknowledged > self._reported and (self._reported <= self._mailbox.slowest or due):
            self._report(seat, acknowledged, waiting=False)

    def _slowest_moved(self) -> None:
        reported, seat = self._reported, self._seat
        if seat is not None and reported < self._acknowledged and reported <= self._mailbox.slowest:
            self._report(seat, self._acknowledged, waiting=False)

    def _report(self, seat: Seat, clock: int, *, waiting: bool) -> None:
        numbers = [pair for pair in self._numbers if pair[0] < clock]
        self._numbers = self._numbers[len(numbers) :]
        self.history.reports(self.rank, clock)
        self.tell(Tick(self._session.id, seat.rank, seat.token, clock, numbers, waiting))
        self._reported, self._reported_at = max(self._reported, clock), self.network.now
