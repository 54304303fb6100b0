"""What must hold, checked as it happens.

The history knows the plan, and notes what every process learns. Its rules (SEMANTICS §1, §2, §4,
§5), each under its name:

* *once*: each marker is 0 or 1, in every read, and in every table after every step: no write is
  applied twice to a partition.
* *kept*: a write whose acknowledgement has come is in every read that is *sent* later, but under
  bsp, where it waits for its seal, and in an ssp worker's cache; and in the tables at the end. What
  a reader has seen it sees ever after.
* *sealed*: in bsp, a worker's read at clock c shows exactly the writes of all clocks below c.
* *bound*: in ssp:s, a worker's read at clock c shows all writes of clocks <= c - s - 1.
* *bits*: in bsp, the tables are in the end what a sequential reference computes, to the bit.
* *clock*: a rank begins clock c only when all writes that the consistency asks for are
  acknowledged, and reports a clock only when all its writes below it are. The clocks at which a
  rank is granted, those that are released and those that are published never go back.
* *epoch*: each epoch ends once, in order, with the sums of its ticks.
* *token*: tokens only grow; one is granted when every server refuses the one before, and nobody
  else is served from then on.
* *ledger*: a ledger never goes back; what is applied was accepted, and in bsp sealed.
* *session*: when its end is confirmed, every server refuses a session; then nothing of it is left,
  and no table changes any more.
* *end*: what is begun comes to an end, and a run without a reason to fail does not.
* *crash*: no core raises what it should not.

Whatever breaks one raises :class:`Violation` out of the step in which it happens.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Literal

from sparkps.consistency.clocks import NEVER
from sparkps.consistency.policy import may_go
from sparkps.spec import parse_consistency
from sparkps.testing.simulation.plan import Plan, Write
from sparkps.testing.simulation.story import tell
from sparkps.wire.messages import EpochEnded, Granted, Message, Released, Slowest

Rule = Literal[
    "once",
    "kept",
    "sealed",
    "bound",
    "bits",
    "clock",
    "epoch",
    "token",
    "ledger",
    "session",
    "end",
    "crash",
]

#: Events that are remembered for a violation.
_REMEMBERED: Final = 300


class Violation(Exception):
    """An invariant does not hold.

    Attributes
    ----------
    plan : Plan
        What was run.
    rule : str
        The invariant's name.
    what : str
        How it is broken.
    at : float
        Fake time.
    events : list of (float, str)
        The last things that happened before.
    """

    def __init__(
        self, plan: Plan, rule: Rule, what: str, at: float, events: list[tuple[float, str]]
    ) -> None:
        super().__init__(plan, rule, what, at, events)
        self.plan, self.rule, self.what, self.at, self.events = plan, rule, what, at, events

    def __str__(self) -> str:
        return tell(self.plan, self.rule, self.what, self.at, self.events)


class History:
    """See the module.

    Attributes
    ----------
    counts : Counter
        How often things happened that a simulation must contain.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        #: Connections lost since the client has heard anything, by the two nodes.
        self.losses: Counter[frozenset[Hashable]] = Counter()
        self.mode, self.staleness = parse_consistency(plan.consistency)
        self.writes = plan.all_writes()
        self._write_of = {marker: write for write in self.writes for marker in write.markers}
        self._acked: set[Write] = set()
        #: What the simulation wants to look at when a rank is granted.
        self.at_grant: Callable[[Granted], None] = lambda _: None
        #: Writes of each rank and clock that are not acknowledged yet.
        self._open: dict[int, Counter[int]] = {rank: Counter() for rank in range(plan.size + 1)}
        for write in self.writes:
            self._open[write.rank][write.clock] += 1
        self._seen: defaultdict[str, set[int]] = defaultdict(set)
        self._tokens: dict[int, int] = {}
        self._granted: dict[int, int] = {}
        self._released: dict[str, int] = {}
        self._slowest = 0
        self._epochs = 0
        self._events: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=_REMEMBERED)

    def note(self, what: str, *values: Any) -> None:
        """Remember an event for the story; ``what`` is a format."""
        self._events.append((self.now, what, values))

    def fail(self, rule: Rule, what: str) -> Violation:
        """The violation to raise."""
        events = [(at, text.format(*values)) for at, text, values in self._events]
        return Violation(self.plan, rule, what, self.now, events)

    def require(self, good: object, rule: Rule, what: str) -> None:
        """Raise unless ``good``."""
        if not good:
            raise self.fail(rule, what)

    # --- writes and reads

    def acknowledged(self, write: Write) -> None:
        """A worker has heard that all slices of a write were taken."""
        if write in self._acked:
            return
        self._acked.add(write)
        open_ = self._open[write.rank]
        open_[write.clock] -= 1
        if not open_[write.clock]:
            del open_[write.clock]

    def write_of(self, marker: int) -> Write:
        """The write that a marker belongs to."""
        return self._write_of[marker]

    def floor(self, keys: Iterable[int]) -> list[bool]:
        """Which of these markers are acknowledged: asked when a read of them is sent."""
        return [self._write_of[key] in self._acked for key in keys]

    def read(
        self,
        who: str,
        keys: Sequence[int],
        values: Sequence[int],
        floor: Sequence[bool],
        clock: int | None = None,
    ) -> None:
        """Markers were read, by a worker at a clock or by a reader."""
        self.counts["reads"] += 1
        for key, value, acked in zip(keys, values, floor, strict=True):
            write = self._write_of[key]
            where = f"{who} at clock {clock} reads {value} of {write}"
            self.require(value in (0, 1), "once", f"{where}: applied more than once")
            if clock is None:
                seen = key in self._seen[who]
                self.require(value or not seen, "kept", f"{where}: it was there before")
                if value:
                    self._seen[who].add(key)
            if self.mode == "bsp":
                if clock is not None:
                    sealed = self._visible(write, clock)
                    self.require(value == sealed, "sealed", f"{where}: it should be {int(sealed)}")
                continue
            if acked and (clock is None or self.mode == "asp"):
                self.require(value, "kept", f"{where}: it was acknowledged before")
            if self.mode == "ssp" and clock is not None and write.rank < self.plan.size:
                bound = write.clock <= clock - self.staleness - 1
                what = f"{where}: older than the bound of staleness"
                self.require(value or not bound, "bound", what)

    def _visible(self, write: Write, clock: int) -> bool:
        # The driver writes at the end of an epoch, before its first clock begins.
        return write.clock <= clock if write.rank == self.plan.size else write.clock < clock

    def final(self, found: dict[int, int], *, complete: bool) -> None:
        """The whole table, after the run."""
        if complete:
            expected: Counter[int] = Counter()
            for write in self.writes:
                for key, value in zip(write.keys, write.values, strict=True):
                    expected[key] += value
            for key in sorted(expected.keys() | found.keys()):
                self.require(
                    found.get(key, 0) == expected[key],
                    "once" if found.get(key, 0) > expected[key] else "kept",
                    f"in the end key {key} is {found.get(key, 0)} and should be {expected[key]}, "
                    f"of {self._write_of.get(key)}",
                )
            return
        for key, value in found.items():
            write_of = self._write_of.get(key)
            self.require(key < 0 or value == 1, "once", f"in the end {write_of} is {value}")
        for write in () if self.mode == "bsp" else self._acked:
            missing = [key for key in write.markers if key not in found]
            what = f"in the end {write} lacks {missing}: it was acknowledged"
            self.require(not missing, "kept", what)

    # --- clocks

    def reached(self, rank: int) -> int:
        """The first clock of a rank with a write that is not acknowledged."""
        return min(self._open[rank], default=NEVER)

    def begins(self, rank: int, clock: int) -> None:
        """A worker begins a clock."""
        slowest = min(self.reached(other) for other in range(self.plan.size))
        self.counts["lead"] = max(self.counts["lead"], min(clock, clock - min(slowest, clock)))
        self.require(
            may_go(self.mode, self.staleness, clock, slowest),
            "clock",
            f"rank {rank} begins clock {clock}, while writes of clock {slowest} are under way",
        )

    def reports(self, rank: int, clock: int) -> None:
        """A worker says that it has acknowledged the clocks below."""
        self.require(
            self.reached(rank) >= clock,
            "clock",
            f"rank {rank} reports {clock} too early: {self._open[rank]}",
        )

    def told(self, message: Message) -> None:
        """The coordinator tells somebody something."""
        if isinstance(message, Granted) and not message.finished:
            new = message.token > self._tokens.get(message.rank, 0)
            self.require(new, "token", f"rank {message.rank}: {message.token} is not new")
            self._tokens[message.rank] = message.token
            self.require(
                self._granted.get(message.rank, 0) <= message.clock <= self.reached(message.rank),
                "clock",
                f"rank {message.rank} is granted at {message.clock}",
            )
            self._granted[message.rank] = message.clock
            self.at_grant(message)
            self.counts["tokens passed"] += message.attempt > 0
        elif isinstance(message, Slowest):
            slowest = min(self.reached(rank) for rank in range(self.plan.size))
            back = message.clock < self._slowest
            self.require(not back, "clock", f"the slowest clock goes back: {message}")
            self.require(message.clock <= slowest, "clock", f"{message}, {slowest} is true")
            self._slowest = message.clock
        elif isinstance(message, EpochEnded):
            self._epoch(message)

    def released(self, who: str, message: Released) -> None:
        """A worker passes a barrier."""
        back = message.clock <= self._released.get(who, 0)
        self.require(not back, "clock", f"{who} is released again: {message}")
        self._released[who] = message.clock
        if self.mode == "bsp":
            ticks = self._ticks(message.clock - 1)
            told = message.sums.get("ticks", 0)
            self.require(told == ticks, "epoch", f"{message}: {ticks} ticks")

    def _ticks(self, clock: int) -> int:
        """How many ranks end a clock with numbers."""
        within = self.plan.clocks.within(clock)
        return sum(within < self.plan.own(rank) for rank in range(self.plan.size))

    def _epoch(self, message: EpochEnded) -> None:
        next_ = message.epoch == self._epochs
        self.require(next_, "epoch", f"epoch {self._epochs} is next: {message}")
        self._epochs += 1
        clocks = self.plan.clocks
        first, end = clocks.first(message.epoch), clocks.end(message.epoch)
        ticks = sum(self._ticks(clock) for clock in range(first, end))
        told = message.metrics.get("ticks", 0)
        self.require(told == ticks, "epoch", f"{message}: {ticks} ticks")
