"""How the linear estimators are trained: from checked Params and a DataFrame to weights.

Two ways: by passes over all rows (:func:`by_full_batches`, solver ``lbfgs``), and by steps of
batches (:func:`by_batches`, the others). Each makes its tables, runs one Spark job and drops the
tables again.

Not here: the Params (``sparkps.ml.classification``) and what a worker computes (``sparkps.algos``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from sparkps import _log
from sparkps.algos.early_stopping import EarlyStopping
from sparkps.algos.full_batch import FullBatch, LogisticGradient, LogisticSearch, counts
from sparkps.algos.lbfgs import PASSES
from sparkps.algos.linear import (
    SIZE,
    LinearBatch,
    LogisticStep,
    ftrl_penalties,
    solver_optimizer,
    vector_size,
)
from sparkps.errors import InvalidArgument, InvalidInput
from sparkps.kernels.csr import moments_t
from sparkps.ml.scoring import SparseWeights, fetch_weights
from sparkps.optim.lbfgs import LBFGS
from sparkps.spark.batches import CSR, column, csr
from sparkps.store import functions

if TYPE_CHECKING:
    from sparkps.client.table import Table
    from sparkps.client.vocabulary import Vocabulary
    from sparkps.client.worker import Worker
    from sparkps.spark.context import PSContext

_logger = _log.get("ml")

#: Numbers that count the labels -1 and 0.
_MINUS, _ZERO = "labels=-1", "labels=0"

#: Labels that an error names at most.
_SOME_LABELS = 5


@dataclass(frozen=True)
class Initial:
    """A model that training begins at; its ``size`` is None for ids."""

    weights: SparseWeights
    intercept: float
    size: int | None

    def check(self, counted: Mapping[str, float]) -> None:
        """Raise if the rows have vectors of another length, or too short for the model's ids."""
        size = vector_size(counted)
        if size is None:
            return
        what = f"the model has {self.size} features"
        if self.size is None:
            ids = self.weights.keys
            if not len(ids) or (ids[0] >= 0 and ids[-1] < size):
                return
            what = f"the model has weights of the ids {ids[0]} to {ids[-1]}"
        if size != self.size:
            raise InvalidArgument(
                name="initialModel", value=self.size, reason=f"{what}, and the rows have {size}"
            )


@dataclass(frozen=True)
class LinearProblem:
    """What is to be trained; the Params of an estimator, checked.

    Attributes
    ----------
    name : str
        Of the tables.
    frame : DataFrame
        Has the columns below.
    label, features : str
    values, weight, validation : str or None
    validation_tol : float
    initial : Initial or None
        The model to begin at.
    l1, l2 : float
        Weights of the penalties against the mean loss.
    batch_rows : int
    workers : int or None
    """

    name: str
    frame: DataFrame
    label: str
    features: str
    values: str | None
    weight: str | None
    validation: str | None
    validation_tol: float
    initial: Initial | None
    fit_intercept: bool
    l1: float
    l2: float
    tol: float
    max_iter: int
    batch_rows: int
    workers: int | None

    def stopping(self) -> EarlyStopping | None:
        """What watches the rows for validation; None where there are none."""
        if self.validation is None:
            return None
        return EarlyStopping(self.validation, self.validation_tol)


@dataclass(frozen=True)
class Fitted:
    """What training has found.

    Attributes
    ----------
    weights : SparseWeights
    intercept : float
    size : int or None
        Length of the feature vectors; None for ids.
    objective : list of float
        At the start and after each iteration (lbfgs), or of each pass while it was made.
    iterations : int
    reason : str
        Why training ended.
    seconds : float
    epoch_seconds : list of float
    validation : list of float
        The mean loss of the rows for validation, at the start and after each iteration, or of each
        pass.
    """

    weights: SparseWeights
    intercept: float
    size: int | None
    objective: list[float]
    iterations: int
    reason: str
    seconds: float
    epoch_seconds: list[float]
    validation: list[float]


def by_full_batches(context: PSContext, problem: LinearProblem, *, standardize: bool) -> Fitted:
    """Train by L-BFGS, or OWL-QN where there is an l1 penalty."""
    began = time.monotonic()
    table = context.table(
        f"{problem.name}/{uuid.uuid4().hex[:8]}", dtype="float64", optimizer=LBFGS()
    )
    initial, stopping = problem.initial, problem.stopping()
    try:
        if initial is not None:
            table.assign(initial.weights.keys, initial.weights.values)
        search = LogisticSearch(
            table,
            l1=problem.l1,
            l2=problem.l2,
            standardize=standardize,
            intercept=problem.fit_intercept,
            tol=problem.tol,
            max_iter=problem.max_iter,
            check=partial(check_rows, problem),
            stopping=stopping,
            begin=None if initial is None else initial.intercept,
        )
        step = LogisticGradient(table)
        history = context.run(
            problem.frame,
            step,
            epochs=3 + PASSES * problem.max_iter,
            workers=problem.workers,
            batch_rows=problem.batch_rows,
            prepare=_PrepareFull(problem, step),
            on_epoch=search,
            clock_every="epoch",
            validation=problem.validation,
        )
        weights = fetch_weights(table, context)
    finally:
        table.drop()
    found = search.search
    if found is not None and (found.diverged or not found.reason):
        raise InvalidArgument(
            name="features",
            value=None,
            reason=f"training ended without a result: {found.reason or 'the search did not end'}; "
            "are there values of very different sizes?",
        )
    if found is None:
        _logger.warning(
            "all labels are %g: the weights are 0, the intercept is %g, and no training is needed",
            search.one_label,
            search.intercept,
        )
    return Fitted(
        weights,
        search.intercept,
        vector_size(search.first),
        [] if found is None else found.history,
        0 if found is None else found.iterations,
        "all labels are equal" if found is None else found.reason,
        time.monotonic() - began,
        [passed["seconds"] for passed in history],
        [] if stopping is None else stopping.history,
    )


