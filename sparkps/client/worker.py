"""A worker: what a step sees of its run, and the end of a clock.

Rules (SEMANTICS §5):

* ``worker.clock`` counts the clocks that this worker has completed. A tick ends one.
* bsp: a tick waits until the clock's writes are acknowledged, then until all workers have come
  this far; it returns the sums of all workers' numbers.
* asp: a tick returns at once. The acknowledged clock is reported as it moves: merged, at most
  every 20 ms.
* ssp:s: a tick waits for the acknowledgement of the clock's writes, which the next pull would
  stand behind anyway, and while more than s clocks lie between this worker and the slowest. The
  slowest report at once, since others may be waiting for them, and so does one that is about to
  wait; the others as in asp. One that becomes the slowest while it computes is reported by the
  link's thread.
* An error of a write that nobody waited for rises at the next tick.
* ``worker.rng`` is seeded by the run's seed, the rank, the epoch and the batch, and is the only
  randomness a step may use: a repeated attempt draws the same.

Not here: the loop over epochs and batches (:mod:`.training`), messages from the coordinator
(:mod:`.mailbox`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from sparkps.client import current
from sparkps.client.mailbox import Mailbox
from sparkps.client.seat import Seat
from sparkps.client.shell import Client
from sparkps.client.table import Table
from sparkps.consistency.policy import may_go, must_reach
from sparkps.errors import InvalidArgument, NotInRun, WrongType
from sparkps.spec import SessionSpec, TableInfo, parse_consistency, plain
from sparkps.wire.messages import Begin, Tick

#: Seconds between two reports of a worker that holds nobody back; a thousand workers then send
#: 50,000 ticks a second at most, merged.
REPORT: Final = 0.02
#: What a row of the history has whatever the workers say.
HISTORY: Final = frozenset({"epoch", "seconds"})


def current_worker() -> Worker | None:
    """Return the worker of this thread, or the only one of this process."""
    entry = current.entry()
    worker: Worker | None = None if entry is None else entry[1]
    return worker


class Worker:
    """What a step sees of its run.

    Attributes
    ----------
    rank, size : int
        This worker's number, and how many there are.
    attempt : int
        How many tokens of this rank there were before.
    epoch : int
        The pass over the data, from 0.
    clock : int
        How many clocks this worker has completed.
    clock_rows : int
        Rows of all workers in this clock in bsp (of the whole epoch, with a clock per epoch or
        manual clocks), of this worker's batch otherwise; at least 1. 1 in validation.
    full_clock_rows : int
        ``clock_rows`` of the fullest clock of an epoch, its first. A gradient that is divided by it
        gives every row of an epoch the same weight, those of a short last batch too.
    validating : bool
        Whether the batch at hand is for validation.
    params : dict
        What ``on_epoch`` last returned.
    state : dict
        Small plain values that a repeated attempt gets back; sent with each tick.
    last : dict
        The sums of the last completed clock, in bsp.
    """

    def __init__(
        self,
        client: Client,
        seat: Seat,
        mailbox: Mailbox,
        spec: SessionSpec,
        tell: Callable[[Tick], None],
    ) -> None:
        self.client = client
        self.rank, self.size, self.attempt = seat.rank, spec.size, 0
        self.epoch = 0
        self.clock_rows = 1
        self.full_clock_rows = 1
        self.validating = False
        self.params: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.stopped = False
        self._batch = 0
        self._clock = 0
        self._rng: np.random.Generator | None = None
        self._seat, self._mailbox, self._spec, self._tell = seat, mailbox, spec, tell
        self._mode, self._staleness = parse_consistency(spec.consistency)
        self._tables: dict[str, Table] = {}
        #: The state at the end of each clock that is not reported yet, by the clock after.
        self._states: dict[int, bytes] = {}
        self._numbers: list[tuple[int, dict[str, Any]]] = []
        #: What follows is reported by this thread or the link's.
        self._lock = threading.Lock()
        self._acknowledged = 0
        self._reported = 0
        self._reported_at = 0.0
        mailbox.on_slowest = self._slowest_moved

    def __repr__(self) -> str:
        return f"<Worker {self.rank} of {self.size}, epoch {self.epoch}, clock {self.clock}>"

    @property
    def clock(self) -> int:
        """How many clocks this worker has completed."""
        return self._clock

    @property
    def cache_hits(self) -> int:
        """Rows that were taken from the cache instead of a server, in an ssp run."""
        return self._seat.hits

    @property
    def rng(self) -> np.random.Generator:
        """The randomness of this batch."""
        if self._rng is None:
            # SeedSequence takes no negative numbers.
            seed = self._spec.seed % 2**64
            self._rng = np.random.default_rng([seed, self.rank, self.epoch, self._batch])
        return self._rng

    def table(self, name: str) -> Table:
        """Return a handle of a table that acts for this worker.

        Raises
        ------
        TableNotFound
            There is none of that name.
        """
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self.bind(self.client.find_table(name))
        return table

    def bind(self, info: TableInfo) -> Table:
        """Return a handle of a known table that acts for this worker."""
        return Table(self.client, info, self._seat)

    def pull(self, keys: Mapping[Any, Any]) -> dict[Any, Any]:
        """Pull from several tables in one round trip.

        Parameters
        ----------
        keys : dict
            Keys by table, which is a handle or a name.

        Returns
        -------
        dict
            The rows by table, under what it was asked by.
        """
        pending = {
            asked: (self.table(asked) if isinstance(asked, str) else asked).pull(wanted, wait=False)
            for asked, wanted in keys.items()
        }
        return {asked: handle.wait() for asked, handle in pending.items()}

    def tick(self, **numbers: Any) -> dict[str, Any]:
        """End a clock; with ``clock_every="manual"``, since otherwise clocks end by themselves.

        Parameters
        ----------
        **numbers
            To be summed over all workers.

        Returns
        -------
        dict
            In bsp, the sums. Otherwise empty.

        Raises
        ------
        InvalidArgument
            Clocks end by themselves in this run.
        PSError
            Of a write that nobody waited for; the end of the run.
        """
        every = self._spec.clock_every
        if every != "manual":
            raise InvalidArgument(
                name="clock_every",
                value=every,
                reason='clocks end by themselves; a step that ticks needs clock_every="manual"',
            )
        return self.end_clock(numbers)

    # --- for the training loop

    def end_clock(
        self,
        numbers: Mapping[str, Any],
        *,
        to: int | None = None,
        barrier: bool = False,
        epoch_end: bool = False,
    ) -> dict[str, Any]:
        """End a clock, or all up to ``to``.

        Parameters
        ----------
        numbers
            Of the clock that ends; kept under its number.
        to
            The clock to go to, for a worker whose batches have run out; by default the next.
        barrier
            Wait for all workers, whatever the mode.
        epoch_end
            Manual clocks: with this clock the epoch ends.
        """
        mailbox = self._mailbox
        if self._seat.denied:
            raise NotInRun(table="(any)", what=f"tick {self._seat.denied}")
        clean = as_numbers(numbers)
        if clean:
            with self._lock:
                self._numbers.append((self._clock, clean))
        after = self._clock + 1 if to is None else to
        with self._lock:
            self._states[after] = as_state(self.state)
        mailbox.check()
        if self._mode == "bsp" or barrier:
            self.client.settle(self._seat)
            with self._lock:
                self._report(after, waiting=True, epoch_end=epoch_end)
            released = mailbox.wait_released(after, at_least=epoch_end)
            self.last = dict(released.sums)
            self.stopped = released.stop
            if released.params is not None:
                self.params = dict(released.params)
            self._go_to(max(after, released.clock))
            self._seat.meet(self._clock)
            return dict(self.last)
        if self._mode == "ssp":
            self.client.settle(self._seat)
        self._seat.raise_error()
        self._go_to(after)
        self._note_acknowledged()
        if not may_go(self._mode, self._staleness, after, mailbox.slowest):
            with self._lock:
                self._report(after, waiting=True)
            mailbox.wait_slowest(must_reach(self._mode, self._staleness, after))
        self._seat.slowest = mailbox.slowest
        return {}

    def _note_acknowledged(self) -> None:
        """Report how far the writes are acknowledged, if it is time."""
        if self._seat.outstanding:
            self.client.glance()
        with self._lock:
            self._acknowledged = self._seat.acknowledged
            if self._acknowledged > self._reported and (
                self._reported <= self._mailbox.slowest
                or time.monotonic() >= self._reported_at + REPORT
            ):
                self._report(self._acknowledged, waiting=False)

    def _slowest_moved(self) -> None:
        """In the link's thread: this worker may have become the slowest while it computes."""
        with self._lock:
            if self._reported < self._acknowledged and self._reported <= self._mailbox.slowest:
                self._report(self._acknowledged, waiting=False)

    def finish_reports(self) -> None:
        """Wait until everything is acknowledged, and tell it."""
        self.client.settle(self._seat)
        with self._lock:
            if self._numbers or self._seat.acknowledged > self._reported:
                self._report(self._seat.acknowledged, waiting=False)

    def _report(self, clock: int, *, waiting: bool, epoch_end: bool = False) -> None:
        seat = self._seat
        numbers = [pair for pair in self._numbers if pair[0] < clock or epoch_end]
        self._numbers = self._numbers[len(numbers) :]
        state = b""
        for end in [end for end in self._states if end <= clock]:
            state = self._states.pop(end)
        self._tell(
            Tick(self._spec.id, seat.rank, seat.token, clock, numbers, waiting, epoch_end, state)
        )
        self._reported, self._reported_at = max(self._reported, clock), time.monotonic()

    def resume(self, attempt: int, state: bytes, last: Mapping[str, Any]) -> None:
        """Take over from the attempt before."""
        self.attempt = attempt
        self.state = msgspec.msgpack.decode(state) if state else {}
        self.last = dict(last)
        with self._lock:
            self._numbers.clear()
            self._states.clear()
            self._acknowledged = self._reported = 0
        self._go_to(0)  # a read before training seals nothing

    def begin(self, begin: Begin) -> None:
        """Start training at a clock that is open."""
        with self._lock:
            self._acknowledged = self._reported = begin.clock
        self.params, self.stopped = dict(begin.params), begin.stop
        self.last = dict(begin.last) or self.last
        self.at(begin.epoch, 0, 1)
        self._go_to(begin.clock)
        self._seat.slowest = self._mailbox.slowest

    def at(self, epoch: int, batch: int, rows: int, *, validating: bool = False) -> None:
        """The next batch begins."""
        self.epoch, self._batch, self._rng = epoch, batch, None
        self.validating = validating
        self.clock_rows = max(1, rows)

    def _go_to(self, clock: int) -> None:
        self._clock = self._seat.clock = clock


