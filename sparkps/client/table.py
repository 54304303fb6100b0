"""A table handle: pull, push, assign and the rest, from wherever it is used.

A handle is small, pickles into closures, and acts in the name of whoever uses it (:mod:`.seat`): a
worker in a run, the driver, or in a task outside a run a reader, which may not write. Pushes of a
worker return at once and belong to the clock in which they were made; those of the driver return
when they are acknowledged.

Not here: ``to_df`` and ``save``, which need Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparkps.client import whole
from sparkps.client.access import Access, Pending, cached_pull
from sparkps.client.arguments import as_keys, as_values, refuse_keys, refuse_nonfinite_numbers
from sparkps.client.keyset import Keys, Keyset, done, ready
from sparkps.client.seat import Seat
from sparkps.client.shell import Client, ClientInfo, client_for
from sparkps.client.split import cut_slices, pieces, plain_naming
from sparkps.client.vocabulary import Vocabulary
from sparkps.errors import InvalidArgument
from sparkps.kernels.arrays import put, take
from sparkps.kernels.keys import partition_sort
from sparkps.kernels.sums import sum_by_key, unique
from sparkps.routing.partitioner import Routes, dense_bounds
from sparkps.spec import TableInfo, TableSpec
from sparkps.wire import userfn
from sparkps.wire.messages import ASSIGN, PUSH, RESTORE

Array = npt.NDArray[Any]

#: Largest dense table that ``pull()`` asks for key by key; beyond, a scan sends each key once less.
WHOLE: Final = 65_536


class Table:
    """A handle of a table; see the module.

    Attributes
    ----------
    info : TableInfo
        Its id and spec.
    """

    def __init__(self, client: Client, info: TableInfo, seat: Seat | None = None) -> None:
        self.info = info
        self._access = Access(client, info, seat)

    def __reduce__(self) -> Any:
        return (_unpickled, (self._access.client.info, self.info))

    def __repr__(self) -> str:
        spec = self.info.spec
        keys = "any int64 key" if spec.dim is None else f"dim={spec.dim}"
        optimizer = f", {spec.optimizer.name}" if spec.optimizer is not None else ""
        return f"<Table {spec.name!r} {keys}, width={spec.width}, {spec.dtype}{optimizer}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.info.spec.name

    @property
    def spec(self) -> TableSpec:
        """What it was created with."""
        return self.info.spec

    @property
    def width(self) -> int:
        """Numbers per row."""
        return self.info.spec.width

    @property
    def dim(self) -> int | None:
        """The number of keys of a dense table; None if any int64 is a key."""
        return self.info.spec.dim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers."""
        return self._access.dtype

    # --- rows

    def pull(self, keys: Any = None, *, wait: bool = True) -> Any:
        """Read rows.

        Parameters
        ----------
        keys : array of integers, shape (n,), optional
            May repeat. None reads a whole dense table.
        wait : bool
            False returns a :class:`~sparkps.client.access.Pending` at once.

        Returns
        -------
        ndarray, shape (n,) or (n, width)
            One row per position of ``keys``; an absent key gives what ``init`` says, and creates
            nothing.

        Raises
        ------
        InvalidKey
            A key outside ``0..dim-1``.
        WrongType
            Keys that are not integers.
        """
        access = self._access
        if keys is None:
            return self._pull_all() if wait else ready(access, self._pull_all())
        keys = as_keys(keys, access.name)
        seat = access.seat()
        if seat.staleness is not None:
            got = self._pull_cached(seat, keys)
            if wait:
                return got.wait() if isinstance(got, Pending) else got
            return got if isinstance(got, Pending) else ready(access, got)
        if not len(keys):
            return access.empty(0) if wait else ready(access, access.empty(0))
        if not wait:
            return self._start_pull(seat, keys)
        routes = access.routes()
        order, grouped, counts = self._sorted(keys, routes)
        cuts = pieces(routes, counts, len(keys), access.rows)
        return access.pull_now(seat, order, routes.view, cuts, plain_naming(grouped))

    def _start_pull(self, seat: Seat, keys: Array) -> Pending:
        access = self._access
        routes = access.routes()
        order, grouped, counts = self._sorted(keys, routes)
        cuts = pieces(routes, counts, len(keys), access.rows)
        return access.pull(seat, order, routes.view, cuts, plain_naming(grouped))

    def _pull_cached(self, seat: Seat, keys: Array) -> Pending | Array:
        cache = self._access.key_cache(seat)
        error = refuse_keys(keys, self.spec)
        if error is not None:
            raise error
        if cache is None or not len(keys):
            return self._access.empty(0)
        kept = cache
        return cached_pull(
            seat,
            cache,
            cache.find(keys),
            lambda places: self._start_pull(seat, keys[places]),
            lambda places: kept.slots(keys[places]),
        )

    def _sorted(self, keys: Array, routes: Routes) -> tuple[Array, Array, Array]:
        """Order, keys and counts in grouped order; a key outside a dense table is refused."""
        spec = self.info.spec
        try:
            found: tuple[Array, Array, Array] = partition_sort(
                keys, spec.partitions, spec.dim, routes.slot
            )
        except ValueError:
            error = refuse_keys(keys, spec)
            if error is None:
                raise
            raise error from None
        return found

    def _pull_all(self) -> Array:
        spec = self.info.spec
        if spec.dim is None:
            raise InvalidArgument(
                name="keys",
                value=None,
                reason=f"table {spec.name!r} is hashed; name the keys, or use collect()",
            )
        if spec.dim <= WHOLE:
            values: Array = self.pull(np.arange(spec.dim, dtype=np.int64))
            return values
        _, (values,), rows = whole.scan(self._access, (0,), self._access.seat())
        bounds = dense_bounds(spec.partitions, spec.dim)
        if not np.array_equal(np.diff(bounds), rows):
            raise InvalidArgument(
                name="keys", value=None, reason="the servers did not send all rows"
            )
        return values

    def push(self, keys: Any, values: Any, *, wait: bool | None = None) -> Pending | None:
        """Send gradients to the optimizer; without one, add.

        Parameters
        ----------
        keys : array of integers, shape (n,)
            Rows of repeated keys are summed, in order, before the optimizer sees them.
        values : array, shape (n,) or (n, width), or one number for all
            Cast to the table's dtype, but never a float to an integer.
        wait : bool, optional
            Wait for the acknowledgement. By default a worker does not, and its errors rise at the
            handle or the next tick; the driver does.

        Returns
        -------
        Pending or None
            None when it has been waited for.

        Raises
        ------
        NotInRun
            In a task outside ``ps.run``.
        InvalidArgument
            NaN or infinity, unless the table allows them; a wrong shape.
        """
        access = self._access
        seat = access.writer("push")
        keys = as_keys(keys, access.name)
        values = as_values(values, len(keys), self.info.spec)
        if not len(keys):
            return done(access, seat)
        routes = access.routes()
        order, grouped, counts = self._sorted(keys, routes)
        rows = np.empty_like(values)
        take(values, order, rows)
        counts, grouped, rows = sum_by_key(counts, grouped, rows)
        return self._write(seat, routes, counts, grouped, [rows], wait=wait)

    def assign(self, keys: Any, values: Any, *, wait: bool | None = None) -> Pending | None:
        """Set rows to values, and the optimizer's other fields to what it says for an assigned row.

        Takes and raises what :meth:`push` does; of a repeated key the last row counts.
        """
        access = self._access
        seat = access.writer("assign")
        keys = as_keys(keys, access.name)
        values = as_values(values, len(keys), self.info.spec)
        if not len(keys):
            return done(access, seat)
        distinct, inverse = unique(keys)
        if len(distinct) < len(keys):
            last = access.empty(len(distinct))
            put(values, inverse, last)
            keys, values = distinct, last
        return self._write_rows(seat, keys, [values], kind=ASSIGN, wait=wait)

    def restore(self, keys: Any, fields: Sequence[Any]) -> None:
        """Set whole rows, the optimizer's fields included; for loading a saved table.

        Parameters
        ----------
        keys : array of int64, shape (n,), distinct
        fields : sequence of arrays
            One per field, ``value`` first, with n rows each.
        """
        keys = as_keys(keys, self.name)
        arrays = [np.ascontiguousarray(field) for field in fields]
        for array in arrays:
            if len(array) != len(keys):
                raise InvalidArgument(
                    name="fields", value=len(array), reason=f"{len(keys)} keys need as many rows"
                )
        if len(keys):
            self._write_rows(self._access.writer("load"), keys, arrays, kind=RESTORE, wait=True)

    def _write_rows(
        self, seat: Seat, keys: Array, fields: Sequence[Array], *, kind: int, wait: bool | None
    ) -> Pending | None:
        """Write rows of distinct keys."""
        routes = self._access.routes()
        order, grouped, counts = self._sorted(keys, routes)
        rows = [np.empty_like(field) for field in fields]
        for field, moved in zip(fields, rows, strict=True):
            take(field, order, moved)
        return self._write(seat, routes, counts, grouped, rows, kind=kind, wait=wait)

    def _write(
        self,
        seat: Seat,
        routes: Routes,
        counts: Array,
        keys: Array,
        rows: Sequence[Array],
        *,
        kind: int = PUSH,
        wait: bool | None = None,
    ) -> Pending | None:
        access = self._access
        limit = max(
            1, access.sizes.message // (8 + sum(field.nbytes // len(keys) for field in rows))
        )
        cuts = cut_slices(routes, counts, len(keys), access.sizes.rows_per_slice, limit)
        return access.push(seat, routes, cuts, plain_naming(keys), rows, kind=kind, wait=wait)

    def vocabulary(self) -> Vocabulary:
        """Return a new, empty vocabulary: keys that travel to the servers once."""
        return Vocabulary(self._access)

    def keyset(self, keys: Any) -> Keyset:
        """Return these keys as a keyset, for pulls and pushes that send values only."""
        keys = as_keys(keys, self.name)
        error = refuse_keys(keys, self.spec)
        if error is not None:
            raise error
        return Keyset(self._access, keys, Keys(self._access))

    # --- whole tables

    def scan(self, fields: Sequence[int] = (0,)) -> tuple[Array, list[Array], Array]:
        """Read all rows as of now, by partition number in row order.

        Parameters
        ----------
        fields
            Numbers of the fields; 0 is ``value``, the others are the optimizer's in its order.

        Returns
        -------
        keys : ndarray of int64, shape (n,)
        fields : list of ndarray
            One per field asked for, with n rows.
        rows : ndarray of int64, shape (P,)
            Rows of each partition.
        """
        return whole.scan(self._access, tuple(fields), self._access.seat())

    def collect(self) -> tuple[Array, Array]:
        """Read the whole table as of now.

        Returns
        -------
        keys : ndarray of int64, shape (n,)
            Ascending.
        values : ndarray, shape (n,) or (n, width)
        """
        keys, (values,), _ = self.scan()
        if self.dim is not None:
            return keys, values
        order = np.argsort(keys)
        return keys[order], values[order]

    def count(self) -> int:
        """Return the number of rows as of now."""
        return whole.count(self._access)

    def drop(self) -> None:
        """Drop the table on all servers; handles of it then raise TableNotFound."""
        self._access.writer("drop")
        self._access.client.drop_table(self.info.id)

    # --- functions

    def configure(self, **numbers: float) -> None:
        """Change numbers of the optimizer (``lr=0.01``), in the order of the writes.

        Raises
        ------
        InvalidArgument
            The table has no optimizer, or the optimizer no such number.
        """
        seat = self._access.writer("configure")
        optimizer = self.spec.optimizer
        if optimizer is None:
            raise InvalidArgument(
                name="configure", value=numbers, reason=f"table {self.name!r} has no optimizer"
            )
        from sparkps.optim import from_spec  # noqa: PLC0415 - few workers configure optimizers

        checked = from_spec(optimizer, userfn.loads).configured(**numbers)
        values = {name: getattr(checked, name) for name in numbers}
        whole.configure(self._access, seat, values)

    def reduce(self, fn: Any, *args: Any, combine: Callable[[Any, Any], Any] | None = None) -> Any:
        """Run a function on every partition, on the servers, and combine the results.

        Parameters
        ----------
        fn
            One of :mod:`sparkps.functions` (``functions.norm2``), or your own ``fn(part, *args)``
            which reads ``part.keys`` and ``part["value"]``.
        combine
            ``combine(left, right)``, applied in a fixed tree by partition number; without it your
            own function's results come as a list, one per partition.

        Raises
        ------
        FunctionFailed
            Your function raised; its traceback is in the error.
        """
        function = whole.travelling(fn, args, writes=False)
        results = whole.reduce(self._access, function)
        return whole.combined(function, results, combine)

    def apply(self, fn: Any, *args: Any) -> None:
        """Run a function that changes a table on every partition, on the servers.

        Parameters
        ----------
        fn
            One of :mod:`sparkps.functions` (``functions.fill(0.5)``), or your own ``fn(part,
            *args)``, which may write to ``part["value"]`` and draws from ``part.rng`` only.

        Raises
        ------
        FunctionFailed
            Your function raised; partitions before it may have been changed.
        """
        seat = self._access.writer("apply")
        function = whole.travelling(fn, args, writes=True)
        refuse_nonfinite_numbers(function.numbers, self.spec)
        whole.apply(self._access, seat, function)


def _unpickled(info: ClientInfo, table: TableInfo) -> Table:
    return Table(client_for(info), table)
