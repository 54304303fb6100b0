"""Arrow to numpy: sparse rows of a ``RecordBatch`` as CSR, number columns as arrays.

What comes in is a batch as Spark hands it to a task: any slice of it, lists with any offset,
vectors of ``pyspark.ml`` (``VectorUDT`` arrives as a struct). What goes out owns its memory and
never keeps the batch alive, so that a worker holds 8 bytes per non-zero (int32 column, float32
value; 4 when all values are 1) and not the 12 or more of Arrow besides. No Python loop runs over
rows or non-zeros.

Rules for rows:

* Ids are any integers that fit int64; floats and strings are refused, never rounded or hashed here.
* Ids of a row need no order. An id that comes twice in a row counts twice: its values add up in
  every product, in training and in scoring alike.
* A dense vector stands for its non-zero entries, so that ``DenseVector([0, 2])`` and the equal
  sparse vector are the same row.
* A null row, a null id or value, NaN and infinity are refused with their count and the first row
  that has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from sparkps.errors import InvalidArgument, InvalidInput, WrongType
from sparkps.kernels import csr as kernels
from sparkps.kernels.arrays import any_nonfinite
from sparkps.kernels.sums import unique
from sparkps.spec import no_column

Array = npt.NDArray[Any]

#: Fields of the struct as which ``pyspark.ml.linalg.VectorUDT`` reaches a task.
VECTOR_FIELDS = {"type", "size", "indices", "values"}
_DENSE = 1


class KeyRegister(Protocol):
    """What :func:`csr` needs of a vocabulary."""

    def add(self, keys: Array) -> Array:
        """Return the int32 ordinal of each key."""


@dataclass(frozen=True, repr=False)
class CSR:
    """Sparse rows, their columns numbered by the batch's distinct keys.

    Attributes
    ----------
    indptr
        int32 or int64 ``(rows + 1,)``: row i has the non-zeros ``indptr[i]:indptr[i + 1]``.
    columns
        int32 ``(nnz,)``: position of each non-zero's key in ``keys`` (or in ``ordinals``).
    values
        ``(nnz,)`` float32 or float64; None when all of them are 1.
    keys
        int64 distinct keys in order of first appearance; None with a vocabulary.
    ordinals
        int32 distinct ordinals in the vocabulary, in that order; None without one.
    size
        The length of the vectors of a ``VectorUDT`` column; None for columns of ids, where any
        int64 is a key.
    """

    indptr: Array
    columns: Array
    values: Array | None = None
    keys: Array | None = None
    ordinals: Array | None = None
    size: int | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of non-zeros."""
        return len(self.columns)

    @property
    def distinct(self) -> Array:
        """``keys`` or ``ordinals``, whichever there is."""
        return self.keys if self.ordinals is None else self.ordinals  # type: ignore[return-value]

    def dot(self, w: Array) -> Array:
        """Return X·w: ``(rows,)`` for ``w`` of shape ``(distinct,)``, ``(rows, k)`` for
        ``(distinct, k)``.
        """
        if w.ndim == 1:
            return kernels.dot(self.indptr, self.columns, self.values, w)
        return kernels.matmul(self.indptr, self.columns, self.values, w)

    def dot_t(self, c: Array) -> Array:
        """Return Xᵀ·c, one row per distinct key, for ``c`` of shape ``(rows,)`` or ``(rows, k)``;
        in row order.
        """
        out = np.zeros((len(self.distinct), *c.shape[1:]), c.dtype)
        if c.ndim == 1:
            kernels.dot_t(self.indptr, self.columns, self.values, c, out)
        else:
            kernels.matmul_t(self.indptr, self.columns, self.values, c, out)
        return out

    def __repr__(self) -> str:
        what = "keys" if self.ordinals is None else "ordinals"
        values = "all 1" if self.values is None else str(self.values.dtype)
        return (
            f"<CSR {self.rows} rows, {self.nnz} non-zeros ({values}), {len(self.distinct)} {what}>"
        )


