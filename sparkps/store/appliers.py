"""The built-in functions of ``table.apply``; their public names are in ``functions``.

They change rows that exist, number by number, in the field's dtype; a hashed table gets no new
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import InvalidArgument
from sparkps.kernels import partitions
from sparkps.store.builtin import Applier, Vector, fitting, vector
from sparkps.store.partition import Part

Array = NDArray[Any]


@dataclass(frozen=True)
class Fill(Applier):
    """Set every number to ``x``."""

    name = "fill"
    x: float
    field: Vector = "value"

    def __call__(self, part: Part) -> None:
        numbers = vector(part, self.field)
        numbers[...] = fitting(numbers, "x", self.x)


@dataclass(frozen=True)
class Scale(Applier):
    """Multiply every number by ``a``."""

    name = "scale"
    a: float
    field: Vector = "value"

    def __call__(self, part: Part) -> None:
        numbers = vector(part, self.field)
        numbers *= fitting(numbers, "a", self.a)


@dataclass(frozen=True)
class Axpy(Applier):
    """Add ``a`` times ``x`` to ``y``."""

    name = "axpy"
    a: float
    x: Vector
    y: Vector

    def __call__(self, part: Part) -> None:
        y = vector(part, self.y)
        y += fitting(y, "a", self.a) * _like(part, self.x, y)


@dataclass(frozen=True)
class Combine(Applier):
    """Set ``into`` to the sum of ``coefficients[i]`` times ``vectors[i]``, added in that order.

    ``into`` may be one of the vectors. With no vectors it is set to 0.
    """

    name = "combine"
    coefficients: tuple[float, ...]
    vectors: tuple[Vector, ...]
    into: Vector

    def __call__(self, part: Part) -> None:
        if len(self.coefficients) != len(self.vectors):
            reason = f"are for {len(self.vectors)} vectors"
            raise InvalidArgument(name="coefficients", value=self.coefficients, reason=reason)
        target = vector(part, self.into)
        total = np.zeros(target.shape, target.dtype)
        for a, x in zip(self.coefficients, self.vectors, strict=True):
            total += fitting(target, "coefficients", a) * _like(part, x, target)
        target[...] = total


@dataclass(frozen=True)
class Threshold(Applier):
    """Set numbers of a magnitude of ``t`` or less to 0."""

    name = "threshold"
    t: float
    field: Vector = "value"

    def __call__(self, part: Part) -> None:
        numbers = vector(part, self.field)
        numbers[np.abs(numbers) <= self.t] = 0


@dataclass(frozen=True)
class Randomize(Applier):
    """Set ``value`` to what an ``init`` gives, a function of (seed, key, column)."""

    name = "randomize"
    kind: str
    a: float
    b: float
    seed: int = 0

    def __call__(self, part: Part) -> None:
        value = part["value"]
        value[...] = partitions.init_values(
            (self.kind, self.a, self.b), self.seed, part.keys, part.width, value.dtype
        )


def _like(part: Part, name: Vector, target: Array) -> Array:
    source = vector(part, name)
    if source.shape != target.shape or not np.can_cast(source.dtype, target.dtype, "same_kind"):
        reason = (
            f"is {source.dtype} with {source[:1].size} numbers per row; "
            f"what it goes into is {target.dtype} with {target[:1].size}"
        )
        raise InvalidArgument(name="field", value=name, reason=reason)
    return source.astype(target.dtype, copy=False)
