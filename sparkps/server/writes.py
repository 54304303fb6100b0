"""Pushes and assigns: into the ledger, then into the table or onto the stage.

The order of things, for every write (SEMANTICS §2, §4, §5):

1. The session is open, and the token is the one that its rank has now. Otherwise the message is
   refused as a whole and has changed nothing.
2. The message fits itself: counts, lengths, ordinals, keys of a dense table. The same.
3. In bsp, a worker's write of clock c proves that every rank has passed the barrier of c: what is
   staged below c is sealed.
4. The ledger decides about each slice: accepted, duplicate, gap, late, not mine.
5. Accepted slices are applied, or staged if a worker of a bsp session sent them. If that fails
   (memory, a table that another session owns, an error in the user's optimizer) they keep their
   place in the ledger and are answered as refused, now and whenever they come again.

The driver's own writes, in ``on_epoch`` too, are applied at once: nobody else writes then.

Not here: what the ledger's rules are (:mod:`sparkps.consistency.ledger`), and server functions
(:mod:`sparkps.server.calls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.consistency.ledger import Ledger
from sparkps.errors import MalformedRequest, NotInRun, PSError
from sparkps.kernels import ledger as kernels
from sparkps.server.hosted import Hosted
from sparkps.server.named import Named
from sparkps.server.sessions import OpenSession
from sparkps.server.staging import Staged, StagedRows, size_of
from sparkps.server.state import USERS, State
from sparkps.spec import NO_SESSION, Position
from sparkps.store import Table
from sparkps.wire.effects import Buffer
from sparkps.wire.frames import as_array, encode
from sparkps.wire.messages import (
    APPLIED,
    ASSIGN,
    DUPLICATE,
    KEYSET,
    NOT_MINE,
    PLAIN,
    PUSH,
    REFUSED,
    RESTORE,
    Acked,
    Function,
    Push,
)

Array = NDArray[Any]

_WORDS = {PUSH: "push", ASSIGN: "assign", RESTORE: "restore"}


class Entry:
    """A write after the ledger has decided about it.

    Attributes
    ----------
    status
        uint8 (k,), one per slice.
    accepted
        How many slices are to be applied.
    staged
        Where they are staged, None if they are applied at once.
    error
        The error of refused slices.
    """

    __slots__ = ("_ledger", "_message", "_slices", "accepted", "error", "staged", "status")

    def __init__(self, message: Push | Function, slices: Array, ledger: Ledger) -> None:
        self._message = message
        self._slices = slices
        self._ledger = ledger
        self.status: Array = np.empty(len(slices), np.uint8)
        self.accepted = 0
        self.staged: Staged | None = None
        self.error: PSError | None = None

    @property
    def whole(self) -> bool:
        """Whether every slice was accepted."""
        return self.accepted == len(self.status)

    def refuse(self, error: PSError) -> None:
        """The accepted slices could not be applied; they keep their place, and their error."""
        for i in np.flatnonzero(self.status == APPLIED).tolist():
            self._ledger.refused[self._position(i)] = error
            self.status[i] = REFUSED
        self.accepted = 0
        self.error = error

    def recall(self) -> None:
        """A duplicate of a refused slice is refused again."""
        for i in np.flatnonzero(self.status == DUPLICATE).tolist():
            error = self._ledger.refused.get(self._position(i))
            if error is not None:
                self.status[i] = REFUSED
                self.error = error

    def reply(self) -> list[Buffer]:
        """The answer: what became of each slice."""
        if self.error is not None:
            return encode(Acked(self._message.id, *self.error.to_wire()), self.status)
        if self.whole:
            return encode(Acked(self._message.id))
        return encode(Acked(self._message.id), self.status)

    def _position(self, i: int) -> tuple[int, Position]:
        partition, piece = self._slices[i, :2].tolist()
        return partition, Position(self._message.clock, self._message.seq, piece)


def enter(
    state: State,
    hosted: Hosted,
    session: OpenSession,
    message: Push | Function,
    slices: Array,
) -> Entry:
    """Let the ledger decide about each slice of a write; seal what it proves to be over."""
    ledger = hosted.ledger(message.session, message.rank)
    entry = Entry(message, slices, ledger)
    sealed = None
    if session.stages(message.rank):
        entry.staged = state.seal(hosted, session, message.clock)
        sealed = entry.staged.sealed_at
    if message.view < hosted.newest_change and hosted.outdated(message.view, slices[:, 0]):
        entry.status.fill(NOT_MINE)
        return entry
    entry.accepted = kernels.check(
        hosted.table.array,
        ledger.array,
        slices,
        message.clock,
        message.seq,
        sealed,
        sealed is not None,
        entry.status,
    )
    if ledger.refused and not entry.whole:
        entry.recall()
    return entry


def writer(state: State, hosted: Hosted, message: Push | Function, what: str) -> OpenSession:
    """The session of a write.

    Raises
    ------
    NotInRun, SessionEnded, TokenLost
        If the sender may not write.
    """
    if message.session == NO_SESSION:
        raise NotInRun(table=hosted.table.spec.name, what=what)
    return state.sessions.check(message.session, message.rank, message.token)


def push(state: State, message: Push, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Take a push or an assign; return the reply."""
    hosted = state.hosted(message.table)
    session = writer(state, hosted, message, _WORDS.get(message.kind, "a write"))
    table = hosted.table
    slices = as_array(buffers[0], np.int64, 6)
    named, total = _name(hosted, message, slices, buffers)
    fields = _fields(hosted, session, message, buffers)
    _check(named, total, fields, message)
    if not len(slices):  # the first write of a bsp run, to servers that have none of its rows
        hosted.own(session)
    entry = enter(state, hosted, session, message, slices)
    if entry.accepted == 0:
        return entry.reply()
    if not entry.whole:
        keep = entry.status == APPLIED
        rows = named.select(keep)
        fields = [values[rows] for values in fields]
        slices = slices[keep]
    try:
        hosted.own(session)
        if entry.staged is None:
            found = named.rows
            if found is None or named.keys is not None:
                found = state.budget.growing(table, partial(named.resolve, table, True))
            _apply(table, message.kind, named.parts, found, fields)
        else:
            _stage(state, hosted, entry.staged, message, slices, named, fields[0])
    except USERS as error:  # a user's optimizer may raise anything
        entry.refuse(state.failure(hosted, "its optimizer", error))
    return entry.reply()


