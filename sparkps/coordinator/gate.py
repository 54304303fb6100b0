"""Which clock is open to whom: the clocks of one run, its barriers, and who holds whom back.

The rules (those of a run stand in :mod:`sparkps.coordinator.run`):

* A rank that has run out of batches holds nobody back within the epoch. An epoch has ended when
  every rank has *said* so, with a tick at its last clock, ``epoch_end`` or Finish: a rank that has
  run out may still write.
* ``open`` is the highest clock that a bsp worker may start; ``published`` the slowest clock that
  ssp workers were told; ``closed`` the number of epochs that are over for good.
* An epoch's end is a barrier in bsp, with ``barrier_epochs`` and with manual clocks.

It decides, and tells nobody.
"""

from __future__ import annotations

from sparkps.consistency.clocks import NEVER, EpochPlan, RankClocks, make_plan, own_clocks
from sparkps.consistency.policy import may_go, must_reach
from sparkps.coordinator.ranks import Rank
from sparkps.spec import SessionSpec, parse_consistency


class Gate:
    """The clocks of a run. ``begin`` is called when the batches of all ranks are known."""

    def __init__(self, spec: SessionSpec) -> None:
        mode = parse_consistency(spec.consistency)
        self._spec = spec
        self._mode, self._staleness = mode.mode, mode.staleness
        self.bsp, self.ssp = mode.mode == "bsp", mode.mode == "ssp"
        self.manual = spec.clock_every == "manual"
        self.barrier = self.bsp or spec.barrier_epochs or self.manual
        self.plan = EpochPlan(0, spec.epochs)
        self.clocks = RankClocks(self.plan, [0] * spec.size)
        self.begun = False
        self.open = 0
        self.published = 0
        self.closed = 0
        self.closing = False
        self.stopped = False

    def begin(self, batches: list[int]) -> None:
        """All ranks have read their rows."""
        every = self._spec.clock_every
        self.plan = make_plan(every, self._spec.epochs, batches)
        self.clocks = RankClocks(self.plan, [own_clocks(every, count) for count in batches])
        self.begun = True

    @property
    def over(self) -> bool:
        """Whether no epoch is left to train."""
        return self.stopped or self.closed >= self._spec.epochs

    @property
    def end(self) -> int:
        """The clock at which the present epoch ends."""
        return NEVER if self.manual else self.plan.end(self.closed)

    def epoch_of(self, clock: int) -> int:
        """The epoch of a clock; with manual clocks the present one."""
        return self.closed if self.manual else self.plan.epoch_of(clock)

    def acknowledged(self, rank: Rank) -> int:
        """The clock that the rank itself has acknowledged."""
        return self.clocks.acknowledged(rank.number)

    def has_ended(self, ranks: list[Rank]) -> bool:
        """Whether every rank has ended the present epoch."""
        # The slowest is known at once; only when it is there are the ranks asked one by one.
        if self.clocks.slowest < self.end:
            return False
        return all(rank.finished or self._has_said_end(rank) for rank in ranks)

    def may_begin(self, rank: Rank) -> bool:
        """Whether a rank that has read its rows may start at its acknowledged clock."""
        clock = self.acknowledged(rank)
        if self.bsp and clock > self.open:
            return False
        if self.ssp and not may_go(self._mode, self._staleness, clock, self.published):
            return False
        return not self.barrier or self.over or not self._has_said_end(rank)

    def may_pass(self, rank: Rank) -> bool:
        """Whether a rank that waits may go on."""
        if self._is_at_end(rank):
            return False
        if self.bsp:
            return (rank.waiting or 0) <= self.open
        return may_go(self._mode, self._staleness, rank.waiting or 0, self.published)

    def is_boundary(self, clock: int) -> bool:
        """Whether a clock that a rank passes may be the end of an epoch which was a barrier."""
        return self.barrier and self.closed > 0 and (self.manual or clock % self.plan.clocks == 0)

    def can_open(self) -> int | None:
        """The bsp clock that may be opened now, if there is a new one."""
        if not self.bsp or self.closing or self.over:
            return None
        last = self.clocks.slowest if self.manual else min(self.clocks.slowest, self.end - 1)
        return last if self.open < last < NEVER else None

    def can_publish(self) -> int | None:
        """The slowest clock, if ssp workers do not know it yet."""
        slowest = self.clocks.slowest
        if not self.ssp or slowest <= self.published or (self.manual and slowest == NEVER):
            return None
        return slowest

    def holds_back(self, rank: Rank, other: Rank) -> bool:
        """Whether ``other``, which waits, waits for ``rank``."""
        if self._is_at_end(other):
            return not (rank.finished or self._has_said_end(rank))
        needed = must_reach(self._mode, self._staleness, other.waiting or 0)
        return self.clocks.effective(rank.number) < needed

    def reopen(self, ranks: list[Rank]) -> int:
        """The present epoch is over; return the clock at which the next begins."""
        clock = self.clocks.next_epoch() if self.manual else self.end
        self.closed += 1
        self.closing = False
        for rank in ranks:
            if rank.finished:
                self.clocks.finish(rank.number)
        return clock

    def _has_said_end(self, rank: Rank) -> bool:
        if self.manual:
            return rank.ended > self.closed
        return self.acknowledged(rank) >= self.end

    def _is_at_end(self, rank: Rank) -> bool:
        """Whether a rank that waits is at an epoch's end that is a barrier and not yet passed."""
        return self.barrier and not self.over and self._has_said_end(rank)
