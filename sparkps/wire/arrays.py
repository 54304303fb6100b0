"""Lists of numpy arrays in a message: what built-in server functions return, one list per
partition.

The shapes go into the header of :class:`~sparkps.wire.messages.Results`, the numbers into its
buffers. Only plain numbers travel this way (booleans, integers, floats), so that nothing is
unpickled; results of a user's own function are pickled by :mod:`sparkps.wire.userfn` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from sparkps.errors import MalformedRequest, WrongType
from sparkps.wire.effects import Buffer
from sparkps.wire.frames import as_array, size

Shapes = list[tuple[int, list[tuple[str, tuple[int, ...]]]]]
Array = np.ndarray[Any, Any]

DTYPES: Final = frozenset(
    {
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
    }
)


def pack(results: Iterable[tuple[int, Sequence[Any]]]) -> tuple[Shapes, list[Buffer]]:
    """Return the shapes for the header and the buffers of ``(partition, [array or number, ...])``
    pairs.

    Raises
    ------
    WrongType
        If something in a list is no array of numbers.

    Examples
    --------
    >>> shapes, buffers = pack([(3, [np.zeros((2, 2), np.float32), 1.5])])
    >>> shapes
    [(3, [('float32', (2, 2)), ('float64', ())])]
    >>> unpack(shapes, buffers)[0][1][1]
    array(1.5)
    """
    shapes: Shapes = []
    buffers: list[Buffer] = []
    for partition, values in results:
        arrays = [np.asarray(value, order="C") for value in values]
        for array in arrays:
            if array.dtype.name not in DTYPES or not array.dtype.isnative:
                raise WrongType(
                    what="a result", got=f"of dtype {array.dtype}", expected="one of plain numbers"
                )
        shapes.append((int(partition), [(array.dtype.name, array.shape) for array in arrays]))
        buffers.extend(arrays)
    return shapes, buffers


def unpack(shapes: Shapes, buffers: Sequence[Buffer]) -> list[tuple[int, list[Array]]]:
    """The inverse of :func:`pack`; the arrays are views of the buffers.

    Raises
    ------
    MalformedRequest
        If shapes and buffers do not fit each other.
    """
    if sum(len(arrays) for _, arrays in shapes) != len(buffers):
        raise MalformedRequest(reason=f"{len(buffers)} buffers do not fit the shapes {shapes}")
    rest = iter(buffers)
    return [
        (partition, [_shaped(next(rest), *kind) for kind in arrays]) for partition, arrays in shapes
    ]


def _shaped(buffer: Buffer, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype not in DTYPES or any(n < 0 for n in shape) or len(shape) > 32:
        raise MalformedRequest(reason=f"no array has dtype {dtype!r} and shape {shape}")
    if size(buffer) != prod(shape) * np.dtype(dtype).itemsize:
        raise MalformedRequest(
            reason=f"a buffer of {size(buffer)} bytes is no {dtype} array of shape {shape}"
        )
    return as_array(buffer, dtype).reshape(shape)
