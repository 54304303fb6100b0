"""A table on this server, with all that hangs on it: ledgers, staged writes, refs, its owner.

Rules:

* A partition is here if its group was ours when the table was made. A later view neither gives one
  (that needs its content) nor takes one away (its content is nowhere else).
* A request that knows an older view than the one in which a named partition last changed is
  refused, so that nobody writes by an outdated map (SEMANTICS §7).
* From the first write of a bsp session to its end, the table takes writes of that session only.

Not here: what is done to the table (:mod:`sparkps.server.writes`, :mod:`sparkps.server.reads`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.consistency.ledger import Ledger
from sparkps.errors import TableBusy
from sparkps.routing.partitioner import group_of
from sparkps.server.budget import Budget
from sparkps.server.refs import References, Unknown
from sparkps.server.sessions import OpenSession
from sparkps.server.staging import Staged
from sparkps.spec import SLICE_NUMBERS, View
from sparkps.store import Table

Array = NDArray[Any]


class Hosted:
    """One table on this server.

    Attributes
    ----------
    table
        Its rows.
    rows_per_slice
        Rows of a full slice.
    generation
        Changes when row numbers lose their meaning.
    open
        Which partitions are here, bool (P,).
    changed, newest_change
        The view in which each partition changed last, int64 (P,), and the newest of them.
    owner
        The bsp session that owns the writes, 0 if none.
    ledgers
        By (session, rank).
    staged
        Staged writes by bsp session.
    refs
        Vocabularies and keysets by session, or by peer for those of no session.
    """

    __slots__ = (
        "_group",
        "changed",
        "generation",
        "ledgers",
        "newest_change",
        "open",
        "owner",
        "refs",
        "rows_per_slice",
        "staged",
        "table",
    )

    def __init__(self, table: Table, view: View) -> None:
        spec = table.spec
        self.table = table
        self.rows_per_slice = max(1, SLICE_NUMBERS // spec.width)
        self.generation = 0
        self.owner = 0
        self.ledgers: dict[tuple[int, int], Ledger] = {}
        self.staged: dict[int, Staged] = {}
        self.refs: dict[Any, References] = {}
        self._group = group_of(table.info.id, spec.partitions)
        self.changed: Array = np.zeros(spec.partitions, np.int64)
        self.newest_change = 0
        self.open: Array = np.zeros(spec.partitions, np.bool_)
        self.open[table.array.open_partitions()] = True
        self.set_view(view)

    def set_view(self, view: View) -> None:
        """Note when our partitions changed; a view alone takes none of them away."""
        if len(view.changed):
            self.changed = np.array(view.changed, np.int64)[self._group]
            self.newest_change = int(self.changed.max())

    def ledger(self, session: int, rank: int) -> Ledger:
        """The ledger of a (session, rank), made when it is first needed."""
        found = self.ledgers.get((session, rank))
        if found is None:
            found = self.ledgers[session, rank] = Ledger(self.table.spec.partitions)
        return found

    def reference(self, owner: Any) -> References:
        """Vocabularies and keysets of a session (or of a peer, outside of sessions).

        Raises
        ------
        Unknown
            If there are none.
        """
        found = self.refs.get(owner)
        if found is None:
            raise Unknown(ref="any")
        return found

    def own(self, session: OpenSession) -> None:
        """Let the session write.

        Raises
        ------
        TableBusy
            If a bsp session owns the table.
        """
        if self.owner == session.id:
            return
        if self.owner:
            raise TableBusy(table=self.table.spec.name, session=f"{self.owner:016x}")
        if session.bsp:
            self.owner = session.id

    def outdated(self, view: int, partitions: Array) -> bool:
        """Whether one of the partitions changed after ``view``."""
        return view < self.newest_change and bool((self.changed[partitions] > view).any())

    def here(self, partitions: Array) -> bool:
        """Whether all the partitions exist and are open here."""
        return bool(self.open[partitions].all())

    def close_session(self, session: int, budget: Budget) -> None:
        """Drop all that the session has here; its staged writes are never applied."""
        for key in [key for key in self.ledgers if key[0] == session]:
            del self.ledgers[key]
        refs = self.refs.pop(session, None)
        if refs is not None:
            refs.drop()
        staged = self.staged.pop(session, None)
        if staged is not None:
            budget.give_back(staged.nbytes)
        if self.owner == session:
            self.owner = 0

    def drop(self, budget: Budget) -> None:
        """Drop everything."""
        for refs in self.refs.values():
            refs.drop()
        for staged in self.staged.values():
            budget.give_back(staged.nbytes)
        budget.remove(self.table)