def csr(
    batch: pa.RecordBatch,
    ids: str,
    values: str | None = None,
    vocabulary: KeyRegister | None = None,
    dtype: npt.DTypeLike = "float32",
) -> CSR:
    """Turn a column of sparse rows into CSR.

    Parameters
    ----------
    batch
        As ``prepare`` and ``step`` get it.
    ids
        Name of the column: an array of integers, a ``VectorUDT``, or a struct of two arrays
        (integers, numbers).
    values
        Name of the column of values, an array as long as the ids in each row. None: the values of
        the vector or struct, or 1 for an array of ids.
    vocabulary
        A table's vocabulary; the batch's distinct keys are added to it and come back as ordinals.
    dtype
        Of the values: float32 or float64.

    Returns
    -------
    CSR
        Owns its memory; nothing of ``batch`` stays alive with it.

    Raises
    ------
    WrongType
        A column is of another type.
    InvalidInput
        A null, NaN or infinity, or rows whose ids and values differ in number.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from sparkps import csr
    >>> batch = pa.record_batch({"ids": [[7, 3], [], [3, 2**40]]})
    >>> x = csr(batch, "ids")
    >>> x
    <CSR 3 rows, 4 non-zeros (all 1), 3 keys>
    >>> x.keys, x.columns
    (array([            7,             3, 1099511627776]), array([0, 1, 1, 2], dtype=int32))
    """
    if np.dtype(dtype) not in (np.dtype("float32"), np.dtype("float64")):
        raise InvalidArgument(name="dtype", value=str(dtype), reason="must be float32 or float64")
    rows = _sparse_rows(batch, ids, values)
    numbers = (
        None if rows.values is None else _numbers(rows.values, dtype, rows.indptr, values or ids)
    )
    distinct, columns = unique(_as_keys(rows.ids, ids))
    if vocabulary is None:
        return CSR(rows.indptr, columns, numbers, keys=distinct, size=rows.size)
    return CSR(rows.indptr, columns, numbers, ordinals=vocabulary.add(distinct), size=rows.size)


def column(batch: pa.RecordBatch, name: str, dtype: npt.DTypeLike = "float32") -> Array:
    """Return a column of numbers as a fresh ``(rows,)`` array.

    Raises
    ------
    WrongType
        The column holds no numbers, or floats where an integer dtype is asked for.
    InvalidInput
        A null, NaN or infinity in it.
    """
    array = _find(batch, name)
    kind = array.type
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if not numeric or (types.is_floating(kind) and np.dtype(dtype).kind != "f"):
        raise WrongType(
            what=f"column {name!r}", got=str(kind), expected=f"a number that fits {np.dtype(dtype)}"
        )
    _refuse_nulls(array, name, "nulls")
    with np.errstate(over="ignore"):
        out: Array = array.to_numpy(zero_copy_only=False).astype(dtype)
    if out.dtype.kind == "f" and any_nonfinite(out) >= 0:
        _refuse(name, "NaN or infinite values", ~np.isfinite(out))
    return out


class _Rows(NamedTuple):
    indptr: Array
    ids: Array
    values: Array | None
    size: int | None = None


class _Lists(NamedTuple):
    """A list column: where each row begins and ends in ``flat``, which begins at the first row's
    first element.
    """

    indptr: Array
    flat: pa.Array


def _find(batch: pa.RecordBatch, name: str) -> pa.Array:
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        names = batch.schema.names
        reason = f"{len(places)} of the columns {', '.join(names)} are called so"
        if not places:
            reason = no_column(name, names)
        raise InvalidArgument(name="column", value=name, reason=reason)
    return batch.column(places[0])


