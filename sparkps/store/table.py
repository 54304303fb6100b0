"""A table's part that lives on one server: the contract, and what dense and hashed tables share.

A table owns one :class:`~sparkps.kernels.partitions.PartitionArray`, the memory of its local
partitions, and an optimizer. Everything works on *messages*: payloads grouped by partition, with
``parts`` int32 ``(k, 2)`` rows of (partition, count); one kernel call each, no Python per key or
partition. The usual sequence of a server is::

    rows = table.resolve(parts, keys, create=True)      # int32 row numbers, -1 where absent
    table.push(parts, rows, gradients)                  # or assign, or read

Rules:

* Rows are created by ``resolve(create=True)`` and ``load`` alone, in order of appearance. That
  fixes the row order, which snapshots, copies and reductions keep. Reads create nothing: an absent
  row reads as what ``init`` gives.
* Row numbers stay good while the partition's generation lasts (``array.generation(p)``).
* The optimizer is called once per row of a ``push``. Summing what came before that is the caller's
  (:meth:`Table.seal` does it for staged writes).
* What a read returns is a fresh array, never a view of the table.
* A partition counts the functions applied to it, since ``part.rng`` is seeded by that number.

Not here: who may write (ledgers, tokens, staging: ``sparkps.server``), and files
(``sparkps.store.snapshot``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import InvalidArgument, MalformedRequest
from sparkps.kernels import partitions as memory
from sparkps.kernels import rows as kernels
from sparkps.optim import FieldSpec, Optimizer, from_spec
from sparkps.spec import TableInfo
from sparkps.store.builtin import TableApplier, TableReducer
from sparkps.store.partition import Part

Array = NDArray[Any]
Result = TypeVar("Result")

KEY = "key"
VALUE = "value"
#: Kernels hold the fields of a partition in an array of this many; it is part of their memory
#: layout.
MAX_FIELDS = 32


class Table(ABC):
    """The local partitions of one table; made by :func:`sparkps.store.make_table`.

    Parameters
    ----------
    info
        Id and spec.
    partitions
        Numbers of the partitions that live here.
    loads
        Unpickles a user's optimizer, or raises where that is refused.
    limit
        Bytes that this table may take on this server; None for no limit.

    Raises
    ------
    InvalidArgument, MalformedRequest
        If the spec cannot be served.
    """

    def __init__(
        self,
        info: TableInfo,
        partitions: Sequence[int],
        loads: Callable[[bytes], Any],
        *,
        limit: int | None = None,
    ) -> None:
        spec = info.spec.check()
        self.info = info
        self.spec = spec
        self.optimizer: Optimizer | None = None
        if spec.optimizer is not None:
            self.optimizer = from_spec(spec.optimizer, loads)
            self.optimizer.check_table(spec)
        self.dtype = np.dtype(spec.dtype)
        self.field_specs = _field_specs(self.optimizer)
        #: Names of the fields; their place is the field number in messages and kernels.
        self.field_names: tuple[str, ...] = tuple(field.name for field in self.field_specs)
        self.array = memory.PartitionArray(
            spec.partitions,
            spec.width,
            spec.dtype,
            [
                ("int64" if field.per_row else spec.dtype, field.per_row, field.initial)
                for field in self.field_specs
            ],
            dim=spec.dim,
            init=(spec.init.kind, spec.init.a, spec.init.b),
            seed=spec.seed,
            limit=limit,
        )
        #: Bytes of one row: its key, if stored, and its fields.
        self.row_bytes = (8 if spec.dim is None else 0) + sum(
            8 if field.per_row else spec.width * self.dtype.itemsize for field in self.field_specs
        )
        self._numbers = _numbers(self.optimizer)
        #: Functions applied to each partition of the table so far, int64 ``(P,)``.
        self.applied = np.zeros(spec.partitions, np.int64)
        for partition in partitions:
            self.array.open(partition)

    # --- rows
    # ---------------------------------------------------------------------------------------------

    @abstractmethod
    def resolve(self, parts: Array, keys: Array, create: bool) -> Array:
        """Return the int32 row of each key in its partition, -1 where absent.

        Parameters
        ----------
        parts
            int32 ``(k, 2)`` rows of (partition, count); the counts sum up to ``len(keys)``.
        keys
            int64, grouped by partition.
        create
            Create absent rows, in order of appearance, instead.

        Raises
        ------
        ValueError
            If a partition is not here, the counts do not fit, or a key lies outside a dense
            partition.
        """

    @abstractmethod
    def missing(self, parts: Array, keys: Array) -> int:
        """Return how many of the keys have no row yet (a key given twice counts twice)."""

    @abstractmethod
    def growth(self, parts: Array, spare: int = 0) -> int:
        """Return a bound of the bytes that ``resolve(create=True)`` would add if all keys were new.

        A coarse bound that costs nothing is returned if it is at most ``spare``, else the exact
        worst case.
        """

    def read(self, parts: Array, rows: Array, keys: Array | None, field: int = 0) -> Array:
        """Return a field of the rows: ``(n,)`` for width 1 and counters, else ``(n, width)``.

        Row -1 reads as a new row would; that needs ``keys`` where ``init`` is random.
        """
        shape = self._shape(len(rows), field)
        out = np.empty(shape, self._field_dtype(field))
        kernels.gather(self.array, field, parts, rows, out, keys)
        return out

    # --- writes
    # -------------------------------------------------------------------------------------------

    def push(self, parts: Array, rows: Array, grads: Array) -> None:
        """Apply gradients by the optimizer, one call per row, or add them if there is none.

        Parameters
        ----------
        parts
            int32 ``(k, 2)``: (partition, count).
        rows
            int32, present and distinct within each partition. Without an optimizer they may repeat.
        grads
            ``(n,)`` or ``(n, width)`` of the table's dtype.
        """
        optimizer = self.optimizer
        if optimizer is None:
            kernels.scatter_add(self.array, 0, parts, rows, grads)
        elif (kernel := type(optimizer).kernel) is not None:
            kernel(self.array, parts, rows, grads, self._numbers)
        else:
            self._through_numpy(parts, rows, lambda fields: optimizer.update(fields, grads))

    def assign(self, parts: Array, rows: Array, values: Array) -> None:
        """Set ``value``, and other fields as the optimizer says; of equal rows the last wins."""
        optimizer = self.optimizer
        if optimizer is None:
            kernels.scatter_set(self.array, 0, parts, rows, values)
        else:
            self._through_numpy(parts, rows, lambda fields: optimizer.assigned(fields, values))

    def restore(self, parts: Array, rows: Array, fields: Sequence[Array]) -> None:
        """Set all fields of the rows, as they were saved; of equal rows the last wins.

        Raises
        ------
        ValueError
            If a field is missing, or one has another size or dtype than the table's; nothing has
            changed then.
        """
        self._check_all(fields)
        for field, numbers in enumerate(fields):
            shape, dtype = self._shape(len(rows), field), self._field_dtype(field)
            if numbers.shape != shape or numbers.dtype != dtype:
                what = f"field {self.field_names[field]!r} is {numbers.dtype} {numbers.shape}"
                raise ValueError(f"{what}; {dtype} {shape} is needed")
        for field, numbers in enumerate(fields):
            kernels.scatter_set(self.array, field, parts, rows, numbers)

    def seal(self, parts: Array, rows: Array, values: Array) -> None:
        """Sum staged gradients per row, in their order, and push the sums.

        Rows may repeat; a partition comes once in ``parts``, with its staged rows in (rank, seq,
        slice) order.
        """
        self.push(*kernels.sum_rows(self.array, parts, rows, values))

    def configure(self, numbers: Mapping[str, float]) -> None:
        """Change numbers of the optimizer.

        Raises
        ------
        InvalidArgument
            If there is no optimizer, or it does not take such a number; nothing has changed then.
        """
        if self.optimizer is None:
            reason = f"table {self.spec.name!r} has no optimizer to configure"
            raise InvalidArgument(name="configure", value=dict(numbers), reason=reason)
        self.optimizer = self.optimizer.configured(**numbers)
        self._numbers = _numbers(self.optimizer)

    # --- whole partitions
    # ---------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of memory taken by the local partitions."""
        return int(self.array.nbytes)

    @property
    def partitions(self) -> list[int]:
        """Numbers of the local partitions."""
        return [int(p) for p in self.array.open_partitions()]

    @property
    def rows(self) -> int:
        """Rows of the local partitions."""
        return sum(self.array.rows(p) for p in self.partitions)

    def count(self, partitions: Sequence[int] | Array) -> Array:
        """Return the number of rows of each partition, int64."""
        return np.array([self.array.rows(int(p)) for p in partitions], np.int64)

    def keys(self, partition: int) -> Array:
        """Return the keys of a partition in row order, int64; in a hashed table a view."""
        keys: Array = self.array.keys(partition)
        return keys

    def field(self, partition: int, field: int) -> Array:
        """Return a view of one field of a partition, in row order."""
        view: Array = self.array.field(partition, field)
        return view

    def partition(self, partition: int, *, writeable: bool = True) -> Part:
        """Return a partition as server functions see it, good until the table's next write."""
        return Part(
            partition,
            self.keys(partition),
            {name: self.field(partition, i) for i, name in enumerate(self.field_names)},
            seed=self.spec.seed,
            applied=int(self.applied[partition]),
            width=self.spec.width,
            writeable=writeable,
        )

    def reduce(self, partition: int, function: Callable[..., Result], *args: Any) -> Result:
        """Return ``function(part, *args)`` on a read-only partition."""
        return function(self.partition(partition, writeable=False), *args)

    def apply(self, partition: int, function: Callable[..., Any], *args: Any) -> None:
        """Call ``function(part, *args)``, which changes fields in place, and count it.

        Where the optimizer computes ``value`` from its other fields (FTRL), these follow the rows
        whose value the function has changed. An error passes through; what the function had written
        by then stays.
        """
        part = self.partition(partition)
        optimizer = self.optimizer
        derived = optimizer is not None and optimizer.derives_value and len(part) > 0
        before = part[VALUE].copy() if derived else None
        self.applied[partition] += 1
        function(part, *args)
        if optimizer is not None and before is not None:
            changed = (before != part[VALUE]).reshape(len(part), -1)
            rows = np.flatnonzero(changed.any(axis=1))
            fields = {name: part[name][rows] for name in self.field_names}
            optimizer.replaced(fields)
            for name, numbers in fields.items():
                part[name][rows] = numbers

    def reduce_together(
        self, partitions: Sequence[int], reducer: TableReducer
    ) -> list[list[Array]]:
        """Return the partial of each partition, all by one call."""
        return reducer.partials(self.array, partitions)

    def apply_together(self, partitions: Sequence[int], applier: TableApplier) -> None:
        """Change partitions in place, all by one call, and count it for each."""
        self.applied[np.asarray(partitions, np.int64)] += 1
        applier.change(self.array, partitions)

    def arrays(self, partition: int) -> dict[str, Array]:
        """Return views of ``key`` and every field, for a forked child or a quick look."""
        fields = {name: self.field(partition, i) for i, name in enumerate(self.field_names)}
        return {KEY: self.keys(partition), **fields}

    def image(self, partition: int) -> dict[str, Array]:
        """Return a copy of :meth:`arrays`."""
        return {name: array.copy() for name, array in self.arrays(partition).items()}

    def load(
        self, partition: int, keys: Array, fields: Sequence[Array], log: int, *, applied: int = 0
    ) -> None:
        """Replace the content of a partition, or open it so: rows in the order given, all fields.

        Raises
        ------
        ValueError
            If sizes or dtypes do not fit, or a key occurs twice or does not belong there.
        """
        self._check_all(fields)
        self.array.load(partition, keys, list(fields))
        self.array.set_log(partition, log)
        self.applied[partition] = applied

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"<{type(self).__name__} {spec.name!r} {spec.dtype} width={spec.width} "
            f"{len(self.array.open_partitions())}/{spec.partitions} partitions, "
            f"{self.nbytes} bytes>"
        )

    # --- inside
    # -------------------------------------------------------------------------------------------

    def _through_numpy(
        self, parts: Array, rows: Array, change: Callable[[dict[str, Array]], None]
    ) -> None:
        """Gather all fields of the rows, change them in numpy, scatter them back.

        Nothing has changed if that code raises, or leaves a field of another shape or kind behind.
        """
        fields = {
            name: self.read(parts, rows, None, field) for field, name in enumerate(self.field_names)
        }
        change(fields)
        changed = [
            self._fitting(fields, field, len(rows)) for field in range(len(self.field_names))
        ]
        for field, numbers in enumerate(changed):
            kernels.scatter_set(self.array, field, parts, rows, numbers)

    def _fitting(self, fields: dict[str, Array], field: int, n: int) -> Array:
        name = self.field_names[field]
        numbers = np.asarray(fields[name])
        shape, dtype = self._shape(n, field), self._field_dtype(field)
        if numbers.shape != shape or not np.can_cast(numbers.dtype, dtype, "same_kind"):
            raise ValueError(
                f"{type(self.optimizer).__name__} left {name!r} as {numbers.dtype} "
                f"{numbers.shape}; it was {dtype} {shape}"
            )
        return np.ascontiguousarray(numbers, dtype)

    def _shape(self, n: int, field: int) -> tuple[int, ...]:
        if not 0 <= field < len(self.field_specs):
            raise MalformedRequest(reason=f"field {field}; {self._words()} are there")
        narrow = self.spec.width == 1 or self.field_specs[field].per_row
        return (n,) if narrow else (n, self.spec.width)

    def _field_dtype(self, field: int) -> np.dtype[Any]:
        return np.dtype(np.int64) if self.field_specs[field].per_row else self.dtype

    def _check_all(self, fields: Sequence[Array]) -> None:
        if len(fields) != len(self.field_names):
            raise ValueError(f"{len(fields)} fields are given; {self._words()} are needed")

    def _words(self) -> str:
        return f"{len(self.field_names)} fields ({', '.join(self.field_names)})"


def _field_specs(optimizer: Optimizer | None) -> tuple[FieldSpec, ...]:
    fields = (FieldSpec(VALUE), *(optimizer.fields() if optimizer else ()))
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1 or name == KEY or not name.isidentifier():
            raise InvalidArgument(
                name="optimizer", value=name, reason="is no good name of a field, or comes twice"
            )
    if len(fields) > MAX_FIELDS:
        reason = f"a table has at most {MAX_FIELDS} fields, value included"
        raise InvalidArgument(name="optimizer", value=", ".join(names), reason=reason)
    return fields


def _numbers(optimizer: Optimizer | None) -> Array:
    return np.array(list(optimizer.numbers().values()) if optimizer else [], np.float64)
