"""A seat: in whose name requests are made, and how far their writes are acknowledged.

A seat is a (session, rank, token) with its clock. There are three kinds: a worker of a run; the
driver, which has rank ``size`` inside a run (``on_epoch``) and a session of its own outside; and a
reader, which may not write.

Rules (SEMANTICS §2, §5):

* The writes of a seat to one table form one chain per partition: each slice carries the position
  that was sent to that partition before it (``prev``), none for the first. ``seq`` counts the
  writes to the table within a clock.
* A refused slice is given up for ever: whatever was chained to it is chained to what was before it.
* A forked process has a copy of the chains: its writes would take the positions of its parent's
  and be swallowed as duplicates, or swallow them. So there every seat is denied.
* The acknowledged clock is the largest a such that every write of the clocks below a is
  acknowledged.

Changed only under the client's lock; holds no socket and no time.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparkps.errors import PSError
from sparkps.kernels.keys import fill_prev
from sparkps.spec import NO_SESSION

Int64s = npt.NDArray[np.int64]


class Chain:
    """The positions that one seat has sent to the partitions of one table."""

    __slots__ = ("clock", "last", "seq")

    def __init__(self, partitions: int) -> None:
        self.last: Int64s = np.full((partitions, 3), -1, dtype=np.int64)
        self.clock = -1
        self.seq = -1

    @property
    def empty(self) -> bool:
        """Whether nothing was sent yet."""
        return self.clock < 0

    def add(self, slices: Int64s, clock: int) -> int:
        """Chain the slices of a new write, in place, and return its seq."""
        if clock != self.clock:
            self.clock, self.seq = clock, -1
        self.seq += 1
        fill_prev(slices, self.last, clock, self.seq)
        return self.seq

    def give_up(self, clock: int, seq: int, refused: Int64s, later: Iterable[Int64s]) -> None:
        """Take refused slices of a write out of the chain.

        Parameters
        ----------
        clock, seq
            The write's.
        refused
            Its refused slices, shape (k, 6).
        later
            The slices of the unacknowledged writes after it; changed in place.
        """
        followers = list(later)
        for partition, number, _, *before in refused[::-1].tolist():
            position = (clock, seq, number)
            if tuple(self.last[partition]) == position:
                self.last[partition] = before
            for slices in followers:
                mine = (slices[:, 0] == partition) & (slices[:, 3:] == position).all(axis=1)
                slices[mine, 3:] = before


class Seat:
    """In whose name requests are made.

    Attributes
    ----------
    session, rank, token : int
        Session 0 is a reader's.
    clock : int
        Where the seat is now; its reads and writes carry it.
    bsp : bool
        Whether reads and writes of this seat are sealed and staged.
    synchronous : bool
        Whether writes return only when acknowledged (the driver's do).
    denied : str
        Why it may not write; empty if it may.
    error : PSError or None
        The first error of a write that nobody waited for.
    staleness : int or None
        The s of an ssp run; None everywhere else.
    slowest : int
        The slowest acknowledged clock of the run, as far as it is known here.
    met : int
        The clock of the last barrier: what was pulled before that is not used again.
    caches : dict
        The row caches of an ssp run, by table id.
    hits, misses : int
        Rows taken from a cache, and pulled in spite of one.
    """

    __slots__ = (
        "__weakref__",
        "_chains",
        "bsp",
        "caches",
        "clock",
        "denied",
        "error",
        "hits",
        "met",
        "misses",
        "outstanding",
        "rank",
        "session",
        "slowest",
        "staleness",
        "synchronous",
        "token",
    )

    def __init__(
        self,
        session: int = NO_SESSION,
        rank: int = 0,
        token: int = 0,
        *,
        clock: int = 0,
        bsp: bool = False,
        synchronous: bool = True,
        denied: str = "",
        staleness: int | None = None,
    ) -> None:
        self.session, self.rank, self.token, self.clock = session, rank, token, clock
        self.bsp, self.synchronous, self.denied = bsp, synchronous, denied
        self.error: PSError | None = None
        self.outstanding: dict[int, int] = {}
        self.staleness, self.slowest, self.met = staleness, 0, 0
        self.caches: dict[int, Any] = {}
        self.hits = self.misses = 0
        self._chains: dict[int, Chain] = {}
        _seats.add(self)

    def __repr__(self) -> str:
        return f"<Seat of rank {self.rank}, session {self.session:#x}, clock {self.clock}>"

    def chain(self, table: int, partitions: int) -> Chain:
        """Return the chain of a table."""
        chain = self._chains.get(table)
        if chain is None:
            chain = self._chains[table] = Chain(partitions)
        return chain

    @property
    def oldest(self) -> int:
        """The least stamp of a row that may be used again."""
        return max(self.clock - (self.staleness or 0), self.met)

    def meet(self, clock: int) -> None:
        """All workers have come to ``clock``, and all their writes are in the tables."""
        self.met, self.slowest = clock, max(self.slowest, clock)

    def renew(self, token: int) -> None:
        """Hold the rank anew: what is still under way belongs to nobody."""
        self.token, self.error = token, None
        self.outstanding.clear()
        self._chains.clear()
        self.caches.clear()

    def sent(self, clock: int) -> None:
        """Count a message with writes of ``clock``."""
        self.outstanding[clock] = self.outstanding.get(clock, 0) + 1

    def settled(self, clock: int) -> None:
        """Count a message with writes of ``clock`` as acknowledged, or as given up."""
        left = self.outstanding[clock] - 1
        if left:
            self.outstanding[clock] = left
        else:
            del self.outstanding[clock]

    @property
    def acknowledged(self) -> int:
        """The largest clock below which every write is acknowledged."""
        return min(self.outstanding, default=self.clock)

    def raise_error(self) -> None:
        """Raise the error of a write that nobody waited for, if there is one; once."""
        error, self.error = self.error, None
        if error is not None:
            raise error


#: The seats of this process, for forked copies of it.
_seats: Final[weakref.WeakSet[Seat]] = weakref.WeakSet()


def _forked() -> None:
    for seat in list(_seats):
        seat.denied = "in a forked process"


os.register_at_fork(after_in_child=_forked)
