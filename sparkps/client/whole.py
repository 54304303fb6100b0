"""Requests that name whole partitions: scans, counts, and functions that run on the servers.

Not here: rows by key (:mod:`.access`), and what a caller may pass (:mod:`.table`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkps.client.access import Access
from sparkps.client.calls import Call, PullCall, ReduceCall, Request, ScanCall, WriteCall
from sparkps.client.seat import Seat
from sparkps.client.split import whole_parts, whole_slices
from sparkps.errors import InvalidArgument, PSError, WrongType
from sparkps.routing.partitioner import Routes
from sparkps.wire import userfn
from sparkps.wire.effects import Buffer
from sparkps.wire.messages import APPLY, CONFIGURE, REDUCE, Function, Pull, Scan

if TYPE_CHECKING:
    from sparkps.store.builtin import Builtin

Array = npt.NDArray[Any]


class Travelling(NamedTuple):
    """A function on its way: a built-in by its name and numbers, a user's own pickled."""

    builtin: Builtin | None
    name: str
    numbers: dict[str, Any]
    code: bytes | None


def travelling(fn: Any, args: Sequence[Any], *, writes: bool) -> Travelling:
    """Make a function and its arguments ready to travel.

    Raises
    ------
    WrongType
        It cannot be called, or is a built-in that reads where one that writes is needed, or the
        other way round.
    InvalidArgument
        A built-in does not take these arguments.
    """
    # Few workers call functions, and loading them would be a third of the client's own start.
    from sparkps.store import functions  # noqa: PLC0415

    builtin = functions.called(fn, args)
    if builtin is not None:
        if isinstance(builtin, functions.Applier) is not writes:
            got = "reads" if writes else "writes"
            expected = "writes, for apply()" if writes else "reads, for reduce()"
            raise WrongType(
                what=builtin.name,
                got=f"a function that {got}",
                expected=f"one that {expected}",
            )
        return Travelling(builtin, builtin.name, builtin.numbers(), None)
    if not callable(fn):
        raise WrongType(what="fn", got=type(fn).__name__, expected="a function of a partition")
    try:
        code = userfn.dumps((fn, args))
    except PSError:  # one of ours, which says it better
        raise
    except Exception as error:  # a user's object may raise anything when it is pickled
        got = f"an object that cannot be pickled ({error})"
        raise WrongType(
            what="fn, or one of its arguments", got=got, expected="what cloudpickle takes"
        ) from error
    return Travelling(None, "", {}, code)


# --- scans


def scan(access: Access, fields: tuple[int, ...], seat: Seat) -> tuple[Array, list[Array], Array]:
    """Read all rows as of now; see :meth:`Table.scan <sparkps.client.table.Table.scan>`."""
    routes = access.routes()
    if seat.bsp:
        _seal(access, seat, routes)
    dtypes = [(np.dtype(np.int64), None), *_dtypes(access, fields)]
    rows: Array = np.zeros(access.spec.partitions, np.int64)
    groups: dict[int, list[list[Array]]] = {}
    for counts, arrays in _scanned(access, routes, fields, dtypes):
        begin = 0
        for partition, count in counts:
            end = begin + count
            groups.setdefault(partition, []).append([array[begin:end] for array in arrays])
            rows[partition] += count
            begin = end
    ordered = [group for partition in sorted(groups) for group in groups[partition]]
    columns = [
        np.concatenate([np.empty(0 if width is None else (0, width), dtype), *pieces])
        for (dtype, width), pieces in zip(
            dtypes, zip(*ordered, strict=True) if ordered else [()] * len(dtypes), strict=True
        )
    ]
    return columns[0], columns[1:], rows


def count(access: Access) -> int:
    """Count the rows as of now."""
    pieces = _scanned(access, access.routes(), (), [], count_only=True)
    return sum(rows for counts, _ in pieces for _, rows in counts)


def _scanned(
    access: Access,
    routes: Routes,
    fields: tuple[int, ...],
    dtypes: list[tuple[np.dtype[Any], int | None]],
    *,
    count_only: bool = False,
) -> list[tuple[list[tuple[int, int]], list[Array]]]:
    call = ScanCall(dtypes, access.name)
    requests = [
        Request(
            call, server, Scan(0, access.info.id, routes.view, fields, count_only), [partitions], 0
        )
        for server, partitions in whole_parts(routes)
    ]
    access.client.run(call, requests)
    return call.result()


