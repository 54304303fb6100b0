"""Server functions: reduce (a read), apply and configure (writes).

The rules (SEMANTICS §2, §5, §6; DESIGN §10):

* A function runs once per partition, on its rows in row order. A reduction answers one partial per
  partition and combines nothing, so that its bits do not depend on who holds what.
* A built-in travels by name and numbers. Anything else is a pickle, and is unpickled only if it
  came over a trusted listener.
* apply and configure are writes like any other: through the ledger, staged in bsp. So a retried
  ``apply(axpy)`` does not run twice.
* A user's function may raise. A reduction then fails as a whole; of an apply, what the function had
  written stays, its slices are refused, and the error says where it was raised.

Not here: what the built-ins do (:mod:`sparkps.store.functions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import FunctionRefused, InvalidArgument, MalformedRequest
from sparkps.server.hosted import Hosted
from sparkps.server.reads import check_here, reader
from sparkps.server.staging import StagedCall
from sparkps.server.state import USERS, State
from sparkps.server.writes import enter, writer
from sparkps.store.builtin import Applier, Reducer, TableApplier, TableReducer
from sparkps.store.functions import builtin
from sparkps.wire import arrays, userfn
from sparkps.wire.effects import Buffer
from sparkps.wire.frames import as_array, encode
from sparkps.wire.messages import APPLIED, CONFIGURE, REDUCE, Function, Results

Array = NDArray[Any]


def call(state: State, trusted: bool, message: Function, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Run a function on the partitions that a message names; return the reply."""
    hosted = state.hosted(message.table)
    slices = as_array(buffers[0], np.int64, 6)
    if message.kind == REDUCE:
        return _reduce(state, hosted, trusted, message, slices[:, 0], buffers)
    session = writer(state, hosted, message, "configure" if message.kind == CONFIGURE else "apply")
    entry = enter(state, hosted, session, message, slices)
    if entry.accepted == 0:
        return entry.reply()
    partitions = slices[entry.status == APPLIED, 0].tolist()
    try:
        hosted.own(session)
        run = _write(state, hosted, trusted, message, partitions, buffers)
        if entry.staged is None:
            run()
        else:
            entry.staged.add(message.clock, StagedCall(message.rank, message.seq, run))
    except USERS as error:  # unpickling a user's function may raise anything
        entry.refuse(state.failure(hosted, "the function", error, partitions[0]))
    return entry.reply()


def _reduce(
    state: State,
    hosted: Hosted,
    trusted: bool,
    message: Function,
    partitions: Array,
    buffers: Sequence[Buffer],
) -> list[Buffer]:
    if message.session:
        reader(state, hosted, message)
    check_here(hosted, partitions, message.view)
    if message.name:
        reducer = builtin(message.name, message.numbers)
        if not isinstance(reducer, Reducer):
            raise MalformedRequest(reason=f"{message.name} is for apply, not for reduce")
        results = _partials(state, hosted, partitions.tolist(), reducer)
        shapes, packed = arrays.pack(results)
        return encode(Results(message.id, shapes), b"", *packed)
    function, args = _unpickle(state, hosted, trusted, buffers[1])
    results = _each(state, hosted, partitions.tolist(), function, args)
    try:
        pickled = userfn.dumps(results)
    except USERS as error:
        raise state.failure(hosted, "pickling the results of the function", error, "any") from error
    return encode(Results(message.id), b"", pickled)


def _write(
    state: State,
    hosted: Hosted,
    trusted: bool,
    message: Function,
    partitions: list[int],
    buffers: Sequence[Buffer],
) -> Callable[[], None]:
    """What a write does when its time has come; all that can be checked is checked now."""
    table = hosted.table
    if message.kind == CONFIGURE:
        if table.optimizer is None:
            reason = f"table {table.spec.name!r} has no optimizer to configure"
            raise InvalidArgument(name="configure", value=message.numbers, reason=reason)
        table.optimizer.configured(**message.numbers)
        return partial(table.configure, message.numbers)
    if not message.name:
        function, args = _unpickle(state, hosted, trusted, buffers[1])
        return partial(_apply, state, hosted, partitions, function, args)
    applier = builtin(message.name, message.numbers)
    if not isinstance(applier, Applier):
        raise MalformedRequest(reason=f"{message.name} is for reduce, not for apply")
    if isinstance(applier, TableApplier):
        return partial(_apply_together, state, hosted, partitions, applier)
    return partial(_apply, state, hosted, partitions, applier, ())


def _apply_together(
    state: State, hosted: Hosted, partitions: list[int], applier: TableApplier
) -> None:
    try:
        hosted.table.apply_together(partitions, applier)
    except USERS as error:
        raise state.failure(hosted, applier.name, error) from error


def _apply(
    state: State,
    hosted: Hosted,
    partitions: list[int],
    function: Callable[..., Any],
    args: Sequence[Any],
) -> None:
    for partition in partitions:
        try:
            hosted.table.apply(partition, function, *args)
        except USERS as error:
            raise state.failure(hosted, _name(function), error, partition) from error


def _partials(
    state: State, hosted: Hosted, partitions: list[int], reducer: Reducer
) -> list[tuple[int, Any]]:
    if not isinstance(reducer, TableReducer):
        return _each(state, hosted, partitions, reducer.partial, ())
    try:
        found = hosted.table.reduce_together(partitions, reducer)
    except USERS as error:
        raise state.failure(hosted, reducer.name, error) from error
    return list(zip(partitions, found, strict=True))


def _each(
    state: State,
    hosted: Hosted,
    partitions: list[int],
    function: Callable[..., Any],
    args: Sequence[Any],
) -> list[tuple[int, Any]]:
    results = []
    for partition in partitions:
        try:
            results.append((partition, hosted.table.reduce(partition, function, *args)))
        except USERS as error:
            raise state.failure(hosted, _name(function), error, partition) from error
    return results


def _unpickle(
    state: State, hosted: Hosted, trusted: bool, pickle: Buffer
) -> tuple[Callable[..., Any], Sequence[Any]]:
    if not trusted:
        raise FunctionRefused(
            what="a function of your own",
            reason="it came over a connection that is not encrypted; use the control port",
        )
    try:
        function, args = state.loads(pickle)
        bad = not callable(function) or not isinstance(args, (tuple, list))
    except USERS as error:
        raise state.failure(hosted, "unpickling the function", error, "any") from error
    if bad:
        raise MalformedRequest(reason="a function is sent as (callable, arguments)")
    return function, args


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None) or getattr(function, "name", None)
    return str(name or type(function).__name__)
