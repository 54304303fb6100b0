"""The pass over a rank's rows, without servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparkps.algos.full_batch import FEATURES, LOSS, SQUARES, FullBatch, LogisticGradient, counts
from sparkps.store.quasi_newton import _inverse_deviation


class Servers:
    """A table, its vocabulary and its only keyset."""

    def __init__(self, weights: Any) -> None:
        self.weights = np.array(weights)
        self.pushed: list[list[float]] = []

    def vocabulary(self) -> Servers:
        return self

    def __len__(self) -> int:
        return len(self.weights)

    def keyset(self, ordinals: Any) -> Servers:
        return self

    def pull(self) -> Any:
        return self.weights

    def push(self, values: Any) -> None:
        self.pushed.append(values.tolist())


def batch(values: Any, labels: Any, weights: Any = None) -> FullBatch:
    """Rows of one feature each."""
    rows = len(labels)
    numbers = counts(np.asarray(labels), weights, ones=values is None)
    columns = np.zeros(rows, np.int32)
    return FullBatch(np.arange(rows + 1), columns, values, np.asarray(labels), weights, numbers)


@pytest.mark.parametrize("phase", [FEATURES, SQUARES, LOSS])
def test_a_task_that_holds_its_rank_again_pushes_the_same(phase: str) -> None:
    servers: Any = Servers([0.5])
    step = LogisticGradient(servers)
    params = {"phase": phase, "intercept": 0.25}
    worker: Any = SimpleNamespace(epoch=3, params=params, validating=False)
    rows = batch(np.array([1.5, -2.0], np.float32), np.array([1, 0], np.float32))
    for _ in range(2):
        step.start(worker)
        step(worker, rows)
        step.end_epoch(worker)
    assert servers.pushed[0] == servers.pushed[1]
    assert servers.pushed[0][0] != 0


@pytest.mark.parametrize("weight", [None, 0.1])
@pytest.mark.parametrize("value", [None, 0.1, 1e6 + 0.1])
def test_a_feature_that_never_varies_has_no_scale(
    value: float | None, weight: float | None
) -> None:
    servers: Any = Servers([0.0])
    step = LogisticGradient(servers)
    step.start(SimpleNamespace())
    count, passes = 4096, 25
    values = None if value is None else np.full(count, value, np.float32)
    weights = None if weight is None else np.full(count, weight)
    rows = batch(values, np.zeros(count, np.float32), weights)
    for epoch, phase in enumerate((FEATURES, SQUARES)):
        worker: Any = SimpleNamespace(epoch=epoch, params={"phase": phase})
        for _ in range(passes):
            step(worker, rows)
        step.end_epoch(worker)
    first, second = (np.array(pushed) for pushed in servers.pushed)
    total, squares = rows.numbers["weight"] * passes, rows.numbers["squares"] * passes
    assert _inverse_deviation(first, second, total, squares).tolist() == [0.0]
