"""Rows of a call, cut into messages.

A call's rows are in *grouped order*: by server, then by partition, then as the caller gave them
(:class:`~sparkps.routing.partitioner.Routes`). Here they are cut into pieces of one server and of
a bounded size, and made into requests. Pulls may be cut anywhere; pushes between slices only, and
the slices themselves depend on the table's width alone, never on servers or message sizes: they
are the units of exactly-once.

A :class:`Naming` says how rows are named on the wire: by key, by ordinal of a vocabulary, or by
their place in a keyset, and gives their keys in case that the server does not know the vocabulary
or keyset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkps.client.calls import PullCall, Request, WriteCall
from sparkps.client.seat import Seat
from sparkps.kernels.keys import cut
from sparkps.routing.partitioner import Routes
from sparkps.spec import MAX_PARTITIONS, SLICE_NUMBERS, TableSpec
from sparkps.wire.effects import Buffer
from sparkps.wire.messages import KEYSET, PLAIN, PUSH, Pull, Push

Array = npt.NDArray[Any]

#: Parts are sent for all partitions of a server unless fewer than one row in this many partitions
#: is named; a partition without rows costs 8 bytes, to leave it out 2 µs.
SPARSE = 4


#: Slices of full size in one message of a write. A server does one message at a time, and new keys
#: are its slowest work: pushes of 100,000 of them in one message kept another client waiting for 61
#: to 104 ms, in messages of 32,768 rows for 15 to 43.
HOLD = 2


class Piece(NamedTuple):
    """Rows ``begin:end`` of the grouped order, on one server whose rows begin at ``first``."""

    server: int
    parts: Array
    begin: int
    end: int
    first: int


class Naming(NamedTuple):
    """How rows are named on the wire.

    ``names`` are keys or ordinals in grouped order; ``keys(begin, end)`` gives the keys of rows.
    """

    mode: int
    ref: bytes = b""
    names: Array | None = None
    keys: Callable[[int, int], Array] | None = None

    @property
    def size(self) -> int:
        """Bytes that name one row."""
        return 0 if self.names is None else int(self.names.itemsize)


class Sizes(NamedTuple):
    """Bytes of a table's rows and messages."""

    row: int
    message: int
    rows_per_slice: int

    def rows(self, name: int) -> int:
        """Rows of one message, request and reply."""
        return max(1, self.message // max(self.row, name, 1))


def sizes_of(spec: TableSpec, message_max: int) -> Sizes:
    """The sizes of a table's messages."""
    row = np.dtype(spec.dtype).itemsize * spec.width
    # Room is left for the header and for what names partitions.
    room = message_max - min(message_max // 4, 48 * MAX_PARTITIONS)
    return Sizes(row, room, max(1, SLICE_NUMBERS // spec.width))


def pieces(routes: Routes, counts: Array, total: int, rows: int) -> list[Piece]:
    """Cut the grouped order into pieces of at most ``rows`` rows.

    Parameters
    ----------
    routes
        Where partitions are.
    counts
        Rows at each position of the server-major order.
    total
        Their sum.
    rows
        The largest piece.
    """
    if len(routes.servers) == 1 and total <= rows:
        return [Piece(routes.servers[0], _parts(routes.parts, counts, total), 0, total, 0)]
    found: list[Piece] = []
    first = 0
    for server, low, high, here in _by_server(routes, counts):
        mine = counts[low:high]
        partitions = routes.parts[low:high]
        if here <= rows:
            found.append(Piece(server, _parts(partitions, mine, here), first, first + here, first))
        else:
            ends = np.cumsum(mine)
            for begin in range(0, here, rows):
                end = min(begin + rows, here)
                inside = np.minimum(ends, end) - np.maximum(ends - mine, begin)
                parts = _parts(partitions, np.maximum(inside, 0), end - begin)
                found.append(Piece(server, parts, first + begin, first + end, first))
        first += here
    return found


def _by_server(routes: Routes, counts: Array) -> Iterator[tuple[int, int, int, int]]:
    """(server, its first position, its end, its rows), for servers that have rows."""
    for i, here in enumerate(routes.per_server(counts)):
        if here:
            yield routes.servers[i], routes.bounds[i], routes.bounds[i + 1], here


def _parts(template: Array, counts: Array, total: int) -> Array:
    if total * SPARSE < len(counts):
        named = counts.nonzero()[0]
        template, counts = template[named], counts[named]
    parts = template.copy()
    parts[:, 1] = counts
    return parts


def _plain(
    head: Array, naming: Naming, begin: int, end: int, rest: Sequence[Buffer] = ()
) -> Sequence[Buffer]:
    """The buffers that name rows by their keys."""
    keys = naming.keys(begin, end) if naming.keys is not None else np.empty(0, np.int64)
    return [head, keys, *rest]


def pull_requests(
    call: PullCall,
    seat: Seat,
    table: int,
    view: int,
    cuts: Sequence[Piece],
    naming: Naming,
    row: int,
) -> list[Request]:
    """Make the requests of a pull."""
    requests = []
    mode, ref, names, keys = naming
    session, rank, token, clock = seat.session, seat.rank, seat.token, seat.clock
    cost = row if names is None else row + names.itemsize
    for server, parts, begin, end, first in cuts:
        if mode == KEYSET:
            message = Pull(
                0, table, session, rank, token, clock, view, KEYSET, ref, begin - first, end - begin
            )
            buffers: Sequence[Buffer] = ()
        else:
            message = Pull(0, table, session, rank, token, clock, view, mode, ref)
            mine: Any = names if end - begin == len(names) else names[begin:end]  # type: ignore[arg-type,index]
            buffers = (parts, mine)
        plain = None if keys is None else partial(_plain, parts, naming, begin, end)
        requests.append(
            Request(call, server, message, buffers, (end - begin) * cost, begin, end, plain)
        )
    return requests


class Cuts(NamedTuple):
    """A write's slices (int64 (k, 6), positions not yet filled) and which go into one message:
    (server, first slice, end, first row, end)."""

    slices: Array
    messages: list[tuple[int, int, int, int, int]]


def cut_slices(routes: Routes, counts: Array, total: int, rows_per_slice: int, rows: int) -> Cuts:
    """Cut a write into slices and messages of at most ``rows`` rows (a slice at least), and of
    HOLD full slices."""
    slices = cut(routes.partitions, counts, rows_per_slice)
    rows = min(rows, HOLD * rows_per_slice)
    if len(routes.servers) == 1 and total <= rows:
        return Cuts(slices, [(routes.servers[0], 0, len(slices), 0, total)])
    ends = np.cumsum(slices[:, 2])
    messages: list[tuple[int, int, int, int, int]] = []
    row = low = 0
    for server, _, _, here in _by_server(routes, counts):
        last = row + here
        while row < last:
            high = int(np.searchsorted(ends, min(row + rows, last), side="right"))
            high = max(high, low + 1)
            end = int(ends[high - 1])
            messages.append((server, low, high, row, end))
            row, low = end, high
    return Cuts(slices, messages)


def push_requests(
    call: WriteCall,
    seat: Seat,
    table: int,
    routes: Routes,
    cuts: Cuts,
    naming: Naming,
    values: Sequence[Array],
    kind: int = PUSH,
) -> list[Request]:
    """Chain the slices of a write and make its requests; called under the client's lock.

    ``values`` is one array, or one per field for a write of whole rows. The first write of a bsp
    run to a table goes, empty, to the table's other servers too: the table is the run's from then
    on, on all of them.
    """
    slices, messages = cuts
    first = seat.bsp and call.chain.empty
    seq = call.chain.add(slices, call.clock)
    view = routes.view
    mode, ref, names, keys = naming
    cost = naming.size + sum(array.nbytes // max(len(array), 1) for array in values)
    requests = []
    for server, low, high, begin, end in messages:
        message = Push(
            0, table, seat.session, seat.rank, seat.token, call.clock, view, seq, mode, ref, kind
        )
        mine = slices[low:high]
        rows = [array[begin:end] for array in values]
        buffers: Sequence[Buffer] = (
            [mine, *rows] if names is None else [mine, names[begin:end], *rows]
        )
        request = Request(call, server, message, buffers, (end - begin) * cost, begin, end)
        if keys is not None:
            request.plain = partial(_push_plain, request, naming)
        requests.append(request)
    if first:
        named = {server for server, *_ in messages}
        requests += [
            _claim(call, seat, table, view, seq, server, values[0])
            for server in routes.servers
            if server not in named
        ]
    return requests


def _claim(
    call: WriteCall, seat: Seat, table: int, view: int, seq: int, server: int, values: Array
) -> Request:
    """A write of no rows."""
    message = Push(0, table, seat.session, seat.rank, seat.token, call.clock, view, seq, PLAIN)
    nothing = [np.empty((0, 6), np.int64), np.empty(0, np.int64), values[:0]]
    return Request(call, server, message, nothing, 0)


def _push_plain(request: Request, naming: Naming) -> Sequence[Buffer]:
    # Slices are taken from the request: their chain may have changed since it was made.
    return _plain(request.buffers[0], naming, request.begin, request.end, request.buffers[-1:])  # type: ignore[arg-type]


def plain_naming(keys: Array) -> Naming:
    """Rows named by their keys."""
    return Naming(PLAIN, b"", keys)


def whole_parts(routes: Routes) -> list[tuple[int, Array]]:
    """Each server's partitions, for requests that name whole partitions."""
    return [
        (server, routes.partitions[low:high])
        for server, low, high in zip(
            routes.servers, routes.bounds[:-1], routes.bounds[1:], strict=True
        )
    ]


def whole_slices(partitions: Array) -> Array:
    """One empty slice per partition, for functions; positions not yet filled."""
    slices: Array = np.full((len(partitions), 6), -1, np.int64)
    slices[:, 0] = partitions
    slices[:, 1:3] = 0
    return slices
