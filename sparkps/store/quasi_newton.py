"""The server functions of limited-memory BFGS and its variant for the 1-norm, OWL-QN.

They work on the fields of :class:`sparkps.optim.lbfgs.LBFGS`, partition by partition; all numbers
that belong to the whole vector come from, or go to, :class:`sparkps.algos.lbfgs.QuasiNewton`.

The objective at ``t`` is, with ``p = 1`` or, where the penalties are on the unscaled weights,
``p = inv``::

    F(t) = scale * loss(t * inv) + l2/2 * |p t|² + l1 * |p t|_1

Its smooth part has the gradient ``inv * (scale * g - mu * slope) + l2 * p² * t``: where there is an
intercept, whose derivative is ``slope``, features count from their means ``mu``, which makes the
coordinates less dependent on each other. With ``l1``, the
*pseudo-gradient* takes its place (Andrew and Gao, "Scalable training of L1-regularized log-linear
models", ICML 2007): the derivative towards the side on which F falls, 0 where it falls on neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels import quasi_newton as kernels
from sparkps.kernels.partitions import PartitionArray
from sparkps.store.builtin import Applier, TableApplier, TableReducer
from sparkps.store.partition import Part

Array = NDArray[Any]

#: A variance that is this small beside the mean square is what rounding leaves of none.
_CONSTANT = 1e-13


@dataclass(frozen=True)
class Moments(Applier):
    """Take sums of the features from ``g``: of ``w * x``, then of ``w * x**2``.

    The first call (``weight`` 0) only puts the sums of ``w * x`` away. The second sets ``mu`` to
    the mean and ``inv`` to 1 over the standard deviation, as pyspark.ml's summarizer computes it
    (unbiased for weights that count rows); 0 for a feature that does not vary. With ``ones`` all
    values of features are 1, the two sums are equal, and one call does.

    Parameters
    ----------
    weight, squares
        Sums of the weights of rows, and of their squares.
    """

    name = "lbfgs_moments"
    weight: float
    squares: float
    ones: bool

    def __call__(self, part: Part) -> None:
        g, t = part["g"], part["t"]
        if not self.weight:
            t[...] = g
        else:
            first = g if self.ones else t
            part["inv"][...] = _inverse_deviation(first, g, self.weight, self.squares)
            part["mu"][...] = first / self.weight
            t[...] = 0
        g[...] = 0


@dataclass(frozen=True)
class Begin(Applier):
    """Begin at ``value``: ``t`` becomes what gives it, or both become 0 where there is no scale,
    as for a feature that does not occur."""

    name = "lbfgs_begin"

    def __call__(self, part: Part) -> None:
        value, inv, t = part["value"], part["inv"], part["t"]
        t[...] = 0
        np.divide(value, inv, out=t, where=inv != 0)
        value[...] = t * inv


def _inverse_deviation(first: Array, second: Array, weight: float, squares: float) -> Array:
    freedom = weight - squares / weight
    spread = second - first * first / weight
    varies = spread > _CONSTANT * second
    if freedom <= 0:
        varies[...] = False
    out: Array = np.zeros(len(first), np.float64)
    np.divide(freedom, spread, out=out, where=varies)
    np.sqrt(out, out=out)
    return out


@dataclass(frozen=True)
class Products(TableReducer):
    """All products that one iteration needs, of ``s = t - x``, ``y`` and the pseudo-gradient at t.

    Parameters
    ----------
    scale, slope, l1, l2
        Of the objective; see the module.
    unscaled
        Whether the penalties are on the weights themselves, and not on the scaled coordinates.
    slots
        Of the pairs that are remembered.

    Result
    ------
    products : float64, shape (3, 3 + 2 * len(slots))
        Of (s, y, pg) with (s, y, pg, s_i of each slot, y_i of each slot).
    others : float64, shape (6,)
        The slopes along ``d`` at x and at t, by the pseudo-gradients; ``|p t|²``; ``|p t|_1``; the
        square of the smooth gradient at t; the product of ``mu * inv`` with the pseudo-gradient.
    """

    name = "lbfgs_products"
    scale: float
    slope: float
    l1: float
    l2: float
    unscaled: bool
    slots: tuple[int, ...]

    def partials(self, table: PartitionArray, partitions: Sequence[int]) -> list[list[Array]]:
        dots, others = kernels.products(table, partitions, **self.numbers())
        return [list(pair) for pair in zip(dots, others, strict=True)]

    def finish(self, partial: list[Array]) -> tuple[Array, Array]:
        return partial[0], partial[1]


@dataclass(frozen=True)
class Move(TableApplier):
    """Accept ``t`` or not, and try another point.

    Parameters
    ----------
    scale, slope, l1, l2, unscaled
        As of :class:`Products`.
    accept
        Whether ``t`` becomes ``x``.
    slot
        Where an accepted step is remembered; -1 for nowhere.
    slots
        The slots that the direction is made of.
    coefficients
        A new direction: of ``s_i`` of each slot, of ``y_i`` of each slot, and of the
        pseudo-gradient. Empty keeps the old one.
    alpha
        How far along the direction to go; with 0, ``value`` becomes that of ``x``.
    """

    name = "lbfgs_move"
    scale: float
    slope: float
    l1: float
    l2: float
    unscaled: bool
    accept: bool
    slot: int
    slots: tuple[int, ...]
    coefficients: tuple[float, ...]
    alpha: float

    def change(self, table: PartitionArray, partitions: Sequence[int]) -> None:
        kernels.move(table, partitions, **self.numbers())