def _apply(table: Table, kind: int, parts: Array, rows: Array, fields: list[Array]) -> None:
    if kind == PUSH:
        table.push(parts, rows, fields[0])
    elif kind == ASSIGN:
        table.assign(parts, rows, fields[0])
    else:
        table.restore(parts, rows, fields)


def _fields(
    hosted: Hosted, session: OpenSession, message: Push, buffers: Sequence[Buffer]
) -> list[Array]:
    """The numbers of a write: gradients or values, or all fields of the rows that are restored."""
    table = hosted.table
    width = table.spec.width if table.spec.width > 1 else None
    if message.kind != RESTORE:
        return [as_array(buffers[-1], table.dtype, width)]
    if message.mode != PLAIN or session.stages(message.rank):
        raise MalformedRequest(reason="rows are restored by their keys, outside a bsp run")
    if len(buffers) - 2 != len(table.field_specs):
        raise MalformedRequest(
            reason=f"{len(buffers) - 2} fields are restored, {len(table.field_specs)} are needed"
        )
    return [
        as_array(buffer, np.int64) if field.per_row else as_array(buffer, table.dtype, width)
        for buffer, field in zip(buffers[2:], table.field_specs, strict=True)
    ]


def _stage(
    state: State,
    hosted: Hosted,
    staged: Staged,
    message: Push,
    slices: Array,
    named: Named,
    values: Array,
) -> None:
    rows = named.resolve(hosted.table, create=False)
    keys = named.keys
    if keys is not None and not (rows < 0).any():
        keys = None
    state.budget.take(hosted.table, size_of(rows, keys, values))
    write = StagedRows(
        message.rank, message.seq, message.kind, slices[:, :3].copy(), rows, keys, values
    )
    staged.add(message.clock, write)


def _name(
    hosted: Hosted, message: Push, slices: Array, buffers: Sequence[Buffer]
) -> tuple[Named, int]:
    """The rows that a write names, and how many its slices count; nothing is looked up in a hashed
    table yet."""
    if message.mode == KEYSET:
        keyset = hosted.reference(message.session).keyset(message.ref, hosted.generation)
        named = keyset.name_slices(slices, hosted.rows_per_slice)
        return named, 0 if named.rows is None else len(named.rows)
    parts, total = kernels.groups(slices)
    if message.mode == PLAIN:
        keys = as_array(buffers[1], np.int64)
        named = Named(parts, None, keys)
        if hosted.table.spec.dim is not None and hosted.here(parts[:, 0]):
            named.rows = hosted.table.resolve(parts, keys, False)
            named.keys = None
        return named, total
    words = hosted.reference(message.session).vocabulary(message.ref, hosted.generation)
    return words.name(parts, as_array(buffers[1], np.int32)), total


def _check(named: Named, total: int, fields: list[Array], message: Push) -> None:
    """Counts and lengths, which no kernel sees before the ledger does."""
    if message.kind not in (PUSH, ASSIGN, RESTORE):
        raise MalformedRequest(reason=f"there is no kind {message.kind} of Push")
    rows = named.keys if named.rows is None else named.rows
    n = 0 if rows is None else len(rows)
    if total != n or any(len(values) != n for values in fields):
        lengths = {len(values) for values in fields}
        have = ", ".join(map(str, sorted(lengths)))
        raise MalformedRequest(
            reason=f"the slices count {total} rows, {n} are named, and {have} have values"
        )
