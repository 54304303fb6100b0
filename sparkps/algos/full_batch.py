"""Sparse logistic regression by L-BFGS: a whole pass over the rows for each gradient.

A worker computes the loss and the gradient of its rows at the point that is on the servers, over
all its batches, and pushes the gradient once (:class:`LogisticGradient`). After each pass the
driver moves the point (:class:`LogisticSearch`, the ``on_epoch`` of the run): it exchanges some
hundred numbers with the servers and none of its work grows with the number of features.

The passes of a run, all in one stage:

1. *features*: sums of the rows' features, weights and labels, for the scales of the coordinates;
2. *squares*: sums of squares, only where some value is not 1;
3. *loss*, as often as the search asks for it.

The objective is pyspark.ml's: ``sum w_i log(1 + exp(-m_i (2 y_i - 1))) / sum w_i`` with
``m = x.w + b``, plus the penalties. ``b`` is the driver's and travels as a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkps.algos import early_stopping
from sparkps.algos.early_stopping import EarlyStopping
from sparkps.algos.lbfgs import QuasiNewton, Step
from sparkps.client.keyset import Keyset
from sparkps.client.table import Table
from sparkps.client.vocabulary import Vocabulary
from sparkps.client.worker import Worker
from sparkps.errors import InvalidArgument
from sparkps.kernels.csr import dot, dot_t, logistic, moments_t
from sparkps.store import functions
from sparkps.store.quasi_newton import Begin, Moments, Move, Products

Array = npt.NDArray[Any]

FEATURES: Final = "features"
SQUARES: Final = "squares"
LOSS: Final = "loss"

#: The least distance of a probability from 0 and 1, where an intercept has to stand for all.
NEVER: Final = 1e-15


class FullBatch(NamedTuple):
    """What ``prepare`` makes of a batch: rows as CSR over the vocabulary of its rank.

    ``indptr`` (rows + 1,), ``columns`` (non-zeros,) int32 ordinals, ``values`` (non-zeros,) float32
    or None when all are 1, ``labels`` (rows,) float32 of 0 and 1, ``weights`` (rows,) float64 or
    None when all are 1, ``numbers`` what is counted once.
    """

    indptr: Array
    columns: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32] | None
    labels: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float64] | None
    numbers: Mapping[str, float]


class LogisticGradient:
    """The ``step`` of the run: adds up a pass over this rank's rows, and pushes at its end.

    Each task has a copy of its own.

    Parameters
    ----------
    table
        The vectors; see :class:`LogisticSearch`.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._training: _Named | None = None
        #: The keys of rows for validation: pulled, never pushed, so that none gets a row by it.
        self._validation: _Named | None = None
        self._epoch = -1
        self._sums: Array = np.empty(0)
        #: What the moments have lost to rounding.
        self._low: Array = np.empty(0)

    def vocabulary(self, *, validating: bool = False) -> Vocabulary:
        """The keys of all batches of this rank; ``prepare`` fills it."""
        return self._keys(validating).vocabulary

    def start(self, worker: Worker) -> None:
        """Name this rank's keys to the servers, once for all passes.

        A task that lost its rank and holds it again begins its pass anew.
        """
        self._epoch = -1
        for keys in (self._keys(False), self._keys(True)):
            keys.name()

    def __call__(self, worker: Worker, batch: FullBatch) -> dict[str, float]:
        phase = worker.params.get("phase", FEATURES)
        if worker.epoch != self._epoch:
            self._begin(worker.epoch, phase)
        if phase == LOSS:
            return self._loss(worker, batch)
        weights = np.ones(len(batch.labels)) if batch.weights is None else batch.weights
        moments_t(
            batch.indptr,
            batch.columns,
            batch.values,
            weights,
            2 if phase == SQUARES else 1,
            self._sums,
            self._low,
        )
        return {"rows": len(batch.labels), **(batch.numbers if phase == FEATURES else {})}

    def validate(self, worker: Worker, batch: FullBatch) -> dict[str, float]:
        """The loss of rows for validation at the point, and their weight."""
        phase = worker.params.get("phase", FEATURES)
        if phase != LOSS:
            return dict(batch.numbers) if phase == FEATURES else {}
        loss, _ = self._predicted(worker, batch)
        weight = len(batch.labels) if batch.weights is None else batch.weights.sum()
        return {early_stopping.LOSS: loss, early_stopping.WEIGHT: float(weight)}

    def end_epoch(self, worker: Worker) -> None:
        """Push what the pass has added up."""
        keyset = self._keys(False).keyset
        if keyset is not None and worker.epoch == self._epoch:
            keyset.push(self._sums + self._low)

    def _keys(self, validating: bool) -> _Named:
        if self._training is None or self._validation is None:
            self._training, self._validation = _Named(self._table), _Named(self._table)
        return self._validation if validating else self._training

    def _begin(self, epoch: int, phase: str) -> None:
        self._epoch = epoch
        keys = len(self.vocabulary())
        self._sums = np.zeros(keys)
        self._low = np.zeros(keys if phase != LOSS else 1)  # a gradient needs none

    def _loss(self, worker: Worker, batch: FullBatch) -> dict[str, float]:
        loss, residuals = self._predicted(worker, batch)
        dot_t(batch.indptr, batch.columns, batch.values, residuals, self._sums)
        return {"loss": loss, "rows": len(batch.labels), "slope": float(np.sum(residuals))}

    def _predicted(self, worker: Worker, batch: FullBatch) -> tuple[float, Array]:
        """The loss of the rows at the point, and its derivatives by their margins."""
        weights = self._keys(worker.validating).weights(worker.epoch)
        margins = dot(batch.indptr, batch.columns, batch.values, weights)
        margins += worker.params["intercept"]
        return logistic(margins, batch.labels, batch.weights)