def by_batches(
    context: PSContext,
    problem: LinearProblem,
    *,
    solver: str,
    step_size: float | None,
    consistency: str,
) -> Fitted:
    """Train by the steps of an optimizer on the servers."""
    began = time.monotonic()
    name = f"{problem.name}/{uuid.uuid4().hex[:8]}"
    tables: list[Table] = []
    try:
        # float64, as pyspark.ml: in float32 the order of rows shows in the fifth digit.
        weights = context.table(
            f"{name}/weights",
            dtype="float64",
            optimizer=solver_optimizer(solver, step_size, problem.l1, problem.l2),
        )
        tables.append(weights)
        intercept = None
        if problem.fit_intercept:
            plain = solver_optimizer(solver, step_size, 0.0, 0.0)
            intercept = context.table(
                f"{name}/intercept", dim=1, partitions=1, dtype="float64", optimizer=plain
            )
            tables.append(intercept)
        if problem.initial is not None:
            weights.assign(problem.initial.weights.keys, problem.initial.weights.values)
            if intercept is not None:
                intercept.assign(np.zeros(1, np.int64), [problem.initial.intercept])

        def model() -> tuple[SparseWeights, float]:
            return fetch_weights(weights, context), _first(intercept)

        watch = _StopOrGoOn(weights, problem, model, ftrl=solver == "ftrl")
        history = context.run(
            problem.frame,
            LogisticStep(intercept),
            epochs=problem.max_iter,
            consistency=consistency,
            workers=problem.workers,
            batch_rows=problem.batch_rows,
            prepare=_Prepare(weights, problem),
            on_epoch=watch,
            validation=problem.validation,
        )
        return Fitted(
            *(watch.best or model()),
            vector_size(history[0]),
            watch.objective,
            len(history),
            watch.reason,
            time.monotonic() - began,
            [passed["seconds"] for passed in history],
            [] if watch.stopping is None else watch.stopping.history,
        )
    finally:
        for table in tables:
            table.drop()


class _PrepareFull:
    """The ``prepare`` of :func:`by_full_batches`: rows as CSR over the keys of their rank."""

    def __init__(self, problem: LinearProblem, step: LogisticGradient) -> None:
        self.label, self.weight = problem.label, problem.weight
        self.features, self.values = problem.features, problem.values
        self.step = step

    def __call__(self, worker: Worker, batch: pa.RecordBatch) -> FullBatch:
        vocabulary = self.step.vocabulary(validating=worker.validating)
        rows = csr(batch, self.features, self.values, vocabulary)
        labels, kinds = labels_of(batch, self.label)
        weights = None if self.weight is None else weights_of(batch, self.weight)
        values = None if rows.values is None or (rows.values == 1).all() else rows.values
        numbers = dict(kinds)
        if not worker.validating:
            numbers |= counts(labels, weights, ones=values is None and not _repeats(rows))
        if rows.size is not None:
            numbers[f"{SIZE}{rows.size}"] = len(labels)
        ordinals: Any = rows.ordinals
        return FullBatch(rows.indptr, ordinals[rows.columns], values, labels, weights, numbers)


def _repeats(rows: CSR) -> bool:
    """Whether an id comes twice in a row, all values being 1."""
    squares = np.zeros(len(rows.distinct))
    lost = np.zeros(len(rows.distinct))
    moments_t(rows.indptr, rows.columns, None, np.ones(rows.rows), 2, squares, lost)
    return bool(squares.sum() != rows.nnz)


class _Prepare:
    """The ``prepare`` of :func:`by_batches`: rows as CSR, their keys registered with the servers
    once.

    Each task has a copy of its own, and with it one vocabulary for all its batches.
    """

    def __init__(self, weights: Table, problem: LinearProblem) -> None:
        self.weights = weights
        self.label, self.features, self.values = problem.label, problem.features, problem.values
        self.vocabulary: Vocabulary | None = None

    def __call__(self, worker: Worker, batch: pa.RecordBatch) -> LinearBatch:
        if self.vocabulary is None:
            self.vocabulary = self.weights.vocabulary()
        rows = csr(batch, self.features, self.values, self.vocabulary)
        labels, kinds = labels_of(batch, self.label)
        keyset = self.vocabulary.keyset(rows.ordinals)
        numbers = kinds if rows.size is None else kinds | {f"{SIZE}{rows.size}": float(len(labels))}
        return LinearBatch(rows.indptr, rows.columns, rows.values, labels, keyset, numbers)