def _sparse_rows(batch: pa.RecordBatch, ids: str, values: str | None) -> _Rows:
    array = _find(batch, ids)
    _refuse_nulls(array, ids, "no value (null)")
    if types.is_struct(array.type):
        if values is not None:
            reason = f"column {ids!r} is a {array.type} and has its own values"
            raise InvalidArgument(name="values", value=values, reason=reason)
        if {field.name for field in array.type} == VECTOR_FIELDS:
            return _vectors(array, ids)
        ids_array, values_array = _two_lists(array, ids)
        return _paired(_lists(ids_array, ids), _lists(values_array, ids), ids)
    lists = _lists(array, ids)
    if values is None:
        return _Rows(lists.indptr, _flat(lists, ids, "null ids"), None)
    other = _find(batch, values)
    _refuse_nulls(other, values, "no value (null)")
    return _paired(lists, _lists(other, values), values)


def _two_lists(array: pa.StructArray, name: str) -> tuple[pa.Array, pa.Array]:
    """The children of a struct: one list of integers, one of floats, whatever their names."""
    children = array.flatten()
    lists = [child for child in children if _is_list(child.type)]
    integers = [child for child in lists if types.is_integer(child.type.value_type)]
    floats = [child for child in lists if types.is_floating(child.type.value_type)]
    if len(children) != 2 or len(integers) != 1 or len(floats) != 1:
        raise _no_rows(name, array.type)
    return integers[0], floats[0]


def _paired(ids: _Lists, values: _Lists, name: str) -> _Rows:
    if not np.array_equal(ids.indptr, values.indptr):
        rows = np.diff(ids.indptr) != np.diff(values.indptr)
        row = int(rows.argmax())
        reason = (
            f"{int(rows.sum())} rows have other numbers of ids and values; in that row "
            f"{int(np.diff(ids.indptr)[row])} ids and {int(np.diff(values.indptr)[row])} values"
        )
        raise InvalidInput(where=f"column {name!r}, row {row} of its batch", reason=reason)
    return _Rows(ids.indptr, _flat(ids, name, "null ids"), _flat(values, name, "null values"))


def _vectors(array: pa.StructArray, name: str) -> _Rows:
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    values = _lists(children["values"], name)
    dense = children["type"].to_numpy(zero_copy_only=False) == _DENSE
    lengths = np.diff(values.indptr)
    sizes = children["size"].fill_null(0).to_numpy(zero_copy_only=False)
    size = _one_size(np.where(dense, lengths, sizes), name)
    if dense.any():
        rows = _mixed(children["indices"], values, dense, name)
    else:
        rows = _paired(_lists(children["indices"], name), values, name)
    outside = (rows.ids < 0) | (rows.ids >= (size or 0))
    if outside.any():
        _refuse_elements(
            name,
            f"indices outside of their vectors' size {size}",
            np.flatnonzero(outside),
            rows.indptr,
        )
    return rows._replace(size=size)


def _one_size(sizes: Array, name: str) -> int | None:
    if len(sizes) and (sizes != sizes[0]).any():
        row = int((sizes != sizes[0]).argmax())
        reason = f"vectors of several sizes: {sizes[row]} here and {sizes[0]} in row 0"
        raise InvalidInput(where=f"column {name!r}, row {row} of its batch", reason=reason)
    return int(sizes[0]) if len(sizes) else None


def _mixed(indices: pa.Array, values: _Lists, dense: Array, name: str) -> _Rows:
    """Dense vectors among the rows: their ids are positions, and their zeros are left out."""
    numbers = _flat(values, name, "null values")
    lengths = np.diff(values.indptr)
    keep = np.repeat(~dense, lengths)
    ids = np.arange(len(numbers), dtype=np.int64) - np.repeat(values.indptr[:-1], lengths)
    # The lists of dense rows are null, and ``flatten`` skips what a null list may hold.
    ids[keep] = indices.flatten().to_numpy(zero_copy_only=False)
    keep |= numbers != 0
    indptr = np.concatenate(([0], np.cumsum(keep)))[values.indptr].astype(values.indptr.dtype)
    return _Rows(indptr, ids[keep], numbers[keep])


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _lists(array: pa.Array, name: str) -> _Lists:
    if not _is_list(array.type):
        raise _no_rows(name, array.type)
    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        indptr = np.arange(len(array) + 1, dtype=np.int64) * size
        return _Lists(indptr, array.values.slice(array.offset * size, len(array) * size))
    offsets = array.offsets.to_numpy()
    first = int(offsets[0]) if len(offsets) else 0
    indptr = offsets - first if len(offsets) else np.zeros(1, np.int32)
    return _Lists(indptr, array.values.slice(first, int(indptr[-1])))


