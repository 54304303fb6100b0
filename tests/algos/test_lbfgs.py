"""L-BFGS and OWL-QN on a table in this process, against their optima."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkps.algos.lbfgs import QuasiNewton
from sparkps.optim.lbfgs import LBFGS, MEMORY
from sparkps.spec import TableInfo, TableSpec
from sparkps.store import functions, make_table
from sparkps.store.builtin import TableApplier, combine_tree
from sparkps.store.quasi_newton import Moments, Move, Products

PARTITIONS = 3


class Problem:
    """Logistic loss over dense rows, with an intercept; the vectors are in a table."""

    def __init__(self, rows: int, features: int, seed: int = 0, *, spread: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(rows, features)) * np.geomspace(1, spread, features)
        truth = rng.normal(size=features) / np.geomspace(1, spread, features)
        noise = rng.logistic(size=rows)
        self.y = (self.x @ truth + 0.3 + noise > 0).astype(float)
        spec = TableSpec(
            "t", dim=features, dtype="float64", optimizer=LBFGS().spec(), partitions=PARTITIONS
        )
        self.table = make_table(TableInfo(1, spec), range(PARTITIONS), lambda data: None)
        self.evaluations = 0

    def column(self, name: str) -> np.ndarray:
        return np.concatenate([self.table.partition(p)[name] for p in range(PARTITIONS)])

    def push(self, gradient: np.ndarray) -> None:
        counts = np.array([[p, len(self.table.partition(p))] for p in range(PARTITIONS)], np.int32)
        rows = np.concatenate([np.arange(n, dtype=np.int32) for n in counts[:, 1]])
        self.table.push(counts, rows, gradient)

    def apply(self, function: Any) -> None:
        made: Any = functions.builtin(function.name, function.numbers())  # as it travels
        if isinstance(made, TableApplier):
            self.table.apply_together(range(PARTITIONS), made)
        else:
            for p in range(PARTITIONS):
                self.table.apply(p, made)

    def reduce(self, function: Any) -> Any:
        made: Any = functions.builtin(function.name, function.numbers())
        parts = self.table.reduce_together(range(PARTITIONS), made)
        return made.finish(combine_tree(parts, made.combine))

    def loss(self, weights: np.ndarray, intercept: float) -> tuple[float, np.ndarray, float]:
        margins = self.x @ weights + intercept
        signs = 2 * self.y - 1
        residuals = -signs / (1 + np.exp(signs * margins)) / len(self.y)
        loss = float(np.logaddexp(0, -signs * margins).mean())
        return loss, self.x.T @ residuals, float(residuals.sum())

    def solve(
        self,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        standardize: bool = True,
        unscaled: bool = False,
        tol: float = 1e-12,
        max_iter: int = 500,
    ) -> QuasiNewton:
        rows = float(len(self.y))
        if standardize:
            self.push(self.x.sum(axis=0))
            self.apply(Moments(0.0, 0.0, ones=False))
            self.push((self.x**2).sum(axis=0))
            self.apply(Moments(rows, rows, ones=False))
        follows = 0 if l1 else 1
        search = QuasiNewton([0.0] * (1 + follows), l1, l2, tol, max_iter, passengers=follows)
        penalties: dict[str, Any] = {"scale": 1.0, "l1": l1, "l2": l2, "unscaled": unscaled}
        self.intercept, done = 0.0, False
        while not done:
            loss, gradient, slope = self.loss(self.column("value"), self.intercept)
            penalties["slope"] = slope
            self.push(gradient)
            self.evaluations += 1
            products = self.reduce(Products(**penalties, slots=search.slots))
            gradient = np.array([slope, products[1][-1]][: 1 + follows])
            step = search.evaluated(loss, gradient, *products)
            self.apply(
                Move(
                    **penalties,
                    accept=step.accept,
                    slot=step.slot,
                    slots=step.slots,
                    coefficients=step.coefficients,
                    alpha=step.alpha,
                )
            )
            done = step.done
            shift = float(self.column("value") @ self.column("mu"))
            if follows:
                assert step.extras[1] == pytest.approx(shift, rel=1e-9, abs=1e-12)
            self.intercept = float(step.extras[0]) - shift
        return search


def objective(problem: Problem, w: np.ndarray, b: float, l1: Any, l2: Any) -> float:
    return problem.loss(w, b)[0] + float((l1 * np.abs(w)).sum() + (l2 / 2 * w**2).sum())


def optimum(problem: Problem, l1: Any, l2: Any) -> tuple[np.ndarray, float]:
    """By accelerated proximal gradient descent (Beck and Teboulle 2009), long enough."""
    deviation = problem.x.std(axis=0)
    x = np.column_stack([problem.x / deviation, np.ones(len(problem.y))])
    rate = 4 * len(problem.y) / np.linalg.norm(x, 2) ** 2
    l1, l2 = (np.append(np.broadcast_to(p, deviation.shape), 0) for p in (l1, l2))
    l1[:-1] /= deviation
    l2[:-1] /= deviation**2
    rate = 1 / (1 / rate + l2.max())
    v = z = np.zeros(x.shape[1])
    k = 1.0
    for _ in range(8_000):
        signs = 2 * problem.y - 1
        residuals = -signs / (1 + np.exp(signs * (x @ z))) / len(signs)
        moved = z - rate * (x.T @ residuals + l2 * z)
        after = np.sign(moved) * np.maximum(np.abs(moved) - rate * l1, 0)
        if (z - after) @ (after - v) > 0:
            k = 1.0
        bigger = (1 + np.sqrt(1 + 4 * k * k)) / 2
        z = after + (k - 1) / bigger * (after - v)
        v, k = after, bigger
    return v[:-1] / deviation, v[-1]


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize(("l1", "l2"), [(0, 0.01), (0, 0), (0.02, 0), (0.01, 0.02)])
def test_the_optimum_is_found(l1: float, l2: float, standardize: bool) -> None:
    problem = Problem(300, 7, spread=5)
    search = problem.solve(l1, l2, standardize=standardize)
    weights = problem.column("value")
    deviation = problem.x.std(axis=0, ddof=1) if standardize else np.ones(7)
    expected, intercept = optimum(problem, l1 * deviation, l2 * deviation**2)
    np.testing.assert_allclose(weights, expected, atol=2e-5)
    assert problem.intercept == pytest.approx(intercept, abs=2e-5)
    assert (weights == 0).tolist() == (np.abs(expected) < 1e-9).tolist()
    best = objective(problem, expected, intercept, l1 * deviation, l2 * deviation**2)
    assert search.history[-1] == pytest.approx(best, rel=1e-9)
    assert search.history == sorted(search.history, reverse=True)
    assert problem.evaluations < 1.5 * search.iterations + 5


def test_penalties_may_be_on_the_unscaled_weights() -> None:
    problem = Problem(300, 6, spread=100)
    problem.solve(0.001, 0.01, unscaled=True)
    expected, intercept = optimum(problem, 0.001, 0.01)
    np.testing.assert_allclose(problem.column("value"), expected, atol=1e-6)
    assert problem.intercept == pytest.approx(intercept, abs=1e-5)


def test_the_direction_is_that_of_the_two_loop_recursion() -> None:
    problem = Problem(200, 40, seed=3)
    search = problem.solve(0, 1e-4, max_iter=MEMORY + 5, tol=0)
    assert search.reason == "maxIter was reached"
    assert len(set(search.slots)) == MEMORY
    pairs = [
        [np.append(problem.column(f"{kind}{n}"), search._pairs[n][i][:1]) for n in search.slots]
        for i, kind in enumerate("sy")
    ]
    for a, kind in enumerate("sy"):
        for b, other in enumerate("sy"):
            for i, one in enumerate(search.slots):
                for j, two in enumerate(search.slots):
                    expected = pairs[a][i] @ pairs[b][j]
                    assert search._kept[kind, one, other, two] == pytest.approx(expected)


def test_a_feature_that_does_not_vary_keeps_weight_0() -> None:
    problem = Problem(200, 4)
    problem.x[:, 2] = 1e6 + 0.1
    problem.solve(0, 0.01)
    assert problem.column("value")[2] == 0
    assert problem.column("value").all() == 0


def test_separable_rows_end_with_finite_weights() -> None:
    problem = Problem(50, 3)
    problem.y = (problem.x[:, 0] > 0).astype(float)
    search = problem.solve(max_iter=100)
    assert np.isfinite(problem.column("value")).all()
    assert search.reason


def test_no_iteration_leaves_the_start() -> None:
    problem = Problem(50, 3)
    search = problem.solve(max_iter=0)
    assert not problem.column("value").any()
    assert (search.iterations, search.reason) == (0, "maxIter was reached")
