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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import InvalidArgument
from sparkps.kernels import reduce as kernels
from sparkps.store.builtin import Applier, Reducer
from sparkps.store.partition import Part

Array = NDArray[Any]

#: A variance that is this small beside the mean square is what rounding leaves of none.
_CONSTANT = 1e-13


@dataclass(frozen=True)
class Objective:
    """The numbers of the objective; a part of each function below."""

    scale: float
    slope: float
    l1: float
    l2: float
    #: Whether the penalties are on the weights themselves, and not on the scaled coordinates.
    unscaled: bool

    def power(self, part: Part) -> Array | float:
        """What a coordinate is multiplied by in the penalties."""
        return part["inv"] if self.unscaled else 1.0

    def gradient(self, part: Part) -> Array:
        """The gradient of the smooth part at ``t``, from the pushed sum."""
        p = self.power(part)
        loss = part["inv"] * (self.scale * part["g"] - self.slope * part["mu"])
        return loss + self.l2 * p * p * part["t"]

    def pseudo(self, part: Part, point: Array, gradient: Array) -> Array:
        """The pseudo-gradient at a point whose smooth gradient is given."""
        if not self.l1:
            return gradient
        l1 = self.l1 * self.power(part)
        up, down = gradient + l1, gradient - l1
        at_zero = np.where(up < 0, up, np.where(down > 0, down, 0.0))
        return np.where(point > 0, up, np.where(point < 0, down, at_zero))


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
class Products(Reducer):
    """All products that one iteration needs, of ``s = t - x``, ``y`` and the pseudo-gradient at t.

    Result
    ------
    products : float64, shape (3, 3 + 2 * len(slots))
        Of (s, y, pg) with (s, y, pg, s_i of each slot, y_i of each slot).
    others : float64, shape (5,)
        The slopes along ``d`` at x and at t, by the pseudo-gradients; ``|p t|²``; ``|p t|_1``; the
        square of the smooth gradient at t.
    """

    name = "lbfgs_products"
    scale: float
    slope: float
    l1: float
    l2: float
    unscaled: bool
    slots: tuple[int, ...]

    def partial(self, part: Part) -> list[Array]:
        objective = Objective(self.scale, self.slope, self.l1, self.l2, self.unscaled)
        x, t, gx = part["x"], part["t"], part["gx"]
        g = objective.gradient(part)
        s, y = t - x, g - gx
        pg = objective.pseudo(part, t, g)
        pgx = objective.pseudo(part, x, gx)
        kept = [part[f"{kind}{slot}"] for kind in "sy" for slot in self.slots]
        dots = kernels.products((s, y, pg), (s, y, pg, *kept))
        penalised = t * objective.power(part)
        others = (
            kernels.dot(pgx, part["d"]),
            kernels.dot(pg, part["d"]),
            kernels.dot(penalised, penalised),
            kernels.asum(penalised),
            kernels.dot(g, g),
        )
        return [dots, np.array(others, np.float64)]

    def finish(self, partial: list[Array]) -> tuple[Array, Array]:
        return partial[0], partial[1]


@dataclass(frozen=True)
class Move(Applier):
    """Accept ``t`` or not, and try another point.

    Parameters
    ----------
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

    def __call__(self, part: Part) -> None:
        objective = Objective(self.scale, self.slope, self.l1, self.l2, self.unscaled)
        x, t, gx, d = part["x"], part["t"], part["gx"], part["d"]
        if self.accept:
            g = objective.gradient(part)
            if self.slot >= 0:
                part[f"s{self.slot}"][...] = t - x
                part[f"y{self.slot}"][...] = g - gx
            x[...] = t
            gx[...] = g
        pg = objective.pseudo(part, x, gx)
        if self.coefficients:
            self._turn(part, d, pg)
        part["g"][...] = 0
        t[...] = x + self.alpha * d
        if self.l1:
            # Stay in the orthant of x, or of the side on which F falls.
            orthant = np.where(x != 0, np.sign(x), -np.sign(pg))
            t[np.sign(t) != orthant] = 0
        part["value"][...] = t * part["inv"]

    def _turn(self, part: Part, d: Array, pg: Array) -> None:
        """Set the direction."""
        if len(self.coefficients) != 2 * len(self.slots) + 1:
            reason = f"are for {len(self.slots)} slots"
            raise InvalidArgument(name="coefficients", value=self.coefficients, reason=reason)
        kept = [part[f"{kind}{slot}"] for kind in "sy" for slot in self.slots]
        # 0 times what is not finite would not be 0.
        d[...] = self.coefficients[-1] * pg if any(self.coefficients) else 0.0
        for coefficient, vector in zip(self.coefficients[:-1], kept, strict=True):
            d += coefficient * vector
        if self.l1:
            d[d * pg >= 0] = 0