class _Named:
    """Keys of a rank, named to the servers once, and their weights of a pass."""

    def __init__(self, table: Table) -> None:
        self.vocabulary = table.vocabulary()
        self.keyset: Keyset | None = None
        self._weights: Array = np.empty(0)
        self._epoch = -1

    def name(self) -> None:
        """Name the keys that are in the vocabulary now."""
        self._epoch = -1
        if len(self.vocabulary):
            self.keyset = self.vocabulary.keyset(np.arange(len(self.vocabulary), dtype=np.int32))

    def weights(self, epoch: int) -> Array:
        """The weights of the keys, pulled once in a pass."""
        if epoch != self._epoch and self.keyset is not None:
            self._epoch, self._weights = epoch, self.keyset.pull()
        return self._weights


def counts(labels: Array, weights: Array | None, *, ones: bool) -> dict[str, float]:
    """What the first pass says of a batch: sums of weights, of their squares and of the weighted
    labels, and whether some row has a feature that does not count 1 in it."""
    if weights is None:
        weight = squares = float(len(labels))
        positive = float(labels.sum(dtype=np.float64))
    else:
        weight, squares = math.fsum(weights), float(weights @ weights)
        positive = float(weights @ labels)
    return {"weight": weight, "squares": squares, "positive": positive, "valued": float(not ones)}


