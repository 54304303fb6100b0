"""The built-in functions of ``table.reduce``; their public names are in ``functions``.

Sums run in the fixed order of :mod:`sparkps.kernels.reduce` and are float64; sums of integers are
exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import InvalidArgument
from sparkps.kernels import reduce as kernels
from sparkps.store.builtin import Reducer, Vector, flat, vector
from sparkps.store.partition import Part

Array = NDArray[Any]


def _scalar(number: float) -> list[Array]:
    return [np.array([number], np.float64)]


@dataclass(frozen=True)
class Sum(Reducer):
    """Sum of the numbers of a field or column: a float, or of an integer field an exact int."""

    name = "sum"
    field: Vector = "value"

    def partial(self, part: Part) -> list[Array]:
        numbers = flat(part, self.field)
        if numbers.dtype == np.int64:
            return [np.array(kernels.sum_exact(numbers), np.int64)]
        return _scalar(kernels.sum(numbers))

    def finish(self, partial: list[Array]) -> float | int:
        words: list[Any] = partial[0].tolist()
        total: float | int = (words[0] << 32) + words[1] if len(words) == 2 else words[0]
        return total


@dataclass(frozen=True)
class ASum(Reducer):
    """Sum of magnitudes, the 1-norm."""

    name = "asum"
    field: Vector = "value"

    def partial(self, part: Part) -> list[Array]:
        return _scalar(kernels.asum(flat(part, self.field)))

    def finish(self, partial: list[Array]) -> float:
        return float(partial[0][0])


@dataclass(frozen=True)
class Norm2(Reducer):
    """Euclidean norm: the square root of the sum of squares."""

    name = "norm2"
    field: Vector = "value"

    def partial(self, part: Part) -> list[Array]:
        numbers = flat(part, self.field)
        return _scalar(kernels.dot(numbers, numbers))

    def finish(self, partial: list[Array]) -> float:
        return math.sqrt(partial[0][0])


@dataclass(frozen=True)
class Min(Reducer):
    """Smallest number; None of an empty table, NaN if there is one."""

    name = "min"
    field: Vector = "value"

    def partial(self, part: Part) -> list[Array]:
        numbers = flat(part, self.field)
        return [np.array(kernels.extremes(numbers)[:1] if len(numbers) else (), numbers.dtype)]

    def combine(self, left: list[Array], right: list[Array]) -> list[Array]:
        if len(left[0]) and len(right[0]):
            return [np.minimum(left[0], right[0])]
        return left if len(left[0]) else right

    def finish(self, partial: list[Array]) -> Any:
        return partial[0][0].item() if len(partial[0]) else None


@dataclass(frozen=True)
class Max(Reducer):
    """Largest number; None of an empty table, NaN if there is one."""

    name = "max"
    field: Vector = "value"

    def partial(self, part: Part) -> list[Array]:
        numbers = flat(part, self.field)
        return [np.array(kernels.extremes(numbers)[1:] if len(numbers) else (), numbers.dtype)]

    def combine(self, left: list[Array], right: list[Array]) -> list[Array]:
        if len(left[0]) and len(right[0]):
            return [np.maximum(left[0], right[0])]
        return left if len(left[0]) else right

    def finish(self, partial: list[Array]) -> Any:
        return partial[0][0].item() if len(partial[0]) else None


@dataclass(frozen=True)
class NormInf(Reducer):
    """Largest magnitude, the maximum norm; 0 of an empty table."""

    name = "norminf"
    field: Vector = "value"

    def partial(self, part: Part) -> list[Array]:
        numbers = flat(part, self.field)
        least, most = kernels.extremes(numbers) if len(numbers) else (0.0, 0.0)
        # max() would lose a NaN in second place; both are NaN then.
        return _scalar(max(-least, most))

    def combine(self, left: list[Array], right: list[Array]) -> list[Array]:
        return [np.maximum(left[0], right[0])]

    def finish(self, partial: list[Array]) -> float:
        return float(partial[0][0])


@dataclass(frozen=True)
class Nnz(Reducer):
    """How many numbers are not zero."""

    name = "nnz"
    field: Vector = "value"

    def partial(self, part: Part) -> list[Array]:
        return [np.array([kernels.nnz(flat(part, self.field))], np.int64)]

    def finish(self, partial: list[Array]) -> int:
        return int(partial[0][0])


@dataclass(frozen=True)
class Count(Reducer):
    """How many rows exist."""

    name = "count"

    def partial(self, part: Part) -> list[Array]:
        return [np.array([len(part)], np.int64)]

    def finish(self, partial: list[Array]) -> int:
        return int(partial[0][0])


@dataclass(frozen=True)
class Dot(Reducer):
    """Dot product of two fields, or of two columns of ``value``."""

    name = "dot"
    x: Vector
    y: Vector

    def partial(self, part: Part) -> list[Array]:
        return _scalar(_dot(part, self.x, self.y))

    def finish(self, partial: list[Array]) -> float:
        return float(partial[0][0])


@dataclass(frozen=True)
class Dots(Reducer):
    """All dot products at once: a symmetric float64 matrix, ``[i, j]`` with the bits of ``dot``.

    Without arguments: of all columns of ``value`` where there are several, else of all fields.
    """

    name = "dots"
    vectors: tuple[Vector, ...] = ()

    def partial(self, part: Part) -> list[Array]:
        if not self.vectors and part.width > 1:
            return [kernels.gram(part["value"])]
        names = self.vectors or part.fields
        columns = [name for name in names if isinstance(name, int)]
        if part.width > 1 and len(columns) == len(names):
            for column in columns:
                vector(part, column)
            return [kernels.gram(part["value"][:, columns])]
        matrix = np.empty((len(names), len(names)), np.float64)
        for i, x in enumerate(names):
            for j, y in enumerate(names[: i + 1]):
                matrix[i, j] = matrix[j, i] = _dot(part, x, y)
        return [matrix]

    def finish(self, partial: list[Array]) -> Array:
        return partial[0]


@dataclass(frozen=True)
class TopK(Reducer):
    """The ``k`` rows of the largest numbers or magnitudes: (keys, numbers), largest first.

    Of a field with one number per row, or a column of ``value``. Equal ones come by ascending key;
    NaN is never among them.
    """

    name = "top_k"
    k: int
    field: Vector = "value"
    magnitude: bool = False

    def partial(self, part: Part) -> list[Array]:
        if self.k < 0:
            raise InvalidArgument(name="k", value=self.k, reason="must not be negative")
        numbers = vector(part, self.field)
        if numbers.ndim > 1:
            reason = f"has {part.width} numbers per row; name a column by its number"
            raise InvalidArgument(name="field", value=self.field, reason=reason)
        return self._largest(part.keys, numbers)

    def combine(self, left: list[Array], right: list[Array]) -> list[Array]:
        keys, numbers = (np.concatenate(pair) for pair in zip(left, right, strict=True))
        return self._largest(keys, numbers)

    def finish(self, partial: list[Array]) -> tuple[Array, Array]:
        return partial[0], partial[1]

    def _largest(self, keys: Array, numbers: Array) -> list[Array]:
        sizes = self._sizes(numbers)
        real = sizes == sizes
        if 0 < self.k < np.count_nonzero(real):
            # Selection first: a partition may have millions of rows.
            bound = np.partition(sizes[real], -self.k)[-self.k]
            real &= sizes >= bound
        rows = np.flatnonzero(real)
        # Last key decides first: by size, then, since the order is turned round, by ~key, which is
        # -key - 1.
        order = rows[np.lexsort((~keys[rows], sizes[rows]))[::-1][: self.k]]
        return [keys[order], numbers[order]]

    def _sizes(self, numbers: Array) -> Array:
        if not self.magnitude:
            return numbers
        # uint64 holds the magnitude of -2**63 too.
        sizes = np.abs(numbers)
        return sizes.view(np.uint64) if numbers.dtype == np.int64 else sizes


def _dot(part: Part, x: Vector, y: Vector) -> float:
    a, b = flat(part, x), flat(part, y)
    if len(a) != len(b):
        reason = f"has {len(a)} numbers here, and {x!r} has {len(b)}"
        raise InvalidArgument(name="field", value=y, reason=reason)
    if a.dtype != b.dtype:
        a, b = a.astype(np.float64), b.astype(np.float64)
    return kernels.dot(a, b)
