"""Keys and values as a caller gives them, made into what the wire takes, or refused.

Rules (DESIGN §4): keys are integers, int64 on the wire; floats and unsigned numbers from 2**63 are
refused, since a cast would change them silently. A dense table has the keys ``0..dim-1``. Values
are cast to the table's dtype, but never a float to an integer. NaN and infinity are refused unless
the table allows them. Whatever numpy understands is welcome: lists, pandas and Arrow columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparkps.errors import InvalidArgument, InvalidKey, WrongType
from sparkps.kernels.arrays import any_nonfinite
from sparkps.spec import DTYPES as NAMES
from sparkps.spec import TableSpec

Array = npt.NDArray[Any]

INT64: Final = np.dtype(np.int64)
INT32: Final = np.dtype(np.int32)
DTYPES: Final = {name: np.dtype(name) for name in NAMES}
_FINITE: Final = (
    "table {!r} takes finite numbers only; make it with allow_nonfinite=True to allow others"
)


def as_keys(keys: Any, table: str) -> Array:
    """Return keys as a C-contiguous int64 array of one dimension; the caller's own if it is one.

    Raises
    ------
    WrongType
        Not integers, or not of one dimension.
    InvalidKey
        An unsigned number from 2**63.
    """
    if (
        type(keys) is np.ndarray
        and keys.dtype is INT64
        and keys.ndim == 1
        and keys.flags.c_contiguous
    ):
        return keys
    array = _as_array(keys, f"keys of table {table!r}", "whole numbers in one dimension")
    if array.ndim != 1:
        raise WrongType(
            what=f"keys of table {table!r}", got=f"of shape {array.shape}", expected="one dimension"
        )
    if array.size == 0 and not isinstance(keys, np.ndarray):
        return np.empty(0, INT64)  # numpy makes an empty list a float array
    if array.dtype.kind not in "iu":
        raise WrongType(
            what=f"keys of table {table!r}", got=f"{array.dtype}", expected="an integer dtype"
        )
    _refuse_large(array, table)
    return np.ascontiguousarray(array, dtype=INT64)


def _as_array(given: Any, what: str, expected: str) -> Array:
    """Whatever numpy understands; lists of lists of several lengths it does not."""
    try:
        return np.asarray(given)
    except (ValueError, TypeError, OverflowError) as error:
        raise WrongType(what=what, got=f"no array ({error})", expected=expected) from None


def _refuse_large(array: Array, table: str) -> None:
    """Refuse what int64 cannot hold."""
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        large = array > np.uint64(2**63 - 1)
        if large.any():
            index = int(large.argmax())
            raise InvalidKey(
                table=table,
                key=int(array.flat[index]),
                index=index,
                reason="is 2**63 or more; int64 ends there",
                name="keys",
                value=int(array.flat[index]),
            )


def refuse_keys(keys: Array, spec: TableSpec) -> InvalidKey | None:
    """Return the error that names the first key outside a dense table, if there is one."""
    if spec.dim is None:
        return None
    bad = (keys < 0) | (keys >= spec.dim)
    if not bad.any():
        return None
    index = int(bad.argmax())
    key = int(keys[index])
    return InvalidKey(
        table=spec.name,
        key=key,
        index=index,
        name="keys",
        value=key,
        reason=f"is outside 0..{spec.dim - 1}; a table with dim= has no other keys",
    )


def as_ordinals(ordinals: Any, size: int, table: str) -> Array:
    """Return ordinals as a C-contiguous int32 array, the caller's own if it is one.

    Their range is checked only where a cast would hide it; see :func:`refuse_ordinals`.
    """
    if (
        type(ordinals) is np.ndarray
        and ordinals.dtype is INT32
        and ordinals.ndim == 1
        and ordinals.flags.c_contiguous
    ):
        return ordinals
    array = _as_array(ordinals, f"ordinals of table {table!r}", "what vocabulary.add() returns")
    if array.size == 0:
        return np.empty(0, INT32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise WrongType(
            what=f"ordinals of table {table!r}",
            got=f"{array.dtype} of shape {array.shape}",
            expected="an int32 array of one dimension, as vocabulary.add() returns",
        )
    if array.dtype != INT32:
        if int(array.max()) >= size or int(array.min()) < 0:
            raise _bad_ordinal(array, size, table)
        array = array.astype(INT32)
    return np.ascontiguousarray(array)


def _bad_ordinal(array: Array, size: int, table: str) -> InvalidArgument:
    index = int(((array < 0) | (array >= size)).argmax())
    return InvalidArgument(
        name=f"ordinals[{index}]",
        value=int(array[index]),
        reason=f"the vocabulary of table {table!r} has {size} keys; add() gives a key its ordinal",
    )


def refuse_ordinals(ordinals: Array, size: int, table: str) -> InvalidArgument | None:
    """Return the error that names the first ordinal outside ``0..size-1``, if there is one."""
    if len(ordinals) and (int(ordinals.min()) < 0 or int(ordinals.max()) >= size):
        return _bad_ordinal(ordinals, size, table)
    return None


def as_values(values: Any, rows: int, spec: TableSpec) -> Array:
    """Return values as a C-contiguous array of the table's dtype, ``(rows,)`` or ``(rows, width)``.

    A single number stands for all. Finiteness is checked here too.

    Raises
    ------
    WrongType
        Floats for an int64 table; not numbers at all.
    InvalidArgument
        A wrong shape; a number that is not finite (its row is named).
    """
    array = _as_array(values, f"values for table {spec.name!r}", "numbers in rows of one length")
    dtype = DTYPES[spec.dtype]
    if array.dtype is not dtype and array.dtype != dtype:
        array = _cast(array, dtype, spec)
    shape = (rows,) if spec.width == 1 else (rows, spec.width)
    if array.ndim == 0:
        array = np.full(shape, array)
    elif array.shape != shape:
        raise InvalidArgument(
            name="values",
            value=f"of shape {array.shape}",
            reason=f"table {spec.name!r} takes shape {shape} for {rows} keys, or one number",
        )
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    if not spec.allow_nonfinite and dtype.kind == "f":
        refuse_nonfinite(array, spec)
    return array


def _cast(array: Array, dtype: np.dtype[Any], spec: TableSpec) -> Array:
    kind = array.dtype.kind
    if kind not in "iufb" or (dtype.kind == "i" and kind == "f" and array.size > 0):
        raise WrongType(
            what=f"values for table {spec.name!r}",
            got=str(array.dtype),
            expected="whole numbers (int64 tables count exactly)"
            if dtype.kind == "i"
            else "numbers",
        )
    if dtype.kind == "i":
        _refuse_large(array, spec.name)
    with np.errstate(over="ignore"):  # what overflows is infinite and refused as such
        return array.astype(dtype)


def refuse_nonfinite(values: Array, spec: TableSpec) -> None:
    """Raise the error that names the first row with NaN or infinity."""
    bad = any_nonfinite(values)
    if bad >= 0:
        row = bad // spec.width
        raise InvalidArgument(
            name=f"values[{row}]",
            value=float(values.flat[bad]),
            reason=_FINITE.format(spec.name),
        )


def refuse_nonfinite_numbers(numbers: Mapping[str, Any], spec: TableSpec) -> None:
    """Raise for a built-in's argument that would write NaN or infinity into the table."""
    if spec.allow_nonfinite:
        return
    for name, number in numbers.items():
        if isinstance(number, float) and not math.isfinite(number):
            raise InvalidArgument(name=name, value=number, reason=_FINITE.format(spec.name))
