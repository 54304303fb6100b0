"""Vocabularies and keysets: rows that were named once, so that later requests need not name them.

The rules (SEMANTICS §8):

* A **vocabulary** is a rank's list of keys of a table. The server keeps one int32 row number per
  key; a request then sends int32 *ordinals*, places in that list. It grows by registration; the
  place where a message's keys go is in the message, so one that comes twice changes nothing.
* A **keyset** is a fixed list of rows, grouped by partition, made of ordinals or keys. A request
  sends nothing but its name.
* The key of a row that does not exist yet is kept until the row does; it is looked up again when
  the table has grown. Other keys are not kept.
* Memory per (table, session) is bounded. When it is full nothing is evicted: epochs scan in a
  cycle, and a cache one entry too small would never hit. What does not fit is *unknown*, and its
  owner goes on by ordinals or plain keys.
* Row numbers lose their meaning when a partition is closed or loaded; everything made before is
  then unknown too, and its owner sends the keys again.
* All of it ends with its session (outside of a session: with its connection).

Not here: which messages use them (:mod:`sparkps.server.reads`, :mod:`sparkps.server.writes`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import MalformedRequest, PSError
from sparkps.kernels import arrays
from sparkps.server.budget import Budget
from sparkps.server.named import MISS, ROW, Named, RowList
from sparkps.store import Table

Array = NDArray[Any]

#: How many ways of cutting a keyset into requests are remembered; an owner cuts it in one way.
MAX_CUTS: Final = 1024


class Unknown(PSError):
    """The vocabulary or keyset is not here: answered by ``UnknownRef``, never sent as an error."""

    sentence = "vocabulary or keyset {ref} is not here"


class Vocabulary:
    """A rank's list of keys; see the module."""

    __slots__ = ("generation", "list")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.list = RowList()

    def register(self, table: Table, parts: Array, keys: Array, start: int) -> bool:
        """Append the keys of a message; one that was there already changes nothing.

        Returns
        -------
        bool
            False if messages before this one are missing.
        """
        size = self.list.size
        if start > size:
            return False
        if start + len(keys) <= size:
            return True
        if start < size:
            raise MalformedRequest(
                reason=f"keys from {start} on, but {size} of this vocabulary are here"
            )
        rows = table.resolve(parts, keys, create=False)
        self.list.append(rows, keys, table.array.count())
        return True

    def name(self, parts: Array, ordinals: Array) -> Named:
        """The rows of a request's ordinals.

        Raises
        ------
        ValueError
            If an ordinal lies outside.
        """
        source = self.list
        rows: Array = np.empty(len(ordinals), np.int32)
        arrays.take(source.rows, ordinals, rows)
        if source.missing:
            keys = source.keys_of(ordinals, rows)
            if keys is not None:
                return Named(parts, rows, keys, source, ordinals)
        return Named(parts, rows)


