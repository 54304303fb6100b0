"""One table as a handle sees it: its sizes, its client, in whose name it acts, its rows.

Shared by :class:`~.table.Table`, :class:`~.vocabulary.Vocabulary` and :class:`~.keyset.Keyset`,
which differ in how they name rows. Their rows come here in grouped order (:mod:`.split`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkps.client import current
from sparkps.client.cache import KeyCache, RowCache
from sparkps.client.calls import Call, PullCall, WriteCall
from sparkps.client.seat import Seat
from sparkps.client.shell import Client, client_for
from sparkps.client.split import Cuts, Naming, Piece, pull_requests, push_requests, sizes_of
from sparkps.errors import NotInRun
from sparkps.routing.partitioner import Routes
from sparkps.spec import NO_SESSION, TableInfo
from sparkps.wire.messages import PUSH

Array = npt.NDArray[Any]


class Pending:
    """A pull or push under way.

    Examples
    --------
    >>> handle = table.pull(keys, wait=False)  # doctest: +SKIP
    >>> values = handle.wait()                 # doctest: +SKIP
    """

    __slots__ = ("_call", "_client", "_finish")

    def __init__(
        self, client: Client, call: Call, finish: Callable[[Any], Any] | None = None
    ) -> None:
        self._client, self._call, self._finish = client, call, finish

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once; takes in what has come."""
        if self._call.left:
            self._client.glance()
        return self._call.left == 0

    def wait(self) -> Any:
        """Return the pulled values, or None for a push.

        Raises
        ------
        PSError
            Why it failed; the next tick does not raise it again.
        """
        call = self._call
        self._client.wait(call)
        if call.error is not None and isinstance(call, WriteCall) and call.seat.error is call.error:
            call.seat.error = None
        result = call.result()
        if self._finish is not None:
            finish, self._finish = self._finish, None
            result = finish(result)
        return result

    def then(self, finish: Callable[[Any], Any]) -> Pending:
        """Change the result by one more function; return ``self``."""
        before = self._finish
        self._finish = finish if before is None else lambda result: finish(before(result))
        return self


class Access:
    """See the module.

    Parameters
    ----------
    client, info
        Of the table.
    bound
        The seat of a worker's own handle; None finds the thread's at each call.
    """

    __slots__ = ("_client", "bound", "dtype", "info", "name", "rows", "sizes", "spec", "width")

    def __init__(self, client: Client, info: TableInfo, bound: Seat | None = None) -> None:
        self._client, self.info, self.bound = client, info, bound
        self.spec = info.spec
        self.name, self.width = info.spec.name, info.spec.width
        self.dtype = np.dtype(info.spec.dtype)
        self.sizes = sizes_of(info.spec, client.settings.message_max_bytes)
        #: Rows of one message that names them by keys.
        self.rows = self.sizes.rows(8)

    @property
    def client(self) -> Client:
        """The client; a forked process gets its own."""
        if self._client.forked:
            self._client = client_for(self._client.info)
        return self._client

    def seat(self) -> Seat:
        """In whose name a read is made."""
        if self.bound is not None:
            return self.bound
        if current.active:
            # A driver's process may run workers too, in tests; its other threads are the driver's.
            entry = current.entry(alone=self._client.role != "driver")
            if entry is not None:
                return entry[0]
        return self.client.seat()

    def writer(self, what: str) -> Seat:
        """In whose name a write is made.

        Raises
        ------
        NotInRun
            A task outside ``ps.run`` may only read.
        """
        seat = self.seat()
        if seat.denied:
            raise NotInRun(
                table=self.name,
                what=what if seat.session == NO_SESSION else f"{what} {seat.denied}",
            )
        return seat

    def routes(self) -> Routes:
        """Where its partitions are."""
        return self.client.routes(self.info)

    def empty(self, rows: int) -> Array:
        """Return an array for ``rows`` rows."""
        return np.empty(rows if self.width == 1 else (rows, self.width), self.dtype)

    def pull(
        self, seat: Seat, order: Array, view: int, cuts: Sequence[Piece], naming: Naming
    ) -> Pending:
        """Send the requests for rows, which are put in the caller's order by ``order``."""
        call = PullCall(self.empty(len(order)), order, self.name)
        client = self.client
        client.start(
            call, pull_requests(call, seat, self.info.id, view, cuts, naming, self.sizes.row)
        )
        return Pending(client, call)

    def pull_now(
        self, seat: Seat, order: Array, view: int, cuts: Sequence[Piece], naming: Naming
    ) -> Array:
        """Pull rows and wait for them."""
        call = PullCall(self.empty(len(order)), order, self.name)
        self.client.run(
            call, pull_requests(call, seat, self.info.id, view, cuts, naming, self.sizes.row)
        )
        return call.result()

    def push(
        self,
        seat: Seat,
        routes: Routes,
        cuts: Cuts,
        naming: Naming,
        values: Sequence[Array],
        *,
        kind: int = PUSH,
        wait: bool | None = None,
    ) -> Pending | None:
        """Send a write; wait for its acknowledgement if the seat is synchronous or ``wait``."""
        table = self.info.id
        call = WriteCall(seat, seat.chain(table, self.spec.partitions), self.name)
        client = self.client
        waits = seat.synchronous if wait is None else wait
        client.write(
            call,
            lambda: push_requests(call, seat, table, routes, cuts, naming, values, kind),
            wait=waits,
        )
        if waits and call.left == 0 and call.error is None:
            return None
        pending = Pending(client, call)
        if waits or call.error is not None:
            pending.wait()
            return None
        return pending

    def key_cache(self, seat: Seat) -> KeyCache | None:
        """The cache of plain pulls, in an ssp run."""
        if seat.staleness is None:
            return None
        cache = seat.caches.get(self.info.id)
        if cache is None:
            cache = seat.caches[self.info.id] = KeyCache(self.spec)
        return cache


def cached_pull(
    seat: Seat,
    cache: RowCache,
    slots: Array,
    pull: Callable[[Array], Pending],
    slots_after: Callable[[Array], Array],
) -> Pending | Array:
    """Pull what the cache has not fresh enough.

    Parameters
    ----------
    seat
        Of an ssp run.
    cache, slots
        The slot of each row that is wanted; -1 has none.
    pull
        Pulls the rows at these places.
    slots_after
        Gives the slots under which the rows of these places are kept.

    Returns
    -------
    Pending or ndarray
        An array when all rows were in the cache.
    """
    fresh = cache.fresh(slots, seat.oldest)
    if fresh.all():
        seat.hits += len(slots)
        return cache.read(slots)
    places = np.flatnonzero(~fresh)
    stamp = seat.slowest
    kept = cache.read(slots[fresh]) if len(places) < len(slots) else None
    seat.hits += len(slots) - len(places)
    seat.misses += len(places)

    def finish(pulled: Array) -> Array:
        cache.store(slots_after(places), pulled, stamp)
        if kept is None:
            return pulled
        out: Array = np.empty((len(slots), *pulled.shape[1:]), pulled.dtype)
        out[places] = pulled
        out[fresh] = kept
        return out

    return pull(places).then(finish)
