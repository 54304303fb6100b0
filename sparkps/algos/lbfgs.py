"""Limited-memory BFGS, and OWL-QN for the 1-norm, led from one place by scalars alone.

The vectors live on the servers, as fields of one table (:class:`sparkps.optim.lbfgs.LBFGS`); an
iteration needs one reduction, which gives all products of the new vectors, and one function that
moves the table (:mod:`sparkps.store.quasi_newton`). Everything between the two is arithmetic on
some hundred numbers, and is here. The two-loop recursion works on coefficients instead of vectors
(Chen, Wang and Zhou, "Large-scale L-BFGS using MapReduce", NIPS 2014).

A few dense coordinates without a penalty, *extras* (an intercept), stay here altogether and are
added to every product.

Rules:

* One evaluation is one pass over the data; :mod:`.line_search` says how far to go.
* It has converged as Breeze, under pyspark.ml, says: the objective has moved by ``tol`` of its
  first value at most within 20 iterations, or the norm of the (pseudo-)gradient is at most ``tol``
  of the objective.
* With rows for validation it ends, at the point before, as soon as the objective of those gets no
  better (:mod:`.early_stopping`).
* A search that finds no better point is begun anew once without memory; then x is the result.

Pure: no table, no clock, no Spark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparkps.algos.early_stopping import EarlyStopping
from sparkps.algos.line_search import TRIES, Backtracking, LineSearch, StrongWolfe
from sparkps.optim.lbfgs import MEMORY

Array = npt.NDArray[np.float64]

#: Iterations over which the objective must have come to rest.
RECENT: Final = 20
#: Passes that one iteration takes at most: a search, and one more after the memory was dropped.
PASSES: Final = 2 * max(2 * TRIES, Backtracking.MOST) + 2
#: Norm of a gradient that is 0 but for rounding.
FLAT: Final = 1e-8


@dataclass(frozen=True)
class Step:
    """What the servers are to do: the arguments of :class:`sparkps.store.quasi_newton.Move`.

    ``extras`` are the coordinates to be tried that live here; ``done`` says that the search is over
    and the table will be at the result.
    """

    accept: bool
    slot: int
    slots: tuple[int, ...]
    coefficients: tuple[float, ...]
    alpha: float
    extras: Array
    done: bool


class QuasiNewton:
    """A search for the minimum.

    Parameters
    ----------
    start
        The extras at the beginning, float64 ``(k,)``, and behind them the passengers.
    passengers
        How many numbers behind the extras are linear functions of the vectors on the servers. They
        follow every step, as the vectors do, and count in no product; with ``l1`` there are none,
        since no step is linear then.
    l1, l2
        Weights of the penalties.
    tol
        See the module.
    max_iter
        Iterations at most.
    stopping
        Watches the rows for validation; None where there are none.

    Attributes
    ----------
    history : list of float
        The objective at the start and after each iteration.
    reason : str
        Why the search is over; empty while it is not.
    diverged : bool
        Whether it is over because a number was not finite.
    """

    def __init__(
        self,
        start: npt.ArrayLike,
        l1: float,
        l2: float,
        tol: float,
        max_iter: int,
        *,
        passengers: int = 0,
        stopping: EarlyStopping | None = None,
    ) -> None:
        self.l1, self.l2, self.tol, self.max_iter = l1, l2, tol, max_iter
        self.history: list[float] = []
        self.reason = ""
        self.diverged = False
        #: Slots in use, oldest first.
        self.slots: tuple[int, ...] = ()
        self._stopping = stopping
        self._t = np.array(start, np.float64)
        self._extras = len(self._t) - passengers
        self._x, self._gx, self._d = self._t.copy(), np.zeros_like(self._t), np.zeros_like(self._t)
        self._pairs: dict[int, tuple[Array, Array]] = {}
        # Products of the kept pairs, by (kind, slot); kinds are "s" and "y".
        self._kept: dict[tuple[str, int, str, int], float] = {}
        self._alpha = 0.0
        #: The smooth part of the objective at x.
        self._plain = 0.0
        self._search: LineSearch | None = None
        # Norms of the gradient at t: of the pseudo-gradient, and of the smooth part's.
        self._norm = self._smooth = 0.0

    @property
    def iterations(self) -> int:
        """How many points were accepted after the start."""
        return max(0, len(self.history) - 1)

    def evaluated(
        self,
        loss: float,
        gradient: Array,
        dots: Array,
        others: Sequence[Any],
        validation: float | None = None,
    ) -> Step:
        """Take in an evaluation at the point that was tried, and decide what comes next.

        Parameters
        ----------
        loss
            The mean loss there, without penalties.
        gradient
            Its derivatives by the extras, ``(k,)``, and behind them each passenger's number for the
            smooth gradient.
        dots, others
            The result of :class:`sparkps.store.quasi_newton.Products` with ``slots=self.slots``.
        validation
            The mean loss of the rows for validation there; None where there are none.
        """
        before, after, squares, magnitudes, smooth = (float(number) for number in others[:5])
        self._smooth = math.sqrt(max(0.0, smooth + self._inner(gradient, gradient)))
        plain = loss + self.l2 / 2 * squares
        value = plain + self.l1 * magnitudes
        search = self._search
        if not self.history:
            if not math.isfinite(value):
                self.diverged = True
                return self._over("the objective is not finite at the start", accept=True)
            self._enough(validation)
            self.history.append(value)
            self._plain = plain
            return self._accept(gradient, dots, remember=False)
        if search is None:
            search = self._begin(before + self._inner(self._gx, self._d))
        if search.accepts(value, after + self._inner(gradient, self._d)):
            if self._enough(validation):
                return self._over("the validation loss has come to rest", accept=False)
            self.history.append(value)
            self._plain = plain
            return self._accept(gradient, dots, remember=True)
        if search.failed:
            return self._give_up()
        self._alpha = search.alpha
        return self._try(accept=False, slot=-1, coefficients=())

    def _enough(self, validation: float | None) -> bool:
        """Take in what the rows for validation say, and return whether it is enough."""
        if self._stopping is None or validation is None:
            return False
        return self._stopping.take(validation)

    def _inner(self, a: Array, b: Array) -> float:
        """What the extras add to a product."""
        return float(a[: self._extras] @ b[: self._extras])

    # --- along one direction

    def _begin(self, slope: float) -> LineSearch:
        """A search in the new direction, whose slope is known now."""
        value, alpha = self.history[-1], self._alpha
        if self.l1:
            shrink = 0.1 if self.iterations < 1 else 0.5
            self._search = Backtracking(value, slope, alpha, self._plain, shrink)
        else:
            self._search = StrongWolfe(value, slope, alpha)
        return self._search

    def _give_up(self) -> Step:
        """Nothing better lies that way: go down the gradient, or end if that was it."""
        if not self.slots:
            return self._over("no better point was found", accept=False)
        self.slots = ()
        self._d = -self._gx
        self._alpha, self._search = 1.0 / self._norm, None
        return self._try(accept=False, slot=-1, coefficients=(-1.0,))

    def _try(self, *, accept: bool, slot: int, coefficients: tuple[float, ...]) -> Step:
        self._t = self._x + self._alpha * self._d
        if self.l1:  # as the coordinates on the servers
            orthant = np.where(self._x != 0, np.sign(self._x), -np.sign(self._gx))
            self._t[np.sign(self._t) != orthant] = 0
        return Step(accept, slot, self.slots, coefficients, self._alpha, self._t, done=False)

    def _over(self, reason: str, *, accept: bool) -> Step:
        """The result is t if that is accepted, else x."""
        self.reason = reason
        if accept:
            self._x = self._t
        self._t = self._x
        return Step(accept, -1, (), (0.0,), 0.0, self._x, done=True)

    # --- from one point to the next

    def _accept(self, gradient: Array, dots: Array, *, remember: bool) -> Step:
        """t becomes x, with the products of its step and its gradient."""
        norm = math.sqrt(max(0.0, float(dots[2, 2] + self._inner(gradient, gradient))))
        reason = self._converged(norm)
        if reason:
            return self._over(reason, accept=True)
        slot = -1
        step, change = self._t - self._x, gradient - self._gx
        if remember:
            slot = self._remember(step, change, dots)
        self._x, self._gx = self._t, gradient
        slots, coefficients = self._direction(gradient, dots, slot)
        self._d = coefficients[-1] * gradient
        for i, kept in enumerate(slots):
            s, y = self._pairs[kept]
            self._d = self._d + coefficients[i] * s + coefficients[len(slots) + i] * y
        if self.l1:
            self._d = np.where(self._d * gradient < 0, self._d, 0.0)
        self._norm = norm
        # Without a memory the direction has the gradient's length, which says nothing.
        self._alpha = 1.0 if slots else 0.5 / self._smooth if self.l1 else 1.0 / norm
        self._search = None
        return self._try(accept=True, slot=slot, coefficients=coefficients)

    def _converged(self, norm: float) -> str:
        value = self.history[-1]
        if not math.isfinite(norm):
            self.diverged = True
            return "the gradient is not finite"
        if self.iterations >= self.max_iter:
            return "maxIter was reached"
        recent = self.history[-RECENT:]
        if len(recent) == RECENT and max(recent) - value <= self.tol * abs(self.history[0]):
            return "the objective has come to rest"
        if norm <= max(self.tol * abs(value), FLAT):
            return "the gradient is flat"
        return ""

    def _remember(self, step: Array, change: Array, dots: Array) -> int:
        """Keep the pair (s, y) if it bends upwards; return its slot, or -1."""
        ss = float(dots[0, 0] + self._inner(step, step))
        sy = float(dots[0, 1] + self._inner(step, change))
        yy = float(dots[1, 1] + self._inner(change, change))
        if sy <= 1e-10 * ss:
            return -1
        old = self.slots
        free = (i for i in range(MEMORY) if i not in old)
        slot = next(free, old[0] if old else 0)
        kept = self._kept
        for i, other in enumerate(old):
            if other == slot:
                continue
            s, y = self._pairs[other]
            columns = (("s", 3 + i, s), ("y", 3 + len(old) + i, y))
            for row, kind, mine in ((0, "s", step), (1, "y", change)):
                for other_kind, column, theirs in columns:
                    number = float(dots[row, column] + self._inner(mine, theirs))
                    kept[kind, slot, other_kind, other] = number
                    kept[other_kind, other, kind, slot] = number
        kept["s", slot, "s", slot] = ss
        kept["s", slot, "y", slot] = kept["y", slot, "s", slot] = sy
        kept["y", slot, "y", slot] = yy
        self._pairs[slot] = (step, change)
        return slot

    def _direction(
        self, gradient: Array, dots: Array, slot: int
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The two-loop recursion on coefficients of (s_i, y_i, pseudo-gradient)."""
        old = self.slots
        slots = old if slot < 0 else (*(each for each in old if each != slot), slot)
        with_gradient = self._gradient_products(gradient, dots, old, slot)
        n = len(slots)
        products = np.empty((2 * n, 2 * n + 1))
        names = [(kind, each) for kind in "sy" for each in slots]
        for i, a in enumerate(names):
            for j, b in enumerate(names):
                products[i, j] = self._kept[(*a, *b)]
            products[i, -1] = with_gradient[a]
        delta = np.zeros(2 * n + 1)
        delta[-1] = -1.0
        alphas = np.zeros(n)
        for i in reversed(range(n)):
            alphas[i] = products[i] @ delta / products[i, n + i]
            delta[n + i] -= alphas[i]
        if n:
            delta *= products[n - 1, 2 * n - 1] / products[2 * n - 1, 2 * n - 1]
        for i in range(n):
            beta = products[n + i] @ delta / products[i, n + i]
            delta[i] += alphas[i] - beta
        self.slots = slots
        return slots, tuple(delta.tolist())

    def _gradient_products(
        self, gradient: Array, dots: Array, old: tuple[int, ...], slot: int
    ) -> dict[tuple[str, int], float]:
        """The pseudo-gradient's products with every kept s and y."""
        found: dict[tuple[str, int], float] = {}
        for i, other in enumerate(old):
            if other != slot:
                s, y = self._pairs[other]
                found["s", other] = float(dots[2, 3 + i] + self._inner(gradient, s))
                found["y", other] = float(dots[2, 3 + len(old) + i] + self._inner(gradient, y))
        if slot >= 0:
            s, y = self._pairs[slot]
            found["s", slot] = float(dots[2, 0] + self._inner(gradient, s))
            found["y", slot] = float(dots[2, 1] + self._inner(gradient, y))
        return found