class Keyset:
    """A fixed list of rows, grouped by partition; see the module."""

    __slots__ = ("_cuts", "_parts", "_place", "_starts", "generation", "list", "total")

    def __init__(self, generation: int, total: int) -> None:
        self.generation = generation
        self.total = total
        self.list = RowList(total)
        self._parts: Array = np.empty((0, 2), np.int32)
        self._starts: Array = np.zeros(1, np.int64)
        #: Where the rows of each partition begin, and how many they are.
        self._place: dict[int, tuple[int, int]] = {}
        self._cuts: dict[tuple[int, int] | bytes, tuple[Array, int, int]] = {}

    @property
    def complete(self) -> bool:
        """Whether all pieces are here."""
        return self.list.size == self.total

    def append(self, parts: Array, rows: Array, keys: Array | None, start: int, grown: int) -> bool:
        """Append a piece; return False if pieces before it are missing."""
        size = self.list.size
        if start > size:
            return False
        if start < size and start + len(rows) <= size:
            return True
        if start < size or size + len(rows) > self.total:
            raise MalformedRequest(
                reason=f"rows {start} to {start + len(rows)} of a keyset of {self.total}, "
                f"of which {size} are here"
            )
        merged = _merge(np.concatenate((self._parts, parts[parts[:, 1] > 0])))
        if len(np.unique(merged[:, 0])) != len(merged):
            raise MalformedRequest(reason="a keyset names a partition in two places")
        self.list.append(rows, keys, grown)
        self._parts = merged
        self._starts = np.concatenate(([0], np.cumsum(merged[:, 1], dtype=np.int64)))
        self._place = {
            partition: (start, count)
            for (partition, count), start in zip(
                merged.tolist(), self._starts[:-1].tolist(), strict=True
            )
        }
        self._cuts.clear()
        return True

    def name(self, first: int, count: int) -> Named:
        """The rows ``first .. first + count - 1``.

        Raises
        ------
        MalformedRequest
            If they are not all in the keyset.
        """
        cut = self._cuts.get((first, count))
        if cut is None:
            cut = self._remember((first, count), self._cut(first, count))
        return self._named(*cut)

    def name_slices(self, slices: Array, per_slice: int) -> Named:
        """The rows of a push: of each slice, those from ``slice * per_slice`` of its partition.

        Raises
        ------
        MalformedRequest
            If a slice lies outside of its partition, or slices do not follow one another.
        """
        words = slices[:, :3].tobytes()
        cut = self._cuts.get(words)
        if cut is None:
            cut = self._remember(words, self._cut_slices(slices, per_slice))
        return self._named(*cut)

    def _named(self, parts: Array, first: int, count: int) -> Named:
        source = self.list
        rows = source.rows[first : first + count]
        if source.missing:
            places = np.arange(first, first + count, dtype=np.int32)
            keys = source.keys_of(places, rows)
            if keys is not None:
                # The list learns in place, so what may be staged must not be a view of it.
                return Named(parts, rows.copy(), keys, source, places)
        return Named(parts, rows)

    def _remember(
        self, what: tuple[int, int] | bytes, cut: tuple[Array, int, int]
    ) -> tuple[Array, int, int]:
        if len(self._cuts) < MAX_CUTS:
            self._cuts[what] = cut
        return cut

    def _cut(self, first: int, count: int) -> tuple[Array, int, int]:
        if not 0 <= first <= first + count <= self.total:
            raise MalformedRequest(
                reason=f"rows {first} to {first + count} of a keyset of {self.total}"
            )
        starts = np.clip(self._starts[:-1], first, first + count)
        ends = np.clip(self._starts[1:], first, first + count)
        parts = np.stack((self._parts[:, 0], ends - starts), axis=1).astype(np.int32)
        return np.ascontiguousarray(parts[parts[:, 1] > 0]), first, count

    def _cut_slices(self, slices: Array, per_slice: int) -> tuple[Array, int, int]:
        first = end = -1
        for partition, piece, count in slices[:, :3].tolist():
            offset, size = self._place.get(partition, (0, 0))
            if piece < 0 or count < 0 or piece * per_slice + count > size:
                raise MalformedRequest(
                    reason=f"slice {piece} of {count} rows, but the keyset has {size} rows "
                    f"in partition {partition}"
                )
            start = offset + piece * per_slice
            if first < 0:
                first = start
            elif start != end:
                raise MalformedRequest(reason="the slices of a keyset must follow one another")
            end = start + count
        return slices[:, :3:2].astype(np.int32), max(first, 0), max(end, 0) - max(first, 0)


