"""The logistic step on real servers, without Spark."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.algos.linear import (
    STEP_SIZES,
    LinearBatch,
    LogisticStep,
    ftrl_penalties,
    solver_optimizer,
    vector_size,
)
from sparkps.errors import InvalidInput
from sparkps.testing import LocalCluster

KEYS = np.array([3, 2**40, -5])
INDPTR = np.array([0, 2, 3, 5], np.int64)
COLUMNS = np.array([0, 1, 2, 0, 2], np.int32)
LABELS = np.array([1, 0, 1], np.float32)


class Rows:
    """A step that makes its batch on the worker, as ``prepare`` would."""

    def __init__(self, weights: object, intercept: object) -> None:
        self.weights, self.step = weights, LogisticStep(intercept)  # type: ignore[arg-type]

    def __call__(self, worker: object, batch: object) -> object:
        keyset = self.weights.keyset(KEYS)  # type: ignore[attr-defined]
        rows = LinearBatch(INDPTR, COLUMNS, None, LABELS, keyset, {"size=7": 3})
        return self.step(worker, rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("with_intercept", [True, False])
def test_two_steps_are_those_of_a_numpy_loop(with_intercept: bool) -> None:
    with LocalCluster(servers=2) as cluster:
        optimizer = solver_optimizer("sgd", 0.5, 0.0, 0.0)
        weights = cluster.table("w", dtype="float64", optimizer=optimizer)
        intercept = cluster.table("b", dim=1, dtype="float64", optimizer=optimizer)
        step = Rows(weights, intercept if with_intercept else None)
        history = cluster.run_workers(step, [[0]], epochs=2, batch_rows=3)
        found, bias = weights.pull(KEYS), intercept.pull([0])[0]
    x = np.zeros((3, 3))
    np.add.at(x, (np.repeat(np.arange(3), np.diff(INDPTR)), COLUMNS), 1)
    w, b, losses = np.zeros(3), 0.0, []
    for _ in range(2):
        m = x @ w + b
        losses.append(np.logaddexp(0, -m * (2 * LABELS - 1)).sum())
        residuals = (1 / (1 + np.exp(-m)) - LABELS) / 3
        w -= 0.5 * x.T @ residuals
        b -= 0.5 * residuals.sum() * with_intercept
    np.testing.assert_allclose(found, w, rtol=1e-12)
    assert bias == pytest.approx(b, rel=1e-12)
    assert [epoch["loss"] for epoch in history] == pytest.approx(losses)
    assert [(epoch["rows"], epoch["steps"], epoch["size=7"]) for epoch in history] == [
        (3, 1, 3)
    ] * 2


@pytest.mark.parametrize("solver", STEP_SIZES)
def test_every_solver_has_its_step_size_and_takes_another(solver: str) -> None:
    assert solver_optimizer(solver, None, 0.1, 0.2).numbers()["lr"] == STEP_SIZES[solver]
    numbers = solver_optimizer(solver, 7.0, 0.1, 0.2).numbers()
    assert (numbers["lr"], numbers["l1"], numbers["l2"]) == (7.0, 0.1, 0.2)


def test_penalties_of_ftrl_grow_with_the_steps() -> None:
    assert ftrl_penalties(0.5, 0.25, 8) == {"l1": 4.0, "l2": 2.0}


def test_the_length_of_vectors_is_told_by_the_numbers_of_an_epoch() -> None:
    assert vector_size({"loss": 1.0, "size=9": 10}) == 9
    assert vector_size({"loss": 1.0}) is None
    with pytest.raises(InvalidInput, match=r"several lengths: 3 \(1 rows\), 9 \(10 rows\)"):
        vector_size({"size=9": 10, "size=3": 1})
