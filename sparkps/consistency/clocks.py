"""Whose clock is where: the clocks of an epoch, and the acknowledged clocks of a session's ranks.

The rules (SEMANTICS §5):

* A clock is one integer. With ``clock_every`` batch or epoch an epoch has N clocks, N = the largest
  number of clocks that any rank ticks in an epoch (its batches; 1 for ``epoch``; at least 1), known
  before clock 0. Clock ``epoch * N + n`` is the n-th of its epoch.
* A rank that has ticked all its own clocks of an epoch *has run out*: it counts as having
  acknowledged the rest of that epoch, and of the next ones too if it has no batches at all. So it
  never holds the others back.
* With ``manual`` nobody knows N: the end of an epoch is a barrier in every mode. A rank that has
  ended the epoch holds nobody back; once all have, the next epoch begins at the largest clock that
  any has reached.
* An acknowledged clock never goes back. What arrives late or twice changes nothing.

Two clocks of a rank are told apart here: :meth:`RankClocks.acknowledged` is what it has said (where
a new holder of the rank resumes), :meth:`RankClocks.effective` what it counts for (with what it has
run out of).

Not here: who waits for whom (:mod:`sparkps.consistency.policy`), tokens, messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sparkps.errors import InvalidArgument

#: The effective clock of a rank that holds nobody back any more; later than any clock.
NEVER: Final = 2**62

ClockEvery = Literal["batch", "epoch", "manual"]


@dataclass(frozen=True)
class EpochPlan:
    """The clocks of a run's epochs.

    Parameters
    ----------
    clocks
        N, the clocks of one epoch; 0 with manual clocks.
    epochs
        How many epochs the run has.

    Examples
    --------
    >>> plan = EpochPlan(clocks=4, epochs=3)
    >>> plan.epoch_of(5), plan.first(1), plan.end(1), plan.total
    (1, 4, 8, 12)
    """

    clocks: int
    epochs: int

    @property
    def manual(self) -> bool:
        """Whether steps tick themselves, so that nobody knows the clocks of an epoch."""
        return self.clocks == 0

    @property
    def total(self) -> int:
        """The clock at which the run ends; :data:`NEVER` with manual clocks."""
        return NEVER if self.manual else self.clocks * self.epochs

    def epoch_of(self, clock: int) -> int:
        """The epoch in which ``clock`` lies (``epochs`` for the clock at which the run ends)."""
        self._not_manual()
        return clock // self.clocks

    def first(self, epoch: int) -> int:
        """The first clock of ``epoch``."""
        self._not_manual()
        return epoch * self.clocks

    def end(self, epoch: int) -> int:
        """The clock after the last of ``epoch``: the first of the next."""
        self._not_manual()
        return (epoch + 1) * self.clocks

    def within(self, clock: int) -> int:
        """The number of ``clock`` in its epoch: the batch that is next when a rank resumes
        there."""
        self._not_manual()
        return clock % self.clocks

    def effective(self, clock: int, own: int) -> int:
        """What an acknowledged ``clock`` counts for, of a rank that ticks ``own`` clocks in an
        epoch.

        Examples
        --------
        >>> plan = EpochPlan(clocks=4, epochs=3)
        >>> plan.effective(1, own=4), plan.effective(2, own=2), plan.effective(0, own=0) == NEVER
        (1, 4, True)
        """
        if self.manual:
            return clock
        if own == 0 or clock >= self.total:
            return NEVER
        epoch, n = divmod(clock, self.clocks)
        if n < own:
            return clock
        return NEVER if epoch + 1 >= self.epochs else (epoch + 1) * self.clocks

    def _not_manual(self) -> None:
        if self.manual:
            raise InvalidArgument(
                name="clock_every",
                value="manual",
                reason="manual clocks have no fixed number in an epoch",
            )


def own_clocks(clock_every: ClockEvery, batches: int) -> int:
    """How many clocks a rank with ``batches`` batches ticks in one epoch (0 with manual clocks:
    unknown).

    Examples
    --------
    >>> own_clocks("batch", 7), own_clocks("epoch", 7), own_clocks("epoch", 0)
    (7, 1, 0)
    """
    if clock_every == "manual":
        return 0
    return batches if clock_every == "batch" else min(batches, 1)


def make_plan(clock_every: ClockEvery, epochs: int, batches: Sequence[int]) -> EpochPlan:
    """The plan of a run whose rank r has ``batches[r]`` batches.

    Examples
    --------
    >>> make_plan("batch", 3, [2, 5, 0])
    EpochPlan(clocks=5, epochs=3)
    """
    if clock_every == "manual":
        return EpochPlan(0, epochs)
    return EpochPlan(max(1, *(own_clocks(clock_every, count) for count in batches), 0), epochs)


class RankClocks:
    """The acknowledged clocks of all ranks of a session, and the slowest of them.

    Parameters
    ----------
    plan
        The clocks of an epoch.
    own
        How many clocks each rank ticks in an epoch (:func:`own_clocks`); ignored with manual
        clocks.

    Notes
    -----
    The slowest is kept, not searched: a search is made only when the last rank at the slowest clock
    leaves it, which in bsp is once per clock, however many ranks there are.

    Examples
    --------
    >>> clocks = RankClocks(EpochPlan(clocks=2, epochs=2), own=[2, 1])
    >>> clocks.acknowledge(1, 1)        # rank 1 has run out of this epoch
    False
    >>> clocks.acknowledge(0, 1), clocks.slowest, clocks.effective(1)
    (True, 1, 2)
    """

    def __init__(self, plan: EpochPlan, own: Sequence[int]) -> None:
        self.plan = plan
        self._own = list(own)
        self._said = [0] * len(own)
        self._ended = [False] * len(own)
        self._effective = [plan.effective(0, count) for count in own]
        self._search()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self._own)

    @property
    def slowest(self) -> int:
        """The smallest effective clock; :data:`NEVER` when every rank has run out of the whole
        run."""
        return self._slowest

    @property
    def slowest_rank(self) -> int:
        """The lowest rank that is at the slowest clock."""
        return self._effective.index(self._slowest)

    @property
    def fastest(self) -> int:
        """The largest clock that any rank has acknowledged."""
        return max(self._said)

    @property
    def epochs_ended(self) -> int:
        """How many epochs every rank has ended (0 with manual clocks, whose ends are told by
        :attr:`all_ended`)."""
        if self.plan.manual:
            return 0
        return min(self.plan.epochs, self._slowest // self.plan.clocks)

    @property
    def all_ended(self) -> bool:
        """Manual clocks: whether every rank has ended the epoch."""
        return all(self._ended)

    def acknowledged(self, rank: int) -> int:
        """The clock that the rank itself has acknowledged: where its next holder resumes."""
        return self._said[rank]

    def effective(self, rank: int) -> int:
        """The clock that the rank counts for, with what it has run out of."""
        return self._effective[rank]

    def acknowledge(self, rank: int, clock: int) -> bool:
        """All writes of the rank's clocks below ``clock`` are acknowledged. Return whether the
        slowest has moved."""
        if clock <= self._said[rank]:
            return False
        self._said[rank] = clock
        if self._ended[rank]:
            return False
        return self._set(rank, self.plan.effective(clock, self._own[rank]))

    def end_epoch(self, rank: int) -> bool:
        """Manual clocks: the rank has ended the epoch, and holds nobody back. Return whether the
        slowest moved."""
        self._ended[rank] = True
        return self._set(rank, NEVER)

    def next_epoch(self) -> int:
        """Manual clocks: begin the next epoch, for every rank at the largest clock reached, which
        is returned."""
        clock = self.fastest
        self._said = [clock] * self.size
        self._ended = [False] * self.size
        self._effective = [clock] * self.size
        self._search()
        return clock

    def finish(self, rank: int) -> bool:
        """The rank has done all its work. Return whether the slowest has moved."""
        self._ended[rank] = True
        return self._set(rank, NEVER)

    def _set(self, rank: int, effective: int) -> bool:
        before = self._effective[rank]
        if effective <= before:
            return False
        self._effective[rank] = effective
        if before != self._slowest:
            return False
        self._at_slowest -= 1
        if self._at_slowest:
            return False
        self._search()
        return True

    def _search(self) -> None:
        self._slowest = min(self._effective, default=NEVER)
        self._at_slowest = self._effective.count(self._slowest)