class _StopOrGoOn:
    """``on_epoch`` of :func:`by_batches`: stop when the objective no longer gets better, or that of
    the rows for validation; tell FTRL how many steps there will be.

    With rows for validation, ``best`` is the model after the pass that they liked best, which is
    fetched after every pass that is better than the one before.
    """

    def __init__(
        self,
        weights: Table,
        problem: LinearProblem,
        model: Callable[[], tuple[SparseWeights, float]],
        *,
        ftrl: bool,
    ) -> None:
        self.weights = weights
        self.model = model
        self.best: tuple[SparseWeights, float] | None = None
        self.problem = problem
        self.stopping = problem.stopping()
        self.tol = problem.tol
        self.l1, self.l2 = problem.l1, problem.l2
        self.ftrl = ftrl
        self.objective: list[float] = []
        self.reason = "maxIter was reached"

    def __call__(self, epoch: int, metrics: dict[str, float]) -> str | None:
        check_rows(self.problem, metrics)
        objective = metrics["loss"] / metrics["rows"]
        if self.l1:
            objective += self.l1 * self.weights.reduce(functions.norm1)
        if self.l2:
            objective += self.l2 / 2 * self.weights.reduce(functions.norm2) ** 2
        if not np.isfinite(objective):
            raise InvalidArgument(
                name="stepSize",
                value=None,
                reason=f"training diverged in epoch {epoch}; use a smaller stepSize",
            )
        before = self.objective[-1] if self.objective else float("inf")
        self.objective.append(objective)
        if self.stopping is not None:
            if self.stopping.take(self.stopping.mean(metrics)):
                self.reason = "the validation loss has come to rest"
                return "stop"
            self.best = self.model()
        if abs(before - objective) <= self.tol * abs(objective):
            self.reason = "the objective has come to rest"
            return "stop"
        if self.ftrl and (self.l1 or self.l2):
            # What the objective asks of the last step of the next epoch, which is the one whose
            # weights stay.
            self.weights.configure(
                **ftrl_penalties(self.l1, self.l2, round((epoch + 2) * metrics["steps"]))
            )
        return None


def labels_of(batch: pa.RecordBatch, name: str) -> tuple[npt.NDArray[np.float32], dict[str, float]]:
    """The labels of a batch, float32 of 0 and 1, and what to count of them.

    -1 becomes 0; whether the rows have one or the other is known when all are counted
    (:func:`check_rows`). InvalidInput if there are other labels.
    """
    array = batch.column(batch.schema.get_field_index(name))
    labels: npt.NDArray[np.float32] = array.to_numpy(zero_copy_only=False).astype(np.float32)
    minus = labels == -1
    zero = labels == 0
    bad = np.flatnonzero(~(minus | zero | (labels == 1)))
    if len(bad):
        kinds = np.unique(labels[bad])
        some = ", ".join(
            "null or NaN" if np.isnan(label) else f"{label:g}" for label in kinds[:_SOME_LABELS]
        )
        more = ", ..." if len(kinds) > _SOME_LABELS else ""
        raise InvalidInput(
            where=f"column {name!r}, row {bad[0]} of its batch",
            reason=f"{len(bad)} of {len(labels)} labels of a batch are neither 0 and 1 nor -1 and "
            f"1, but {some}{more}; map them to 0 and 1 first",
        )
    labels[minus] = 0
    return labels, {_MINUS: float(np.count_nonzero(minus)), _ZERO: float(np.count_nonzero(zero))}


def check_rows(problem: LinearProblem, counted: Mapping[str, float]) -> None:
    """Refuse rows of which some have the label -1 and others 0, or vectors of several lengths, or
    of another length than the model to begin at; and none at all."""
    if not counted.get("rows"):
        raise InvalidInput(where="the training DataFrame", reason="it has no rows to train on")
    vector_size(counted)
    if problem.initial is not None:
        problem.initial.check(counted)
    minus, zero = counted.get(_MINUS, 0), counted.get(_ZERO, 0)
    if minus and zero:
        raise InvalidInput(
            where=f"column {problem.label!r}",
            reason=f"{minus:.0f} labels are -1 and {zero:.0f} are 0; use 0 and 1, or -1 and 1",
        )


def weights_of(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """The weights of a batch's rows, float64; InvalidInput if one is negative."""
    weights: npt.NDArray[np.float64] = column(batch, name, "float64")
    bad = np.flatnonzero(weights < 0)
    if len(bad):
        raise InvalidInput(
            where=f"column {name!r}",
            reason=f"{len(bad)} of {len(weights)} weights of a batch are negative, such as "
            f"{weights[bad[0]]:g}",
        )
    return weights


def _first(intercept: Table | None) -> float:
    return float(intercept.pull(np.zeros(1, np.int64))[0]) if intercept is not None else 0.0
