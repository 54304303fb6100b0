"""Pulls, scans, and the registration of what later requests refer to. They never change a table.

The rules (SEMANTICS §5, §7):

* A worker's request of clock c, in bsp, proves that every rank has passed the barrier of c: what is
  staged below c is sealed first, so that it sees exactly the clocks below c. A request without a
  session, and the driver's, sees the last sealed state.
* A row that does not exist reads as what ``init`` gives; it is not created.
* A partition that is not here, or was given away after the view that the sender knows, is answered
  by *not mine*.
* A scan shows all its partitions as of one moment: everything is copied before anything is sent.

Answers are fresh arrays, never views of a table.

Not here: reductions (:mod:`sparkps.server.calls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import MalformedRequest
from sparkps.server.hosted import Hosted
from sparkps.server.refs import References
from sparkps.server.state import DOOR_ERRORS, NotHere, State
from sparkps.store import Table
from sparkps.wire.effects import Buffer
from sparkps.wire.frames import as_array, encode
from sparkps.wire.messages import (
    KEYSET,
    PLAIN,
    Acked,
    Chunk,
    Function,
    MakeKeyset,
    Pull,
    Register,
    Rows,
    Scan,
)

Array = NDArray[Any]


def reader(state: State, hosted: Hosted, message: Pull | Function) -> None:
    """Check the session of a read, if it has one, and seal what the read proves to be over."""
    session = state.sessions.check(message.session, message.rank, message.token)
    if session.stages(message.rank):
        state.seal(hosted, session, message.clock)


def check_here(hosted: Hosted, partitions: Array, view: int) -> None:
    """Raise :class:`NotHere` unless all the partitions are served here in the sender's view."""
    if not hosted.here(partitions) or hosted.outdated(view, partitions):
        raise NotHere(table=hosted.table.info.id)


def pull(state: State, peer: Any, message: Pull, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Read rows."""
    hosted = state.tables.get(message.table) or state.hosted(message.table)
    if message.session:
        reader(state, hosted, message)
    table = hosted.table
    mode = message.mode
    if mode == KEYSET:
        keyset = hosted.reference(message.session or peer).keyset(message.ref, hosted.generation)
        named = keyset.name(message.first, message.count)
        parts = named.parts
        if message.view < hosted.newest_change:
            check_here(hosted, parts[:, 0], message.view)
        values = table.read(parts, named.resolve(table, False), named.keys)
        return encode(Rows(message.id), values)
    parts = as_array(buffers[0], np.int32, 2)
    if message.view < hosted.newest_change:
        check_here(hosted, parts[:, 0], message.view)
    try:
        if mode == PLAIN:
            keys = as_array(buffers[1], np.int64)
            values = table.read(parts, table.resolve(parts, keys, False), keys)
        else:
            words = hosted.reference(message.session or peer)
            vocabulary = words.vocabulary(message.ref, hosted.generation)
            named = vocabulary.name(parts, as_array(buffers[1], np.int32))
            values = table.read(parts, named.resolve(table, False), named.keys)
    except DOOR_ERRORS:
        check_here(hosted, parts[:, 0], message.view)
        raise
    return encode(Rows(message.id), values)


def register(state: State, peer: Any, message: Register, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Add keys to a vocabulary."""
    hosted, refs = _references(state, peer, message)
    parts = as_array(buffers[0], np.int32, 2)
    keys = as_array(buffers[1], np.int64)
    check_here(hosted, parts[:, 0], message.view)
    refs.register(message.ref, hosted.generation, parts, keys, message.start)
    return encode(Acked(message.id))


def make_keyset(
    state: State, peer: Any, message: MakeKeyset, buffers: Sequence[Buffer]
) -> list[Buffer]:
    """Add a piece to a keyset."""
    hosted, refs = _references(state, peer, message)
    parts = as_array(buffers[0], np.int32, 2)
    names = as_array(buffers[1], np.int32 if message.vocabulary else np.int64)
    check_here(hosted, parts[:, 0], message.view)
    refs.make_keyset(
        message.ref,
        hosted.generation,
        parts,
        names,
        message.start,
        message.total,
        message.vocabulary,
    )
    return encode(Acked(message.id))


def scan(state: State, message: Scan, buffers: Sequence[Buffer]) -> list[list[Buffer]]:
    """Read whole partitions; return the frames of every chunk."""
    hosted = state.hosted(message.table)
    table = hosted.table
    partitions = as_array(buffers[0], np.int32)
    check_here(hosted, partitions, message.view)
    if not all(0 <= field < len(table.field_names) for field in message.fields):
        raise MalformedRequest(
            reason=f"fields {list(message.fields)}; table {table.spec.name!r} has "
            f"{len(table.field_names)}"
        )
    order = np.unique(partitions)
    counts = table.count(order).tolist()
    sizes = list(zip(order.tolist(), counts, strict=True))
    if message.count_only:
        return [encode(Chunk(message.id, sizes, more=False))]
    row = _row_bytes(table, message.fields)
    needed = row * sum(counts)
    if needed > state.budget.free:
        raise state.budget.exceeded(table, needed)
    pieces = list(_chunks(sizes, max(1, state.max_bytes // row)))
    return [
        encode(
            Chunk(message.id, [(p, b - a) for p, a, b in piece], more=i + 1 < len(pieces)),
            *_copies(table, piece, message.fields),
        )
        for i, piece in enumerate(pieces)
    ]


def _references(
    state: State, peer: Any, message: Register | MakeKeyset
) -> tuple[Hosted, References]:
    hosted = state.hosted(message.table)
    if message.session:
        state.sessions.check(message.session, message.rank, message.token)
    if not 0 <= message.start < 2**62 or not 0 <= getattr(message, "total", 0) < 2**62:
        raise MalformedRequest(reason=f"{message} is out of range")
    owner = message.session or peer
    refs = hosted.refs.get(owner)
    if refs is None:
        refs = References(hosted.table, state.keysets_max_bytes, state.budget)
        hosted.refs[owner] = refs
    return hosted, refs


Piece = list[tuple[int, int, int]]


def _chunks(sizes: list[tuple[int, int]], limit: int) -> Iterator[Piece]:
    """Cut partitions into chunks of ``limit`` rows: (partition, first row, last row + 1)."""
    piece: Piece = []
    left = limit
    for partition, count in sizes:
        begin = 0
        while count - begin > left:
            piece.append((partition, begin, begin + left))
            yield piece
            begin += left
            piece, left = [], limit
        piece.append((partition, begin, count))
        left -= count - begin
    yield piece


def _copies(table: Table, piece: Piece, fields: tuple[int, ...]) -> list[Buffer]:
    """Keys and fields of the rows of a chunk, as fresh arrays."""
    keys: list[Buffer] = [
        np.concatenate([table.keys(p)[a:b] for p, a, b in piece] or [np.empty(0, np.int64)])
    ]
    return keys + [
        np.concatenate([table.field(p, field)[a:b] for p, a, b in piece] or [np.empty(0)])
        for field in fields
    ]


def _row_bytes(table: Table, fields: tuple[int, ...]) -> int:
    numbers = [1 if table.field_specs[field].per_row else table.spec.width for field in fields]
    return 8 + sum(
        n * (8 if table.field_specs[field].per_row else table.dtype.itemsize)
        for n, field in zip(numbers, fields, strict=True)
    )