class LogisticSearch:
    """The ``on_epoch`` of the run: what the next pass is, until the minimum is found.

    Parameters
    ----------
    table
        The vectors; its optimizer is :class:`sparkps.optim.lbfgs.LBFGS`.
    l1, l2
        Weights of the penalties against the mean loss.
    standardize
        Whether the penalties are on the weights times the features' standard deviations.
    intercept
        Whether there is one.
    tol, max_iter
        Of :class:`sparkps.algos.lbfgs.QuasiNewton`.
    check
        Is shown the sums of the first pass; raises what is wrong with the rows.
    stopping
        Watches the rows for validation; None where there are none.
    begin
        The intercept of the model that the search begins at, whose weights are the table's values;
        None to begin at weights of 0 and the intercept that fits them best.

    Attributes
    ----------
    search : QuasiNewton or None
        None before the first pass has ended.
    first : dict
        The sums of the first pass.
    intercept : float
        The intercept of the point that is on the servers.
    one_label : float or None
        The label of all rows, if they have but one and there is an intercept, which then is all of
        the model.
    """

    def __init__(
        self,
        table: Table,
        *,
        l1: float,
        l2: float,
        standardize: bool,
        intercept: bool,
        tol: float,
        max_iter: int,
        check: Callable[[Mapping[str, float]], None],
        stopping: EarlyStopping | None = None,
        begin: float | None = None,
    ) -> None:
        self.table = table
        self.check = check
        self.stopping, self.begin = stopping, begin
        self.l1, self.l2, self.standardize = l1, l2, standardize
        self.tol, self.max_iter = tol, max_iter
        self.fit_intercept = intercept
        self.search: QuasiNewton | None = None
        self.first: dict[str, float] = {}
        self.intercept = 0.0
        self.one_label: float | None = None

    def __call__(self, epoch: int, metrics: dict[str, float]) -> str | dict[str, Any]:
        if not self.first:
            self.first = dict(metrics)
            self.check(self.first)
            if metrics["valued"]:
                self.table.apply(Moments(0.0, 0.0, ones=False))
                return {"phase": SQUARES}
            return self._scaled(ones=True)
        if self.search is None:
            return self._scaled(ones=False)
        return self._evaluated(self.search, metrics)

    def _scaled(self, *, ones: bool) -> str | dict[str, Any]:
        """Scale the coordinates by the sums that are on the servers, and begin the search."""
        first = self.first
        weight = first["weight"]
        if not weight > 0:
            raise InvalidArgument(
                name="weightCol",
                value=weight,
                reason="the rows' weights add up to 0",
            )
        self.table.apply(Moments(weight, first["squares"], ones=ones))
        share = first["positive"] / weight
        if self.fit_intercept:
            bounded = min(max(share, NEVER), 1 - NEVER)
            self.intercept = math.log(bounded / (1 - bounded))
            if share in (0.0, 1.0):
                self.one_label = share
                return "stop"
        moved = 0.0 if self.begin is None else self._begin_at(self.begin)
        # Behind the intercept, how far the features' means move it; see _evaluated.
        start = [self.intercept + moved] if self.fit_intercept else []
        shift = [moved] if self.fit_intercept and not self.l1 else []
        self.search = QuasiNewton(
            start + shift,
            self.l1,
            self.l2,
            self.tol,
            self.max_iter,
            passengers=len(shift),
            stopping=self.stopping,
        )
        return self._next()

    def _begin_at(self, intercept: float) -> float:
        """Begin at the values on the servers; return how far the features' means move the intercept
        then.

        A feature that does not vary, or does not occur, has no scale, and keeps no weight.
        """
        self.table.apply(Begin())
        if not self.fit_intercept:
            return 0.0
        self.intercept = intercept
        return float(self.table.reduce(functions.dot, "value", "mu"))

    def _evaluated(self, search: QuasiNewton, metrics: dict[str, float]) -> str | dict[str, Any]:
        scale = 1 / self.first["weight"]
        slope = metrics["slope"] * scale if self.fit_intercept else 0.0
        penalties: dict[str, Any] = {
            "scale": scale,
            "slope": slope,
            "l1": self.l1,
            "l2": self.l2,
            "unscaled": not self.standardize,
        }
        dots, others = self.table.reduce(Products(**penalties, slots=search.slots))
        gradient = [slope] if self.fit_intercept else []
        shift = [others[-1]] if self.fit_intercept and not self.l1 else []
        step: Step = search.evaluated(
            metrics["loss"] * scale,
            np.array(gradient + shift),
            dots,
            others,
            None if self.stopping is None else self.stopping.mean(metrics),
        )
        self.table.apply(
            Move(
                **penalties,
                accept=step.accept,
                slot=step.slot,
                slots=step.slots,
                coefficients=step.coefficients,
                alpha=step.alpha,
            )
        )
        if self.fit_intercept:
            # The search's intercept is that of features that count from their means.
            moved = self.table.reduce(functions.dot, "value", "mu") if self.l1 else step.extras[1]
            self.intercept = float(step.extras[0] - moved)
        return "stop" if step.done else self._next()

    def _next(self) -> dict[str, Any]:
        return {"phase": LOSS, "intercept": self.intercept}
