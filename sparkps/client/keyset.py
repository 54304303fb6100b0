"""Keysets: rows named to the servers once, so that later pulls and pushes send values only.

Rules (SEMANTICS §8):

* A keyset is made on the servers when it is first used; the first pull rides along in the same
  round trip.
* Its name is a 128-bit hash of the table and its rows. The rows are in grouped order; a request
  names them by range, a push by its slices, which are cut the same way each time.
* A server may not take it (memory is bounded, nothing is evicted) or may lose it. Whatever was
  under way is then sent again with plain keys, and the keyset goes on by ordinals of its
  vocabulary, or by plain keys.
* It belongs to a session: used in another one, it is made anew there.

Memory: 4 bytes per row for the order, and the row's key (8 bytes) or ordinal (4).
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sparkps.client.access import Access, Pending
from sparkps.client.arguments import as_values
from sparkps.client.calls import Call, PullCall, Request, SetUpCall
from sparkps.client.seat import Seat
from sparkps.client.split import Cuts, Naming, Piece, cut_slices, pieces
from sparkps.kernels.arrays import put, take
from sparkps.kernels.keys import partition_sort
from sparkps.kernels.sums import sum_by_key, unique
from sparkps.routing.partitioner import Routes
from sparkps.wire.messages import KEYSET, PLAIN, MakeKeyset

Array = npt.NDArray[Any]
Int32s = npt.NDArray[np.int32]


class Keyset:
    """Rows of a table that are pulled and pushed many times; used by one thread at a time.

    Parameters
    ----------
    access
        The table.
    names
        What names its rows, keys or ordinals; may repeat.
    kind
        What names mean.
    """

    def __init__(self, access: Access, names: Array, kind: Names) -> None:
        distinct, inverse = unique(names)
        repeats = len(distinct) < len(names)
        self._access, self._kind = access, kind
        self._rows = len(distinct)
        #: Where each of the caller's rows is among the distinct ones; None if none repeats.
        self._inverse: Int32s | None = inverse if repeats else None
        self._grouped: Array = distinct
        self._order: Int32s | None = None
        self._seat: Seat | None = None
        self._routes: Routes | None = None
        self._refused = False
        self._ref = b""
        self._cuts: list[Piece] = []
        self._slices: Cuts | None = None
        #: The last pull of an ssp run, with its stamp.
        self._copy: tuple[int, Array] | None = None

    def __len__(self) -> int:
        return self._rows if self._inverse is None else len(self._inverse)

    def __repr__(self) -> str:
        return f"<Keyset of {self._rows} keys of table {self._access.name!r}>"

    def pull(self, *, wait: bool = True) -> Any:
        """Read the rows, in the order of the keys or ordinals that the keyset was made of.

        Returns
        -------
        ndarray, shape (n,) or (n, width), or Pending if not ``wait``
        """
        access = self._access
        seat = access.seat()
        if seat.staleness is not None or not self._rows:
            return self._pull_cached(seat, wait)
        naming, routes, order = self._naming(seat)
        if wait:
            values = access.pull_now(seat, order, routes.view, self._cuts, naming)
            return values if self._inverse is None else self._spread(values)
        pending = access.pull(seat, order, routes.view, self._cuts, naming)
        return pending if self._inverse is None else pending.then(self._spread)

    def _pull_cached(self, seat: Seat, wait: bool) -> Any:
        access = self._access
        if not self._rows:
            return access.empty(0) if wait else ready(access, access.empty(0))
        naming, routes, order = self._naming(seat)
        if self._copy is not None and self._copy[0] >= seat.oldest:
            seat.hits += self._rows
            values = self._spread(self._copy[1])
            return values if wait else ready(access, values)
        seat.misses += self._rows
        stamp = seat.slowest

        def keep(values: Array) -> Array:
            self._copy = (stamp, values)
            return self._spread(values)

        pending = access.pull(seat, order, routes.view, self._cuts, naming).then(keep)
        return pending.wait() if wait else pending

    def _spread(self, values: Array) -> Array:
        """One row per key given, in fresh memory."""
        if self._inverse is None:
            return values.copy()
        out = self._access.empty(len(self._inverse))
        take(values, self._inverse, out)
        return out

    def push(self, values: Any, *, wait: bool | None = None) -> Pending | None:
        """Send one gradient per row, in the order of the keys or ordinals given.

        Takes, returns and raises what :meth:`Table.push <sparkps.client.table.Table.push>` does.
        """
        access = self._access
        seat = access.writer("push")
        values = as_values(values, len(self), access.spec)
        if not self._rows:
            return done(access, seat)
        if self._inverse is not None:
            values = sum_by_key(np.array([len(values)], np.int64), self._inverse, values)[2]
        naming, routes, order = self._naming(seat)
        rows = np.empty_like(values)
        take(values, order, rows)
        if self._slices is None:
            limit = access.rows
            self._slices = cut_slices(
                routes, self._counts(routes), self._rows, access.sizes.rows_per_slice, limit
            )
        cuts = Cuts(self._slices.slices.copy(), self._slices.messages)
        return access.push(seat, routes, cuts, naming, [rows], wait=wait)

    def _counts(self, routes: Routes) -> Array:
        """The rows at each position of the server-major order."""
        counts: Array = np.zeros(len(routes.slot), np.int64)
        for piece in self._cuts:
            np.add.at(counts, routes.slot[piece.parts[:, 0]], piece.parts[:, 1])
        return counts

    # --- on the servers

    def _naming(self, seat: Seat) -> tuple[Naming, Routes, Int32s]:
        """How the rows are named now, and their order; makes the keyset if it is not there yet."""
        routes = self._access.routes()
        order = self._order
        if seat is not self._seat or routes is not self._routes or order is None:
            order = self._place(seat, routes)
        if not self._refused:
            return Naming(KEYSET, self._ref, None, self._keys), routes, order
        return self._kind.naming(seat, routes, self._grouped), routes, order

    def _keys(self, begin: int, end: int) -> Array:
        """The keys of rows, asked for when a server does not know this keyset."""
        if not self._refused:
            self._seat = None  # it had it and has lost it: make it anew
        return self._kind.keys_of(self._grouped[begin:end])

    def _place(self, seat: Seat, routes: Routes) -> Int32s:
        """Group the rows and send them to the servers; nobody waits."""
        access = self._access
        order = self._order
        names = self._grouped
        if order is not None:
            names = np.empty_like(self._grouped)
            put(self._grouped, order, names)
        vocabulary = self._kind.prepare(seat, routes)
        order, self._grouped, counts = self._kind.group(names, routes)
        self._cuts = pieces(routes, counts, self._rows, access.rows)
        self._seat, self._routes, self._order = seat, routes, order
        self._slices = self._copy = None
        self._refused = vocabulary is None
        if vocabulary is None:
            return order
        digest = hashlib.blake2b(f"{access.info.id}:".encode() + vocabulary, digest_size=16)
        digest.update(self._grouped.data)
        self._ref = digest.digest()
        call = SetUpCall(self._refuse, access.name)
        ends = {piece.server: piece.end for piece in self._cuts}
        requests = []
        for server, parts, begin, end, first in self._cuts:
            message = MakeKeyset(
                0,
                access.info.id,
                seat.session,
                seat.rank,
                seat.token,
                routes.view,
                self._ref,
                begin - first,
                ends[server] - first,
                vocabulary,
            )
            on_wire = self._kind.on_wire(self._grouped[begin:end])
            requests.append(Request(call, server, message, [parts, on_wire], on_wire.nbytes))
        access.client.start(call, requests)
        return order

    def _refuse(self) -> None:
        self._refused = True


class Names(Protocol):
    """What the names of a keyset's rows mean: keys, or ordinals of a vocabulary."""

    def prepare(self, seat: Seat, routes: Routes) -> bytes | None:
        """Make the names known to the servers; return the name of their list: empty for keys,
        None if they are not known."""

    def group(self, names: Array, routes: Routes) -> tuple[Int32s, Array, Array]:
        """Order, names and counts in grouped order."""

    def keys_of(self, names: Array) -> Array:
        """The keys of names."""

    def on_wire(self, names: Array) -> Array:
        """What stands for names in a message."""

    def naming(self, seat: Seat, routes: Routes, grouped: Array) -> Naming:
        """How rows are named without a keyset."""


class Keys:
    """Rows named by keys."""

    def __init__(self, access: Access) -> None:
        self._spec = access.spec

    def prepare(self, seat: Seat, routes: Routes) -> bytes | None:
        return b""

    def group(self, names: Array, routes: Routes) -> tuple[Int32s, Array, Array]:
        found: tuple[Int32s, Array, Array] = partition_sort(
            names, self._spec.partitions, self._spec.dim, routes.slot
        )
        return found

    def keys_of(self, names: Array) -> Array:
        return names

    on_wire = keys_of

    def naming(self, seat: Seat, routes: Routes, grouped: Array) -> Naming:
        return Naming(PLAIN, b"", grouped)


def ready(access: Access, values: Array) -> Pending:
    """A pull that was answered here."""
    return Pending(access.client, PullCall(values, np.empty(0, np.int32)))


def done(access: Access, seat: Seat) -> Pending | None:
    """A write of nothing."""
    return None if seat.synchronous else Pending(access.client, Call())