def as_numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers as Python's own; a whole number of more than 64 bits goes on as a float.

    Raises
    ------
    WrongType
        Something is no number, or its name no string.
    InvalidArgument
        Its name is one that every row of the history has already.
    """
    for name in numbers:
        if name in HISTORY:
            reason = "every row of the history has that already; choose another name"
            raise InvalidArgument(name=name, value=numbers[name], reason=reason)
        if not isinstance(name, str):
            raise WrongType(
                what=f"the name {name!r} of a number", got=type(name).__name__, expected="a string"
            )
    return {name: _as_number(name, number) for name, number in numbers.items()}


def _as_number(name: str, number: Any) -> Any:
    if isinstance(number, (list, tuple)):
        return [_as_number(name, item) for item in number]
    if getattr(number, "ndim", 0):
        return [_as_number(name, item) for item in np.asarray(number).tolist()]
    value = plain(number)
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        try:
            value = float(value)
        except OverflowError:
            value = math.inf if value > 0 else -math.inf
    if not isinstance(value, (int, float)):
        raise WrongType(
            what=f"the number {name!r} of a tick",
            got=type(number).__name__,
            expected="a whole number, a float, or a list of them",
        )
    return value


def as_state(state: Mapping[str, Any]) -> bytes:
    """Return a worker's state as it travels.

    Raises
    ------
    WrongType
        It holds something that is not plain.
    """
    if not state:
        return b""
    try:
        return msgspec.msgpack.encode(state, enc_hook=plain)
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        raise WrongType(
            what="worker.state",
            got=f"something else ({error})",
            expected="numbers, strings, bytes, and lists and dicts of them",
        ) from None


def as_params(params: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what ``on_epoch`` has returned as the workers will see it.

    Raises
    ------
    WrongType
        It holds something that does not travel.
    """
    try:
        data = msgspec.msgpack.encode(params, enc_hook=plain)
        return msgspec.msgpack.decode(data, type=dict[str, Any])
    except (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise WrongType(
            what="the result of on_epoch",
            got=f"a dict with something else in it ({error})",
            expected='"stop", None, or names with numbers, strings, bytes, lists and dicts of them',
        ) from None


def add_numbers(sums: dict[str, Any], numbers: Mapping[str, Any] | None) -> None:
    """Add a batch's numbers to sums, in place; lists element by element."""
    for name, number in as_numbers(numbers or {}).items():
        before = sums.get(name)
        if before is None:
            sums[name] = number
        elif isinstance(number, list) and isinstance(before, list) and len(number) == len(before):
            sums[name] = [a + b for a, b in zip(before, number, strict=True)]
        elif isinstance(number, list) or isinstance(before, list):
            raise WrongType(
                what=f"the number {name!r}",
                got="of another length than before",
                expected="one length for all batches",
            )
        else:
            sums[name] = before + number
