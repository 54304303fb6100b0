"""Rows that a worker of an ssp run has pulled before and may use again; where SSP saves network.

Rules (SEMANTICS §5). A row is stamped with m, the slowest acknowledged clock that this worker knew
*when it sent the pull*: the copy then holds all updates of clocks below m. It may be used at clock
c while ``m >= c - s``, which is just what a new pull at c would be sure to see; but not once a
barrier (the end of an epoch with ``on_epoch``) has been passed since, where a new pull sees
everything. A cache belongs to one (session, token), so a seat owns it.

Its memory is bounded; when it is full nothing is evicted (epochs scan in a cycle) and the rest is
pulled each time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparkps.kernels.arrays import put, take
from sparkps.kernels.index import KeyIndex
from sparkps.spec import TableSpec

Array = npt.NDArray[Any]

#: Memory of the cached rows of one table in one worker: what a batch or two of a large model touch.
CACHE_BYTES: Final = 256 * 2**20


class RowCache:
    """Rows by slot, small numbers that the owner gives out from 0.

    Parameters
    ----------
    spec
        The table.
    limit
        Bytes of the rows at most.

    Examples
    --------
    >>> cache = RowCache(TableSpec("t"))
    >>> cache.store(np.array([0, 2], np.int32), np.array([1.5, 2.5], np.float32), stamp=4)
    >>> cache.fresh(np.array([0, 1, 2], np.int32), oldest=3)
    array([ True, False,  True])
    """

    def __init__(self, spec: TableSpec, limit: int = CACHE_BYTES) -> None:
        dtype = np.dtype(spec.dtype)
        self.limit = max(1, limit // (dtype.itemsize * spec.width + 8))
        self._values: Array = np.empty((0,) if spec.width == 1 else (0, spec.width), dtype)
        self._stamps: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def fresh(self, slots: Array, oldest: int) -> npt.NDArray[np.bool_]:
        """Tell which slots hold a row with a stamp of at least ``oldest``."""
        # The first clocks may use stamps from below 0, but a slot that holds nothing is stamped so.
        oldest = max(oldest, 0)
        fresh = (slots >= 0) & (slots < len(self._stamps))
        if fresh.any():
            fresh[fresh] = self._stamps[slots[fresh]] >= oldest
        return fresh

    def read(self, slots: Array) -> Array:
        """Return the rows of slots that are :meth:`fresh`."""
        out: Array = np.empty((len(slots), *self._values.shape[1:]), self._values.dtype)
        take(self._values, slots, out)
        return out

    def store(self, slots: Array, values: Array, stamp: int) -> None:
        """Keep rows; those of slots beyond the limit, or below 0, are left out."""
        good = (slots >= 0) & (slots < self.limit)
        if not good.all():
            slots, values = slots[good], values[good]
        if not len(slots):
            return
        self._grow(int(slots.max()) + 1)
        put(values, slots, self._values)
        self._stamps[slots] = stamp

    def _grow(self, size: int) -> None:
        have = len(self._stamps)
        if size > have:
            size = min(self.limit, max(size, have + have // 2))
            values: Array = np.empty((size, *self._values.shape[1:]), self._values.dtype)
            values[:have] = self._values
            stamps = np.full(size, -1, np.int64)
            stamps[:have] = self._stamps
            self._values, self._stamps = values, stamps


class KeyCache(RowCache):
    """Rows by key, for plain pulls."""

    def __init__(self, spec: TableSpec, limit: int = CACHE_BYTES) -> None:
        super().__init__(spec, limit)
        self._index = KeyIndex()

    def find(self, keys: Array) -> Array:
        """Return the slots of keys, -1 for those without."""
        found: Array = self._index.find(keys)
        return found

    def slots(self, keys: Array) -> Array:
        """Return the slots of keys; new keys get one while there is room."""
        if len(self._index) < self.limit:
            added: Array = self._index.add(keys)
            return added
        return self.find(keys)