def _seal(access: Access, seat: Seat, routes: Routes) -> None:
    """A bsp worker's first request of a clock seals what it names; a scan does not, so name all
    and read nothing."""
    call = PullCall(access.empty(0), np.empty(0, np.int32), access.name)
    requests = []
    for i, server in enumerate(routes.servers):
        message = Pull(
            0, access.info.id, seat.session, seat.rank, seat.token, seat.clock, routes.view
        )
        parts = routes.parts[routes.bounds[i] : routes.bounds[i + 1]]
        requests.append(Request(call, server, message, [parts, np.empty(0, np.int64)], 0))
    access.client.start(call, requests)


def _dtypes(access: Access, fields: Sequence[int]) -> list[tuple[np.dtype[Any], int | None]]:
    """The dtype and columns of fields."""
    own = (access.dtype, None if access.width == 1 else access.width)
    optimizer = access.spec.optimizer
    kinds: list[tuple[np.dtype[Any], int | None]] = [own]
    if optimizer is not None and any(fields):
        from sparkps.optim import from_spec  # noqa: PLC0415 - few workers read optimizers' fields

        kinds += [
            (np.dtype(np.int64), None) if field.per_row else own
            for field in from_spec(optimizer, userfn.loads).fields()
        ]
    for field in fields:
        if not 0 <= field < len(kinds):
            reason = f"there are {len(kinds)} fields"
            raise InvalidArgument(name="fields", value=field, reason=reason)
    return [kinds[field] for field in fields]


# --- functions


def reduce(access: Access, function: Travelling) -> list[Any]:
    """Run a function on every partition; return the results by partition number."""
    call = ReduceCall(access.name, pickled=function.code is not None)
    routes = access.routes()
    if call.pickled:
        access.client.elevate(routes.servers)
    slices = whole_slices(routes.partitions)
    access.client.run(
        call, _requests(access, call, access.seat(), routes, slices, 0, REDUCE, function)
    )
    return call.result()


def combined(
    function: Travelling, results: list[Any], combine: Callable[[Any, Any], Any] | None
) -> Any:
    """The result of a reduction from those of its partitions; their list if nothing combines it."""
    from sparkps.store.builtin import Reducer, combine_tree  # noqa: PLC0415 - loaded already

    if isinstance(function.builtin, Reducer):
        return function.builtin.result(results)
    return combine_tree(results, combine) if combine is not None else results


def apply(access: Access, seat: Seat, function: Travelling) -> None:
    """Run a function that changes every partition."""
    _change(access, seat, APPLY, function)


def configure(access: Access, seat: Seat, numbers: dict[str, Any]) -> None:
    """Change numbers of the optimizer on every partition."""
    _change(access, seat, CONFIGURE, Travelling(None, "", numbers, None))


def _change(access: Access, seat: Seat, kind: int, function: Travelling) -> None:
    routes = access.routes()
    if function.code is not None:
        access.client.elevate(routes.servers)
    call = WriteCall(seat, seat.chain(access.info.id, access.spec.partitions), access.name)
    slices = whole_slices(routes.partitions)

    def make() -> list[Request]:
        seq = call.chain.add(slices, call.clock)
        return _requests(access, call, seat, routes, slices, seq, kind, function)

    access.client.write(call, make, wait=seat.synchronous)
    if seat.synchronous:
        call.result()


def _requests(
    access: Access,
    call: Call,
    seat: Seat,
    routes: Routes,
    slices: Array,
    seq: int,
    kind: int,
    function: Travelling,
) -> list[Request]:
    _, name, numbers, code = function
    requests = []
    for i, server in enumerate(routes.servers):
        mine = slices[routes.bounds[i] : routes.bounds[i + 1]]
        buffers: list[Buffer] = [mine] if code is None else [mine, code]
        message = Function(
            0,
            access.info.id,
            seat.session,
            seat.rank,
            seat.token,
            seat.clock,
            routes.view,
            seq,
            kind,
            name,
            numbers,
        )
        requests.append(Request(call, server, message, buffers, mine.nbytes + len(code or b"")))
    return requests