def _flat(lists: _Lists, name: str, what: str) -> Array:
    """The elements of all rows as a view of Arrow's memory; nulls among them are refused."""
    kind = lists.flat.type
    if not (types.is_integer(kind) or types.is_floating(kind)):
        expected = "array of numbers"
        if types.is_string(kind) or types.is_large_string(kind):
            expected += " (pyspark.sql.functions.xxhash64 makes ids of text)"
        raise WrongType(what=f"column {name!r}", got=f"array of {kind}", expected=expected)
    if lists.flat.null_count:
        missing = np.flatnonzero(lists.flat.is_null().to_numpy(zero_copy_only=False))
        _refuse_elements(name, what, missing, lists.indptr)
    view: Array = lists.flat.to_numpy(zero_copy_only=True)
    return view


def _as_keys(ids: Array, name: str) -> Array:
    if ids.dtype.kind not in "iu":
        raise WrongType(
            what=f"ids of column {name!r}", got=str(ids.dtype), expected="an integer type"
        )
    if ids.dtype == np.uint64 and len(ids) and int(ids.max()) >= 2**63:
        raise WrongType(
            what=f"ids of column {name!r}", got=f"uint64 {int(ids.max())}", expected="below 2**63"
        )
    return np.ascontiguousarray(ids, np.int64)


def _numbers(values: Array, dtype: npt.DTypeLike, indptr: Array, name: str) -> Array | None:
    if values.dtype.kind not in "iuf":
        raise WrongType(
            what=f"values of column {name!r}", got=str(values.dtype), expected="a number type"
        )
    with np.errstate(over="ignore"):
        numbers = values.astype(dtype, copy=True)
    if any_nonfinite(numbers) >= 0:
        _refuse_elements(
            name, "NaN or infinite values", np.flatnonzero(~np.isfinite(numbers)), indptr
        )
    return None if bool((numbers == 1).all()) else numbers


def _no_rows(name: str, kind: pa.DataType) -> WrongType:
    return WrongType(
        what=f"column {name!r}",
        got=str(kind),
        expected="array<bigint>, a VectorUDT, or a struct of two arrays, of integers and of floats",
    )


def _refuse_nulls(array: pa.Array, name: str, what: str) -> None:
    if array.null_count:
        _refuse(name, what, array.is_null().to_numpy(zero_copy_only=False))


def _refuse_elements(name: str, what: str, places: Array, indptr: Array) -> None:
    rows = np.searchsorted(indptr, places, side="right") - 1
    bad = np.zeros(len(indptr) - 1, bool)
    bad[rows] = True
    _refuse(name, what, bad)


def _refuse(name: str, what: str, bad: Array) -> None:
    row = int(np.argmax(bad))
    reason = (
        f"{int(np.count_nonzero(bad))} of {len(bad)} rows have {what}; filter or fill them first"
    )
    raise InvalidInput(where=f"column {name!r}, row {row} of its batch", reason=reason)


def concatenated(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch of all rows; a single piece is returned as it is, without a copy."""
    if len(pieces) == 1:
        return pieces[0]
    table = pa.Table.from_batches(pieces).combine_chunks()
    return pa.RecordBatch.from_arrays(
        [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns],
        schema=table.schema,
    )