class References:
    """The vocabularies and keysets of one (table, session) on this server, and their bytes.

    Parameters
    ----------
    table
        Their table.
    limit
        Bytes that they may take.
    budget
        Where the bytes are taken from.
    """

    __slots__ = ("_budget", "_found", "_held", "_limit", "_table", "nbytes")

    def __init__(self, table: Table, limit: int, budget: Budget) -> None:
        self._table = table
        self._limit = limit
        self._budget = budget
        self._found: dict[bytes, Vocabulary | Keyset] = {}
        self._held: dict[bytes, int] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def vocabulary(self, ref: bytes, generation: int) -> Vocabulary:
        """Find a vocabulary, or raise :class:`Unknown`."""
        found = self._found.get(ref)
        if type(found) is not Vocabulary or found.generation != generation:
            raise Unknown(ref=ref.hex())
        return found

    def keyset(self, ref: bytes, generation: int) -> Keyset:
        """Find a complete keyset, or raise :class:`Unknown`."""
        found = self._found.get(ref)
        if type(found) is not Keyset or found.generation != generation or not found.complete:
            raise Unknown(ref=ref.hex())
        return found

    def register(self, ref: bytes, generation: int, parts: Array, keys: Array, start: int) -> None:
        """Add keys to a vocabulary, which its first message makes, or raise :class:`Unknown`."""
        found = self._found.get(ref)
        if type(found) is not Vocabulary or found.generation != generation:
            self._begin(ref, start)
            found = Vocabulary(generation)
        # Twice the row numbers, since a longer list is made before the old one is dropped.
        self._room(ref, (2 * ROW + MISS) * len(keys))
        if not found.register(self._table, parts, keys, start):
            raise Unknown(ref=ref.hex())
        self._keep(ref, found)

    def make_keyset(
        self,
        ref: bytes,
        generation: int,
        parts: Array,
        names: Array,
        start: int,
        total: int,
        vocabulary: bytes,
    ) -> None:
        """Add a piece to a keyset, of ordinals or keys; :class:`Unknown` if it cannot."""
        if vocabulary:
            named = self.vocabulary(vocabulary, generation).name(parts, names)
            rows, keys = named.resolve(self._table, create=False), named.keys
        else:
            rows, keys = self._table.resolve(parts, names, create=False), names
        found = self._found.get(ref)
        if type(found) is not Keyset or found.generation != generation:
            self._begin(ref, start)
            self._room(ref, ROW * total)
            found = Keyset(generation, total)
        self._room(ref, MISS * len(rows))
        if not found.append(parts, rows, keys, start, self._table.array.count()):
            raise Unknown(ref=ref.hex())
        self._keep(ref, found)

    def drop(self) -> None:
        """Forget everything and give the memory back."""
        self._found.clear()
        self._held.clear()
        self._budget.give_back(self.nbytes)
        self.nbytes = 0

    def _begin(self, ref: bytes, start: int) -> None:
        """Drop what an older generation has under this name; the first message comes first."""
        self._forget(ref)
        if start:
            raise Unknown(ref=ref.hex())

    def _forget(self, ref: bytes) -> None:
        if self._found.pop(ref, None) is not None:
            held = self._held.pop(ref)
            self.nbytes -= held
            self._budget.give_back(held)

    def _room(self, ref: bytes, count: int) -> None:
        if self.nbytes + count > self._limit or count > self._budget.free:
            raise Unknown(ref=ref.hex())

    def _keep(self, ref: bytes, found: Vocabulary | Keyset) -> None:
        held = found.list.nbytes
        more = held - self._held.get(ref, 0)
        if more > self._budget.free:
            # Lists grow in leaps, which may pass what was looked for before.
            self._forget(ref)
            raise Unknown(ref=ref.hex())
        if more > 0:
            self._budget.take(self._table, more)
        else:
            self._budget.give_back(-more)
        self._found[ref] = found
        self._held[ref] = held
        self.nbytes += more


def _merge(parts: Array) -> Array:
    """Join neighbouring groups of one partition."""
    if len(parts) < 2:
        return parts
    begins = np.flatnonzero(np.concatenate(([True], parts[1:, 0] != parts[:-1, 0])))
    counts = np.add.reduceat(parts[:, 1], begins)
    return np.stack((parts[begins, 0], counts), axis=1).astype(np.int32)
