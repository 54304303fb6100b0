"""The vectors of limited-memory BFGS as fields of one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels.partitions import PartitionArray
from sparkps.kernels.rows import scatter_add
from sparkps.optim.base import FieldSpec, Optimizer, built_in

Array = NDArray[Any]

#: Pairs of steps and gradient changes that are kept: pyspark.ml's number.
MEMORY: Final = 10


def _add_gradient(
    partitions: PartitionArray, parts: Array, rows: Array, grads: Array, numbers: Array
) -> None:
    scatter_add(partitions, 1, parts, rows, grads)


@built_in
@dataclass(frozen=True)
class LBFGS(Optimizer):
    """A push adds to the gradient and moves nothing; the table is moved as a whole, once per pass.

    The moves are functions of :mod:`sparkps.store.quasi_newton`, led by
    :class:`sparkps.algos.lbfgs.QuasiNewton`. Because all vectors are fields of one table, their
    rows lie together, and no product of two of them needs the network.

    Fields
    ------
    g
        The sum of the pushed gradients, by ``value``.
    x, gx
        The point that was accepted last, in scaled coordinates, and the gradient there.
    d, t
        The direction, and the point on it that is tried; ``value = t * inv``.
    inv, mu
        The scale of a coordinate, 1 over the feature's standard deviation; the feature's mean.
    s0, y0, s1, ...
        The steps and gradient changes that are remembered.

    References
    ----------
    Liu and Nocedal (1989), On the limited memory BFGS method for large scale optimization.
    """

    kernel = staticmethod(_add_gradient)

    def fields(self) -> tuple[FieldSpec, ...]:
        pairs = (FieldSpec(f"{kind}{slot}") for slot in range(MEMORY) for kind in "sy")
        names = (FieldSpec(name) for name in ("g", "x", "gx", "d", "t"))
        return (*names, FieldSpec("inv", initial=1.0), FieldSpec("mu"), *pairs)

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        np.add(fields["g"], grads, out=fields["g"])
