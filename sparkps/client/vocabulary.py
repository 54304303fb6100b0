"""Vocabularies: keys that travel to the servers once; batches then send int32 ordinals.

Rules (SEMANTICS §8):

* An *ordinal* is a key's place in the list, in order of first appearance. On the wire stands the
  key's place in the part of the list that is on its server; both sides count keys as they are
  registered.
* New keys are registered by the first request that names one of them, ahead of it on the same
  connection; nobody waits. A server that has no room (memory is bounded, nothing is evicted)
  leaves the list as it is: requests with later keys go by plain keys.
* A server that does not know the list gets the same request by plain keys, and the list anew.
* A list belongs to a session: used in another one, it is registered anew there.

Memory per key: 8 bytes for it, 6 to 12 for the index that finds its ordinal, 2 for its partition
and 4 for its place.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparkps.client.access import Access, Pending, cached_pull
from sparkps.client.arguments import as_keys, as_ordinals, as_values, refuse_keys, refuse_ordinals
from sparkps.client.cache import RowCache
from sparkps.client.calls import Request, SetUpCall
from sparkps.client.keyset import Keyset, done, ready
from sparkps.client.seat import Seat
from sparkps.client.split import Naming, cut_slices, pieces
from sparkps.kernels.arrays import put, take
from sparkps.kernels.index import KeyIndex
from sparkps.kernels.keys import partition_sort, partition_sort_by
from sparkps.kernels.sums import sum_by_key
from sparkps.routing.partitioner import Routes
from sparkps.wire.messages import ORDINALS, PLAIN, Register

Array = npt.NDArray[Any]
Int32s = npt.NDArray[np.int32]

#: Keys registered at a time, which bounds the temporary memory of it (26 bytes per key).
BLOCK: Final = 1 << 20


class Vocabulary:
    """A growing list of distinct keys of a table; used by one thread at a time.

    Examples
    --------
    >>> v = table.vocabulary()                    # doctest: +SKIP
    >>> ordinals = v.add([7, -2, 7])              # doctest: +SKIP
    >>> ordinals                                  # doctest: +SKIP
    array([0, 1, 0], dtype=int32)
    >>> values = v.pull(ordinals)                 # doctest: +SKIP
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._index = KeyIndex()
        self._part: npt.NDArray[np.uint16] = np.empty(0, np.uint16)
        self._place: Int32s = np.empty(0, np.int32)
        self._registered = 0
        self._usable = 0
        self._full = False
        self._ref = b""
        self._starts: dict[int, int] = {}
        self._seat: Seat | None = None
        self._routes: Routes | None = None
        self._cache: RowCache | None = None

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self)} keys of table {self._access.name!r}>"

    @property
    def nbytes(self) -> int:
        """Bytes of memory here."""
        return int(self._index.nbytes) + self._part.nbytes + self._place.nbytes

    def add(self, keys: Any) -> Int32s:
        """Return the ordinals of keys; new ones get the next numbers, in order.

        Parameters
        ----------
        keys : array of integers, shape (n,)
            May repeat.

        Returns
        -------
        ndarray of int32, shape (n,)
        """
        keys = as_keys(keys, self._access.name)
        error = refuse_keys(keys, self._access.spec)
        if error is not None:
            raise error
        ordinals: Int32s = self._index.add(keys)
        return ordinals

    def keys(self, ordinals: Any = None) -> Array:
        """Return the keys of ordinals, or all keys by ordinal."""
        if ordinals is None:
            return np.array(self._index.keys())
        return self.of(self._checked(ordinals))

    def of(self, ordinals: Int32s) -> Array:
        """Return the keys of ordinals that are known to be good."""
        keys: Array = np.empty(len(ordinals), np.int64)
        take(self._index.keys(), ordinals, keys)
        return keys

    def _checked(self, ordinals: Any) -> Int32s:
        checked = as_ordinals(ordinals, len(self), self._access.name)
        error = refuse_ordinals(checked, len(self), self._access.name)
        if error is not None:
            raise error
        return checked

    def pull(self, ordinals: Any, *, wait: bool = True) -> Any:
        """Read the rows of ordinals, which may repeat.

        Returns
        -------
        ndarray, shape (n,) or (n, width), or Pending if not ``wait``
        """
        access = self._access
        ordinals = as_ordinals(ordinals, len(self._index), access.name)
        seat = access.seat()
        if not len(ordinals):
            return access.empty(0) if wait else ready(access, access.empty(0))
        if seat.staleness is not None:
            got = self._pull_cached(seat, self._checked(ordinals))
            if isinstance(got, Pending):
                return got.wait() if wait else got
            return got if wait else ready(access, got)
        if not wait:
            return self._start_pull(seat, ordinals)
        routes, order, _, counts, naming = self._named(seat, ordinals)
        cuts = pieces(routes, counts, len(ordinals), access.sizes.rows(naming.size))
        return access.pull_now(seat, order, routes.view, cuts, naming)

    def _start_pull(self, seat: Seat, ordinals: Int32s) -> Pending:
        access = self._access
        routes, order, _, counts, naming = self._named(seat, ordinals)
        cuts = pieces(routes, counts, len(ordinals), access.sizes.rows(naming.size))
        return access.pull(seat, order, routes.view, cuts, naming)

    def _pull_cached(self, seat: Seat, ordinals: Int32s) -> Pending | Array:
        cache = self._cache
        if cache is None or seat is not self._seat:
            cache = self._cache = RowCache(self._access.spec)
        return cached_pull(
            seat,
            cache,
            ordinals,
            lambda places: self._start_pull(seat, ordinals[places]),
            lambda places: ordinals[places],
        )

    def push(self, ordinals: Any, values: Any, *, wait: bool | None = None) -> Pending | None:
        """Send gradients of the rows of ordinals, which may repeat.

        Takes, returns and raises what :meth:`Table.push <sparkps.client.table.Table.push>` does.
        """
        access = self._access
        seat = access.writer("push")
        ordinals = as_ordinals(ordinals, len(self._index), access.name)
        values = as_values(values, len(ordinals), access.spec)
        if not len(ordinals):
            return done(access, seat)
        routes, order, grouped, counts, naming = self._named(seat, ordinals)
        rows = np.empty_like(values)
        take(values, order, rows)
        counts, distinct, rows = sum_by_key(counts, grouped, rows)
        if distinct is not grouped:
            naming = self.naming(seat, routes, distinct)
        limit = max(1, access.sizes.message // (naming.size + access.sizes.row))
        cuts = cut_slices(routes, counts, len(rows), access.sizes.rows_per_slice, limit)
        return access.push(seat, routes, cuts, naming, [rows], wait=wait)

    def keyset(self, ordinals: Any) -> Keyset:
        """Return the rows of ordinals as a keyset, for pulls and pushes that send values only."""
        return Keyset(self._access, self._checked(ordinals), self)

    # --- how rows are named

    def _named(self, seat: Seat, ordinals: Int32s) -> tuple[Routes, Int32s, Int32s, Array, Naming]:
        """Routes, order, grouped ordinals, counts and naming."""
        routes = self._access.routes()
        self.prepare(seat, routes)
        order, grouped, counts = self.group(ordinals, routes)
        return routes, order, grouped, counts, self.naming(seat, routes, grouped)

    def group(self, names: Array, routes: Routes) -> tuple[Int32s, Array, Array]:
        """Order, ordinals and counts in grouped order."""
        try:
            order, counts = partition_sort_by(self._part[: len(self._index)], names, routes.slot)
        except ValueError:
            error = refuse_ordinals(names, len(self._index), self._access.name)
            if error is None:
                raise
            raise error from None
        grouped: Int32s = np.empty(len(names), np.int32)
        take(names, order, grouped)
        return order, grouped, counts

    def keys_of(self, names: Array) -> Array:
        """The keys of ordinals, asked for when a server does not know the list."""
        return self.of(names)

    def on_wire(self, names: Array) -> Array:
        """The places of ordinals on their servers."""
        places: Int32s = np.empty(len(names), np.int32)
        take(self._place, names, places)
        return places

    def naming(self, seat: Seat, routes: Routes, grouped: Array) -> Naming:
        """How the rows of ordinals are named now."""
        if not self._ref or (self._usable < len(self) and int(grouped.max()) >= self._usable):
            return Naming(PLAIN, b"", self.of(grouped))

        def keys(begin: int, end: int) -> Array:
            if not self._full:
                self._seat = None  # it had the list and has lost it: register it anew
            return self.of(grouped[begin:end])

        return Naming(ORDINALS, self._ref, self.on_wire(grouped), keys)

    # --- on the servers

    def prepare(self, seat: Seat, routes: Routes) -> bytes | None:
        """Place all keys, and register those that are new; nobody waits.

        Returns
        -------
        bytes or None
            The name of the list on the servers; None if they do not have all of it.
        """
        if seat is not self._seat or routes is not self._routes:
            self._seat, self._routes, self._cache = seat, routes, None
            self._ref = secrets.token_bytes(16)
            self._starts = dict.fromkeys(routes.servers, 0)
            self._registered = self._usable = 0
            self._full = False
        size = len(self)
        if size > len(self._part):
            self._resize(size)
        while self._registered < size:
            self._register(seat, routes, self._registered, min(size, self._registered + BLOCK))
        return None if self._full else self._ref

    def _resize(self, size: int) -> None:
        """Make room for what is needed, and some more only if there was some before."""
        size = size if not len(self._part) else max(size, len(self._part) + len(self._part) // 4)
        part, self._part = self._part, np.empty(size, np.uint16)
        self._part[: len(part)] = part
        del part
        place, self._place = self._place, np.empty(size, np.int32)
        self._place[: len(place)] = place

    def _register(self, seat: Seat, routes: Routes, low: int, high: int) -> None:
        access = self._access
        spec = access.spec
        order, keys, counts = partition_sort(
            self._index.keys()[low:high], spec.partitions, spec.dim, routes.slot
        )
        self._part[low:high][order] = np.repeat(routes.partitions, counts)
        cuts = pieces(routes, counts, high - low, access.rows)
        places = np.arange(high - low, dtype=np.int32)
        starts = dict(self._starts)
        call = SetUpCall(lambda: self._refuse(low), access.name)
        requests = []
        for server, parts, begin, end, first in cuts:
            start = starts[server] + begin - first
            places[begin:end] += start - begin
            self._starts[server] = start + end - begin
            message = Register(
                0,
                access.info.id,
                seat.session,
                seat.rank,
                seat.token,
                routes.view,
                self._ref,
                start,
            )
            mine = keys[begin:end]
            requests.append(Request(call, server, message, [parts, mine], mine.nbytes))
        put(places, order, self._place[low:high])
        self._registered = high
        if not self._full:
            self._usable = high
            access.client.start(call, requests)

    def _refuse(self, low: int) -> None:
        self._full = True
        self._usable = min(self._usable, low)
