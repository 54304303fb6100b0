"""What must hold, checked as it happens.

The history knows the plan, and notes what every process learns. Its rules (SEMANTICS §1, §2, §5):

* Each marker is 0 or 1 in every read: no write is applied twice to a partition.
* A write whose acknowledgement has come is in every read that is *sent* later, but under bsp, where
  it waits for its seal, and in an ssp worker's cache.
* bsp: a worker's read at clock c shows exactly the writes of all clocks below c.
* ssp:s: a worker's read at clock c shows all writes of clocks <= c - s - 1.
* What a reader has seen it sees ever after.
* A rank begins clock c only when all writes that the consistency asks for are acknowledged, and
  reports a clock only when all its writes below it are.
* A ledger never goes back; what is applied was accepted; a closed session has none, and changes no
  table any more.
* Tokens only grow; the clocks at which a rank is granted, those that are released and those that
  are published never go back; each epoch ends once, in order, with the sums of its ticks.

Whatever breaks one raises :class:`Violation` out of the step in which it happens.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sparkps.consistency.clocks import NEVER
from sparkps.consistency.policy import may_go
from sparkps.spec import parse_consistency
from sparkps.testing.simulation.plan import Plan, Write
from sparkps.wire.messages import EpochEnded, Granted, Message, Released, Slowest

#: Events that a violation tells of.
_STORY: Final = 60


class Violation(Exception):
    """An invariant does not hold: what, when, and the last things that happened."""


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
        self.mode, self.staleness = parse_consistency(plan.consistency)
        self.writes = plan.writes()
        self._write_of = {marker: write for write in self.writes for marker in write.markers}
        self._acked: set[Write] = set()
        #: Writes of each rank and clock that are not acknowledged yet.
        self._open: dict[int, Counter[int]] = {rank: Counter() for rank in range(plan.size + 1)}
        for write in self.writes:
            self._open[write.rank][write.clock] += 1
        self._seen: defaultdict[str, set[int]] = defaultdict(set)
        self._tokens = 0
        self._granted: dict[int, int] = {}
        self._released: dict[str, int] = {}
        self._slowest = 0
        self._epochs = 0
        self._story: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=_STORY)

    def note(self, what: str, *values: Any) -> None:
        """Remember an event for the story; ``what`` is a format."""
        self._story.append((self.now, what, values))

    def fail(self, what: str) -> Violation:
        """The violation to raise."""
        story = "\n".join(f"{at:.6f} {text.format(*values)}" for at, text, values in self._story)
        return Violation(f"{self.plan}\nat {self.now:.6f}: {what}. Before it:\n{story}")

    def require(self, good: object, what: str) -> None:
        """Raise unless ``good``."""
        if not good:
            raise self.fail(what)

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
            self.require(value in (0, 1), f"{where}: applied more than once")
            if clock is None:
                self.require(value or key not in self._seen[who], f"{where}: it was there before")
                if value:
                    self._seen[who].add(key)
            if self.mode == "bsp":
                if clock is not None:
                    sealed = self._visible(write, clock)
                    self.require(value == sealed, f"{where}: it should be {int(sealed)}")
                continue
            if acked and (clock is None or self.mode == "asp"):
                self.require(value, f"{where}: it was acknowledged before")
            if self.mode == "ssp" and clock is not None and write.rank < self.plan.size:
                bound = write.clock <= clock - self.staleness - 1
                self.require(value or not bound, f"{where}: older than the bound of staleness")

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
                    f"in the end key {key} is {found.get(key, 0)} and should be {expected[key]}, "
                    f"of {self._write_of.get(key)}",
                )
            return
        for key, value in found.items():
            self.require(key < 0 or value == 1, f"in the end {self._write_of.get(key)} is {value}")
        for write in () if self.mode == "bsp" else self._acked:
            missing = [key for key in write.markers if key not in found]
            self.require(not missing, f"in the end {write} lacks {missing}: it was acknowledged")

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
            f"rank {rank} begins clock {clock}, while writes of clock {slowest} are under way",
        )

    def reports(self, rank: int, clock: int) -> None:
        """A worker says that it has acknowledged the clocks below."""
        self.require(
            self.reached(rank) >= clock,
            f"rank {rank} reports {clock} too early: {self._open[rank]}",
        )

    def told(self, message: Message) -> None:
        """The coordinator tells somebody something."""
        if isinstance(message, Granted) and not message.finished:
            self.require(message.token > self._tokens, f"token {message.token} is not new")
            self.require(
                self._granted.get(message.rank, 0) <= message.clock <= self.reached(message.rank),
                f"rank {message.rank} is granted at {message.clock}",
            )
            self._granted[message.rank] = message.clock
            self.counts["tokens passed"] += message.attempt > 0
        elif isinstance(message, Slowest):
            slowest = min(self.reached(rank) for rank in range(self.plan.size))
            self.require(message.clock >= self._slowest, f"the slowest clock goes back: {message}")
            self.require(message.clock <= slowest, f"{message} is told, {slowest} is true")
            self._slowest = message.clock
        elif isinstance(message, EpochEnded):
            self._epoch(message)

    def released(self, who: str, message: Released) -> None:
        """A worker passes a barrier."""
        self.require(message.clock > self._released.get(who, 0), f"{who}: {message}")
        self._released[who] = message.clock
        if self.mode == "bsp":
            ticks = self._ticks(message.clock - 1)
            self.require(message.sums.get("ticks", 0) == ticks, f"{message}: {ticks} ticks")

    def _ticks(self, clock: int) -> int:
        """How many ranks end a clock with numbers."""
        within = self.plan.clocks.within(clock)
        return sum(within < self.plan.own(rank) for rank in range(self.plan.size))

    def _epoch(self, message: EpochEnded) -> None:
        self.require(message.epoch == self._epochs, f"epoch {self._epochs} is next: {message}")
        self._epochs += 1
        clocks = self.plan.clocks
        first, end = clocks.first(message.epoch), clocks.end(message.epoch)
        ticks = sum(self._ticks(clock) for clock in range(first, end))
        self.require(message.metrics.get("ticks", 0) == ticks, f"{message}: {ticks} ticks")
