"""The rows that a request names, whichever way it names them.

A request names rows by keys, by ordinals in a vocabulary, or by a keyset. Behind this module all
three are the same: ``parts`` int32 (k, 2) of (partition, count), and for each row its number in its
partition, -1 where there is none yet. Keys are there for the rows that may be missing.

Rules:

* Row numbers stay right while no partition of the table is closed or loaded, so they can be
  staged, and kept by a :class:`RowList`.
* A missing row is created by an applied write only, in the order of the request.
* Naming looks nothing up and changes nothing. :meth:`Named.resolve` does, when the request is known
  to be good.

Not here: what vocabularies and keysets are (:mod:`sparkps.server.refs`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparkps.store import Table

Array = NDArray[Any]

#: Bytes of a row number that is kept, and of a kept key with its place.
ROW: Final = 4
MISS: Final = 12


class RowList:
    """Row numbers in a fixed order, and the keys of those that are missing.

    Attributes
    ----------
    known_at
        The number of rows of the table at which every missing row was looked up last: while the
        table has not grown since, looking again is useless. -1 if there is no such number.
    missing
        How many rows did not exist when they were last looked up.
    """

    __slots__ = ("_miss_at", "_miss_keys", "_rows", "known_at", "missing", "size")

    def __init__(self, capacity: int = 0) -> None:
        self._rows: Array = np.empty(capacity, np.int32)
        self._miss_at: Array = np.empty(0, np.int32)
        self._miss_keys: Array = np.empty(0, np.int64)
        self.known_at = -1
        self.missing = 0
        self.size = 0

    @property
    def rows(self) -> Array:
        """int32 (size,); -1 where the row does not exist as far as we know."""
        return self._rows[: self.size]

    @property
    def nbytes(self) -> int:
        """Bytes taken."""
        return self._rows.nbytes + MISS * len(self._miss_at)

    def append(self, rows: Array, keys: Array | None, grown: int) -> None:
        """Append rows that were looked up when the table had ``grown`` rows.

        ``keys`` are those of all the rows; they may be None if no row is missing.
        """
        end = self.size + len(rows)
        if end > len(self._rows):
            longer = np.empty(max(end, len(self._rows) * 3 // 2), np.int32)
            longer[: self.size] = self.rows
            self._rows = longer
        self._rows[self.size : end] = rows
        if not self.missing:
            self.known_at = grown
        elif self.known_at != grown:
            self.known_at = -1
        if keys is not None:
            absent = np.flatnonzero(rows < 0)
            if len(absent):
                places = (absent + self.size).astype(np.int32)
                self._miss_at = np.concatenate((self._miss_at, places))
                self._miss_keys = np.concatenate((self._miss_keys, keys[absent]))
                self.missing += len(absent)
        self.size = end

    def keys_of(self, places: Array, rows: Array) -> Array | None:
        """Keys for those of the places whose row is missing, 0 for others; None if none is."""
        missing = rows < 0
        if not missing.any():
            return None
        keys: Array = np.zeros(len(rows), np.int64)
        at = places[missing]
        if len(self._miss_at) < self.size:  # otherwise each is at its own place
            at = np.searchsorted(self._miss_at, at)
        keys[missing] = self._miss_keys[at]
        return keys

    def learn(self, places: Array, rows: Array, grown: int) -> None:
        """Remember what was found or created in a table that has ``grown`` rows now."""
        fresh = places[(self._rows[places] < 0) & (rows >= 0)]
        # A place that is named twice keeps the later mark.
        marks = np.arange(len(fresh), dtype=np.int32)
        self._rows[fresh] = marks
        self.missing -= int(np.count_nonzero(self._rows[fresh] == marks))
        self._rows[places] = rows
        # The keys of found rows go when they are most of them: each time would be a pass over all.
        if self.missing * 4 <= len(self._miss_at):
            still = self._rows[self._miss_at] < 0
            self._miss_at = self._miss_at[still]
            self._miss_keys = self._miss_keys[still]
        if len(places) == self.size:
            self.known_at = grown


class Named(msgspec.Struct, gc=False):
    """Rows of a request.

    ``rows`` int32 (n,), or None while only the keys are known; ``keys`` int64 (n,), or None when no
    row is missing. Where ``rows`` says that a row is there, ``keys`` may hold anything. ``source``
    and ``places`` say which list the rows come from, and where they are in it.
    """

    parts: Array
    rows: Array | None
    keys: Array | None = None
    source: RowList | None = None
    places: Array | None = None

    def resolve(self, table: Table, create: bool) -> Array:
        """Return the row numbers; create what is missing, or leave it at -1."""
        rows, keys, source = self.rows, self.keys, self.source
        if rows is None:
            if keys is None:
                raise ValueError("neither rows nor keys are known")
            rows = table.resolve(self.parts, keys, create)
        elif keys is not None:
            if not create and source is not None and source.known_at == table.array.count():
                return rows
            rows = fill(table, self.parts, rows, keys, create)
            if source is not None and self.places is not None:
                source.learn(self.places, rows, table.array.count())
        self.rows = rows
        return rows

    def select(self, keep: Array) -> Array:
        """Keep only the groups where ``keep`` is true; return which rows stayed, bool (n,)."""
        chosen: Array = np.repeat(keep, self.parts[:, 1])
        self.parts = np.ascontiguousarray(self.parts[keep])
        if self.rows is not None:
            self.rows = self.rows[chosen]
        if self.keys is not None:
            self.keys = self.keys[chosen]
        if self.places is not None:
            self.places = self.places[chosen]
        return chosen


def fill(table: Table, parts: Array, rows: Array, keys: Array, create: bool) -> Array:
    """Look up (or create) the rows that are -1, by their keys; return all rows, a new array."""
    missing = rows < 0
    if not missing.any():
        return rows
    before = np.concatenate(([0], np.cumsum(missing)))  # how many are missing before each row
    bounds = np.concatenate(([0], np.cumsum(parts[:, 1], dtype=np.int64)))
    some = np.stack((parts[:, 0], np.diff(before[bounds])), axis=1).astype(np.int32)
    filled = rows.copy()
    filled[missing] = table.resolve(some, keys[missing], create)
    return filled
