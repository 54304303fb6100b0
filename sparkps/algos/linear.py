"""One optimizer step of sparse logistic regression, as a worker runs it for every batch and epoch.

The weights are a width-1 table, one row per feature that occurs; the intercept is a one-row dense
table of its own. The regularisation is the server optimizer's (its ``l1`` and ``l2`` numbers); here
is the loss alone.

For a batch of rows x with labels y in {0, 1} and n = ``worker.full_clock_rows`` (the rows of a full
clock: of all ranks in bsp, of one batch otherwise; so that a short last batch weighs less):

    m = x.w + b    loss = sum log(1 + exp(-m (2y - 1)))    gradient = x^T (sigmoid(m) - y) / n
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkps.algos import early_stopping
from sparkps.client.keyset import Keyset
from sparkps.client.table import Table
from sparkps.client.worker import Worker
from sparkps.errors import InvalidInput
from sparkps.kernels.csr import dot, dot_t, logistic
from sparkps.optim import FTRL, SGD, AdaGrad, Adam, Optimizer

Array = npt.NDArray[Any]

#: The solvers of the linear estimators: their optimizer and the step size that suits mean gradients
#: of 0/1 features. Found on a9a at 1,024 to 8,192 rows per step: within 0.002 of the best test
#: logloss after 10 epochs in each case.
STEP_SIZES: Mapping[str, float] = {"adagrad": 0.3, "adam": 0.05, "sgd": 1.0, "ftrl": 2.0}

#: Prefix of the numbers that count rows by the length of their feature vectors.
SIZE = "size="


class LinearBatch(NamedTuple):
    """What ``prepare`` makes of a batch: rows as CSR over the batch's distinct keys, and where
    those are kept.

    ``indptr`` (rows + 1,) int32 or int64, ``columns`` (non-zeros,) int32 positions in the keyset,
    ``values`` (non-zeros,) float32 or None when all are 1, ``labels`` (rows,) float32 of 0 and 1,
    ``keyset`` the batch's keys on the servers, ``numbers`` what is counted in each pass, such as
    ``size=<n>``, the rows whose feature vectors have length n.
    """

    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32] | None
    labels: npt.NDArray[np.float32]
    keyset: Keyset
    numbers: Mapping[str, float]


def solver_optimizer(solver: str, step_size: float | None, l1: float, l2: float) -> Optimizer:
    """The server optimizer behind ``solver``.

    Parameters
    ----------
    solver : {"adagrad", "adam", "sgd", "ftrl"}
    step_size : float or None
        None takes :data:`STEP_SIZES`.
    l1, l2 : float
        Weights of the penalties l1·|w| and l2/2·w² against the *mean* loss. FTRL is given the
        penalties of one step and has to be told of the growing number of steps: see
        :func:`ftrl_penalties`.
    """
    rate = STEP_SIZES[solver] if step_size is None else step_size
    kinds: dict[str, Callable[..., Optimizer]] = {
        "adagrad": AdaGrad,
        "adam": Adam,
        "sgd": SGD,
        "ftrl": FTRL,
    }
    return kinds[solver](lr=rate, l1=l1, l2=l2)


def ftrl_penalties(l1: float, l2: float, steps: int) -> dict[str, float]:
    """FTRL's own l1 and l2 after ``steps`` steps of an objective with penalties against the mean
    loss.

    FTRL-Proximal (McMahan et al. 2013, eq. for w_{t+1}) minimises the *sum* of the linearised
    losses plus one penalty; against the mean loss the penalty therefore grows with the number of
    steps: λ·t (McMahan 2011, composite updates).
    """
    return {"l1": l1 * steps, "l2": l2 * steps}


class LogisticStep:
    """The ``step`` of :meth:`ps.run <sparkps.PSContext.run>` for binary logistic regression.

    Returns the batch's ``loss`` (a sum) and ``rows``, whose sums over workers and batches make the
    epoch's mean loss; its share of an optimizer step, so that their sum is the number of ``steps``
    in every mode; and what else is counted of the batch.
    """

    def __init__(self, intercept: Table | None) -> None:
        self.intercept = intercept

    def __call__(self, worker: Worker, batch: LinearBatch) -> dict[str, float]:
        loss, residuals, weights = self._predicted(batch)
        residuals /= worker.full_clock_rows
        gradient = np.zeros_like(weights)
        dot_t(batch.indptr, batch.columns, batch.values, residuals, gradient)
        batch.keyset.push(gradient)
        if self.intercept is not None:
            total = dot(
                _row_of(residuals),
                np.zeros(len(residuals), np.int32),
                residuals,
                np.ones(1, residuals.dtype),
            )
            self.intercept.push(_ONE_ROW, total)
        rows = len(batch.labels)
        return {
            "loss": loss,
            "rows": rows,
            "steps": rows / worker.full_clock_rows,
            **batch.numbers,
        }

    def validate(self, worker: Worker, batch: LinearBatch) -> dict[str, float]:
        """The loss of rows for validation, and their number."""
        loss, _, _ = self._predicted(batch)
        sums = {early_stopping.LOSS: loss, early_stopping.WEIGHT: float(len(batch.labels))}
        return {**sums, **batch.numbers}

    def _predicted(self, batch: LinearBatch) -> tuple[float, Array, Array]:
        """The loss of the rows, its derivatives by their margins, and the weights."""
        intercept = (
            self.intercept.pull(_ONE_ROW, wait=False) if self.intercept is not None else None
        )
        weights = batch.keyset.pull()
        margins = dot(batch.indptr, batch.columns, batch.values, weights)
        if intercept is not None:
            margins += intercept.wait()[0]
        loss, residuals = logistic(margins, batch.labels)
        return loss, residuals, weights


def vector_size(metrics: Mapping[str, float]) -> int | None:
    """The one length of all feature vectors of an epoch, or None where any id is legal.

    Raises
    ------
    InvalidInput
        When vectors of several lengths were seen.
    """
    sizes = {
        int(name.removeprefix(SIZE)): int(rows)
        for name, rows in metrics.items()
        if name.startswith(SIZE)
    }
    if len(sizes) > 1:
        seen = ", ".join(f"{size} ({rows} rows)" for size, rows in sorted(sizes.items()))
        raise InvalidInput(
            name="features",
            value=None,
            where="features",
            reason=f"feature vectors of several lengths: {seen}",
        )
    return next(iter(sizes), None)


_ONE_ROW = np.zeros(1, np.int64)


def _row_of(values: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """``indptr`` of one row that holds all ``values``: a sum in a fixed order by the CSR kernel."""
    return np.array([0, len(values)], np.int64)
