"""Staged writes of a bsp session on one table, and the seal that applies them.

The rules (SEMANTICS §5, §6):

* A write of clock c is kept until the seal of a clock above c. A seal applies clock by clock.
* Within a clock, writes are applied in (rank, seq, slice) order, in whatever order they arrived: a
  key's pushes are summed in that order, and the optimizer is called once per key with the sum.
* An assign, a function or a configure takes effect at its place in that order, and closes the sums
  before it in the partitions that it touches, and in no others: a message goes to the servers that
  have those, so anything else would make the bits depend on which server has what.
* Missing rows are created by the seal, in that order, so the order of a partition's rows depends
  on nothing else.
* One seal covers all partitions of the table that are here. The first request of clock c proves
  that every rank has passed the barrier, for all partitions alike; and a configure, which belongs
  to the whole table, then has one place.
* What cannot be applied any more (memory, an error in the user's code) breaks the session: every
  later request of it on this table gets that error.

A write may come in several messages. Each is kept as it came, and cut into its slices at the seal.

Not here: ledgers (:mod:`sparkps.server.writes` moves them up after a seal), and whether a request
may seal (:mod:`sparkps.server.reads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparkps.errors import PSError
from sparkps.server.budget import Budget
from sparkps.server.named import fill
from sparkps.store import Table
from sparkps.wire.messages import ASSIGN

Array = NDArray[Any]

#: Rows that are put in order and summed at once: bounds the memory of a seal, which needs a copy of
#: what it sums. A block is whole partitions, so one large partition may exceed it.
BLOCK_ROWS: Final = 1 << 20


class StagedRows(msgspec.Struct):
    """A message of a push or an assign: ``slices`` int64 (k, 3) = (partition, slice, count)."""

    rank: int
    seq: int
    kind: int
    slices: Array
    rows: Array
    keys: Array | None
    values: Array


class StagedCall(msgspec.Struct):
    """A function or a configure: ``run`` does it, on the partitions that the message named."""

    rank: int
    seq: int
    run: Callable[[], None]


Write = StagedRows | StagedCall


class Staged:
    """What one bsp session has staged on one table.

    Attributes
    ----------
    sealed
        The first clock that is not sealed; also as ``sealed_at``, int64 (P,), all equal.
    nbytes
        Bytes taken for what is staged.
    broken
        The error of a seal that failed, None while all is well.
    """

    __slots__ = ("_clocks", "broken", "nbytes", "sealed", "sealed_at")

    def __init__(self, partitions: int) -> None:
        self._clocks: dict[int, list[Write]] = {}
        self.nbytes = 0
        self.sealed = 0
        self.sealed_at: Array = np.zeros(partitions, np.int64)
        self.broken: PSError | None = None

    def __len__(self) -> int:
        return sum(len(writes) for writes in self._clocks.values())

    def add(self, clock: int, write: Write) -> None:
        """Keep a write of a clock; its bytes (:func:`size_of`) were taken from the budget."""
        self._clocks.setdefault(clock, []).append(write)
        self.nbytes += _size(write)

    def seal(self, table: Table, clock: int, budget: Budget) -> bool:
        """Apply everything below ``clock``; return whether there was anything."""
        due = sorted(c for c in self._clocks if c < clock)
        self.sealed = clock
        self.sealed_at.fill(clock)
        for c in due:
            writes = self._clocks.pop(c)
            _apply(table, writes, budget)
            freed = sum(_size(write) for write in writes)
            self.nbytes -= freed
            budget.give_back(freed)
        return bool(due)


def size_of(rows: Array, keys: Array | None, values: Array) -> int:
    """Bytes that a staged message takes."""
    return rows.nbytes + values.nbytes + (0 if keys is None else keys.nbytes)


def _size(write: Write) -> int:
    return 0 if isinstance(write, StagedCall) else size_of(write.rows, write.keys, write.values)


def _apply(table: Table, writes: list[Write], budget: Budget) -> None:
    """Apply the writes of one clock."""
    writes.sort(key=lambda write: (write.rank, write.seq))
    group: list[StagedRows] = []
    i = 0
    while i < len(writes):
        write = writes[i]
        i += 1
        if isinstance(write, StagedCall):
            _apply_rows(table, group, budget)
            group = []
            write.run()
        elif write.kind != ASSIGN:
            group.append(write)
        else:
            assign = [write]
            while i < len(writes) and (writes[i].rank, writes[i].seq) == (write.rank, write.seq):
                assign.append(cast(StagedRows, writes[i]))
                i += 1
            due, group = _divide(group, assign)
            _apply_rows(table, due, budget)
            _apply_rows(table, assign, budget)
    _apply_rows(table, group, budget)


def _divide(
    pushes: list[StagedRows], assign: list[StagedRows]
) -> tuple[list[StagedRows], list[StagedRows]]:
    """Divide pushes into those to the partitions of an assign, whose sums it closes, and the
    others."""
    partitions = np.concatenate([write.slices[:, 0] for write in assign])
    due, others = [], []
    for push in pushes:
        closed = np.isin(push.slices[:, 0], partitions)
        if closed.any():
            due.append(_select(push, closed))
        if not closed.all():
            others.append(_select(push, ~closed))
    return due, others


def _select(write: StagedRows, keep: Array) -> StagedRows:
    """Some slices of a message."""
    rows = np.repeat(keep, write.slices[:, 2])
    return StagedRows(
        write.rank,
        write.seq,
        write.kind,
        write.slices[keep],
        write.rows[rows],
        None if write.keys is None else write.keys[rows],
        write.values[rows],
    )


def _apply_rows(table: Table, writes: list[StagedRows], budget: Budget) -> None:
    """Apply pushes as one sum, or one assign."""
    if not writes:
        return
    apply = table.assign if writes[0].kind == ASSIGN else table.seal
    for parts, rows, keys, values in _blocks(writes):
        if keys is None:
            apply(parts, rows, values)
        else:
            create = partial(fill, table, parts, rows, keys, True)
            apply(parts, budget.growing(table, create), values)


def _blocks(writes: list[StagedRows]) -> Iterator[tuple[Array, Array, Array | None, Array]]:
    """Whole partitions, ascending, each in (rank, seq, slice) order."""
    pieces = _pieces(writes)
    begin = 0
    rows = 0
    for i, piece in enumerate(pieces):
        if rows >= BLOCK_ROWS and piece[0] != pieces[i - 1][0]:
            yield _block(writes, pieces[begin:i])
            begin, rows = i, 0
        rows += piece[3] - piece[2]
    if begin < len(pieces):
        yield _block(writes, pieces[begin:])


Piece = tuple[int, int, int, int]


def _pieces(writes: list[StagedRows]) -> list[Piece]:
    """(partition, number of the message, first row, last row + 1) of every slice, in order."""
    count = [len(write.slices) for write in writes]
    slices = np.concatenate([write.slices for write in writes])
    message = np.repeat(np.arange(len(writes)), count)
    ends = np.concatenate([np.cumsum(write.slices[:, 2]) for write in writes])
    rank = np.repeat([write.rank for write in writes], count)
    seq = np.repeat([write.seq for write in writes], count)
    order = np.lexsort((slices[:, 1], seq, rank, slices[:, 0]))
    columns = (slices[:, 0], message, ends - slices[:, 2], ends)
    return list(zip(*(column[order].tolist() for column in columns), strict=True))


def _block(
    writes: list[StagedRows], pieces: list[Piece]
) -> tuple[Array, Array, Array | None, Array]:
    partitions = np.array([piece[0] for piece in pieces])
    counts = np.array([piece[3] - piece[2] for piece in pieces])
    begins = np.flatnonzero(np.concatenate(([True], partitions[1:] != partitions[:-1])))
    parts = np.stack((partitions[begins], np.add.reduceat(counts, begins)), axis=1)
    rows = np.concatenate([writes[m].rows[a:b] for _, m, a, b in pieces])
    values = np.concatenate([writes[m].values[a:b] for _, m, a, b in pieces])
    keys = None
    if any(writes[m].keys is not None for _, m, _, _ in pieces):
        keys = np.concatenate([_keys(writes[m], a, b) for _, m, a, b in pieces])
    return parts.astype(np.int32), rows, keys, values


def _keys(write: StagedRows, begin: int, end: int) -> Array:
    if write.keys is None:
        return np.zeros(end - begin, np.int64)
    return write.keys[begin:end]
