"""The ledger of one (session, rank) on one table: which of its writes each partition has taken.

The rules (SEMANTICS §2). A slice of a write has a position (clock, seq, slice), and names the
position ``prev`` that the same attempt sent to that partition before. A partition remembers for
each (session, rank) the last position that it *accepted* (applied, or staged in bsp) with the log
number that the write got, and the last that it *applied*:

* position <= accepted: a duplicate; acknowledged, not applied again.
* prev <= accepted < position: accepted, and accepted := position.
* prev > accepted: a gap, refused; the client sends again from there, oldest first.
* In bsp a write of a sealed clock that is not in the ledger is *late*, and refused.
* A seal of clock c moves applied up to the last accepted position whose clock is below c. Since a
  rank is at most one clock ahead of the seal, it is enough to remember the last position before the
  newest accepted clock.

A slice that was accepted and could then not be applied (memory limit, an error in the user's
function) keeps its place in the ledger, or everything after it would be a gap. It is remembered as
*refused* with its error, so that a client which never saw the reply and sends it again gets the
same error, and not "duplicate", which would be a lost write.

The comparisons are made by a kernel, for all slices of a message at once, on the array that this
class owns. Not here: that kernel, and who calls it (the server).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparkps.errors import PSError
from sparkps.spec import NOWHERE, Position

#: Columns of the array: two words for each position, the second ``seq << 32 | slice``; (-1, -1) is
#: "none".
ACCEPTED, ACCEPTED_2, LOG, APPLIED, APPLIED_2, BEFORE, BEFORE_2, SPARE = range(8)
COLUMNS: Final = 8

_LOW: Final = (1 << 32) - 1


class Ledger:
    """Accepted and applied positions of one (session, rank), over all partitions of a table.

    Parameters
    ----------
    partitions
        The number of partitions of the table; one row of the array each, local or not.

    Attributes
    ----------
    array
        int64 (partitions, 8), what the kernels read and write.
    refused
        Errors of the slices that were accepted and could not be applied, by (partition, position).

    Examples
    --------
    >>> ledger = Ledger(4)
    >>> ledger.accepted(2)
    Position(clock=-1, seq=-1, slice=-1)
    >>> ledger.restore(2, (7, 1, 0), log=12)
    >>> ledger.accepted(2), ledger.applied(2), ledger.log(2)
    (Position(clock=7, seq=1, slice=0), Position(clock=7, seq=1, slice=0), 12)
    """

    __slots__ = ("array", "refused")

    def __init__(self, partitions: int) -> None:
        self.array: npt.NDArray[np.int64] = np.full((partitions, COLUMNS), -1, np.int64)
        self.array[:, LOG] = 0
        self.array[:, SPARE] = 0
        self.refused: dict[tuple[int, Position], PSError] = {}

    def accepted(self, partition: int) -> Position:
        """The last position that the partition has accepted."""
        return self._position(partition, ACCEPTED)

    def applied(self, partition: int) -> Position:
        """The last position that the partition has applied."""
        return self._position(partition, APPLIED)

    def log(self, partition: int) -> int:
        """The log number of the last accepted write."""
        return int(self.array[partition, LOG])

    def restore(self, partition: int, applied: tuple[int, int, int], log: int) -> None:
        """Start from a checkpoint, which keeps applied positions only: both positions become it."""
        clock, seq, piece = applied
        row = self.array[partition]
        for column in (ACCEPTED, APPLIED, BEFORE):
            row[column] = clock
            row[column + 1] = seq << 32 | piece if clock >= 0 else -1
        row[LOG] = log

    def image(self, partition: int) -> Mapping[str, Any]:
        """What a checkpoint keeps of a partition: ``{"applied": [clock, seq, slice], "log":
        n}``."""
        return {"applied": list(self.applied(partition)), "log": self.log(partition)}

    def _position(self, partition: int, column: int) -> Position:
        clock, rest = (int(word) for word in self.array[partition, column : column + 2])
        return Position(clock, rest >> 32, rest & _LOW) if clock >= 0 else NOWHERE
