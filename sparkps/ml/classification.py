"""Binary logistic regression on the servers, used as
``pyspark.ml.classification.LogisticRegression`` is.

The objective is pyspark.ml's: the mean of the logistic losses, plus ``regParam`` times
``elasticNetParam * |w|_1 + (1 - elasticNetParam) / 2 * |w|²``; the intercept is not penalised.
Features are not standardised. Both penalties are applied by the server's optimizer to the rows that
a step touches.

Not here: the loop over the batches (``sparkps.algos.linear``), scoring (``sparkps.ml.scoring``) and
files (``sparkps.ml.io``).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import SparseVector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasElasticNetParam,
    HasFeaturesCol,
    HasFitIntercept,
    HasLabelCol,
    HasMaxIter,
    HasPredictionCol,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasRegParam,
    HasThreshold,
    HasTol,
)
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from sparkps.algos.linear import (
    LinearBatch,
    LogisticStep,
    ftrl_penalties,
    solver_optimizer,
    vector_size,
)
from sparkps.errors import InvalidArgument, InvalidInput
from sparkps.ml.io import LinearModelReader, LinearModelWriter, ParamsReader, ParamsWriter
from sparkps.ml.params import HasServerParams, HasValuesCol, one_of, refuse_unsupported
from sparkps.ml.scoring import SparseWeights, fetch_weights, margin_function
from sparkps.spark.batches import csr
from sparkps.spark.context import PSContext
from sparkps.store import functions

if TYPE_CHECKING:
    from sparkps.client.table import Table
    from sparkps.client.vocabulary import Vocabulary
    from sparkps.client.worker import Worker

#: Params of pyspark.ml's class that ours does not have yet. They are refused by name, never
#: ignored.
_LATER = frozenset(
    {
        "standardization",
        "thresholds",
        "weightCol",
        "aggregationDepth",
        "family",
        "maxBlockSizeInMB",
        "lowerBoundsOnCoefficients",
        "upperBoundsOnCoefficients",
        "lowerBoundsOnIntercepts",
        "upperBoundsOnIntercepts",
    }
)


class _LogisticRegressionParams(
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasMaxIter,
    HasRegParam,
    HasElasticNetParam,
    HasTol,
    HasFitIntercept,
    HasThreshold,
    HasServerParams,
    HasValuesCol,
):
    """Params shared by :class:`LogisticRegression` and :class:`LogisticRegressionModel`."""

    solver: Param[str] = Param(
        Params._dummy(),
        "solver",
        "the optimizer that the servers run: adagrad, adam, sgd or ftrl",
        typeConverter=one_of("solver", "adagrad", "adam", "sgd", "ftrl"),
    )
    threshold: Param[float] = Param(
        Params._dummy(),
        "threshold",
        "Threshold in binary classification prediction, in range [0, 1].",
        typeConverter=TypeConverters.toFloat,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            maxIter=100,
            regParam=0.0,
            elasticNetParam=0.0,
            tol=1e-6,
            fitIntercept=True,
            threshold=0.5,
            solver="adagrad",
        )

    def getSolver(self) -> str:
        """The optimizer that the servers run."""
        return self.getOrDefault(self.solver)

    def _penalties(self) -> tuple[float, float]:
        """(l1, l2) weights of the penalties against the mean loss."""
        mix = self.getElasticNetParam()
        return self.getRegParam() * mix, self.getRegParam() * (1 - mix)

    def _check_ranges(self) -> None:
        for name, low, high in (
            ("maxIter", 1, float("inf")),
            ("regParam", 0, float("inf")),
            ("elasticNetParam", 0, 1),
            ("tol", 0, float("inf")),
            ("threshold", 0, 1),
        ):
            value = self.getOrDefault(self.getParam(name))
            if not low <= value <= high:
                raise InvalidArgument(
                    name=name, value=value, reason=f"must be between {low:g} and {high:g}"
                )


class LogisticRegression(
    Estimator["LogisticRegressionModel"],
    _LogisticRegressionParams,
    MLWritable,
    MLReadable["LogisticRegression"],
):
    """Sparse binary logistic regression, trained on parameter servers.

    Parameters
    ----------
    featuresCol : str
        A ``VectorUDT`` column, an ``array<bigint>`` of feature ids (with values in ``valuesCol``,
        or all 1), or a struct of ids and values.
    labelCol : str
        0 or 1.
    maxIter : int
        Passes over the data at most.
    tol : float
        Training stops when a pass improves the objective by less than this share of it.
    solver : {"adagrad", "adam", "sgd", "ftrl"}
    stepSize : float, optional
        Unset: 0.3 for adagrad, 0.05 for adam, 1.0 for sgd, 2.0 for ftrl.
    batchSize : int
        Rows of one worker's gradient.
    numWorkers : int, optional
        Tasks that train at once; unset: what the input's partitions and Spark's slots allow.
    consistency : {"bsp", "ssp:<staleness>", "asp"}

    Other parameters mean what they mean in pyspark.ml; those that pyspark.ml has and this class has
    not are refused.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from sparkps.ml.classification import LogisticRegression
    >>> rows = [(1.0, Vectors.sparse(3, [0], [1.0])), (0.0, Vectors.sparse(3, [2], [1.0]))] * 20
    >>> frame = spark.createDataFrame(rows, ["label", "features"])
    >>> model = LogisticRegression(maxIter=20, numWorkers=1).fit(frame)
    >>> [row.prediction for row in model.transform(frame).limit(2).collect()]
    [1.0, 0.0]
    """

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
        maxIter: int = 100,
        regParam: float = 0.0,
        elasticNetParam: float = 0.0,
        tol: float = 1e-6,
        fitIntercept: bool = True,
        threshold: float = 0.5,
        probabilityCol: str = "probability",
        rawPredictionCol: str = "rawPrediction",
        solver: str = "adagrad",
        numWorkers: int | None = None,
        batchSize: int = 4096,
        stepSize: float | None = None,
        consistency: str = "bsp",
        valuesCol: str | None = None,
        **unsupported: Any,
    ) -> None:
        super().__init__()
        self.setParams(**self._input_kwargs)

    def setParams(self, **given: Any) -> LogisticRegression:
        """Set several Params by name; one that is None is left unset."""
        refuse_unsupported(given, {param.name for param in self.params}, _LATER)
        self._set(**{name: value for name, value in given.items() if value is not None})
        return self

    def _fit(self, dataset: DataFrame) -> LogisticRegressionModel:
        self._check_ranges()
        columns = [self.getFeaturesCol(), *([self.getValuesCol()] if self.getValuesCol() else [])]
        _check_columns(dataset, [self.getLabelCol(), *columns])
        context = PSContext.get_or_create(dataset.sparkSession)
        name = f"{self.uid}/{uuid.uuid4().hex[:8]}"
        solver, step_size = self.getSolver(), self.getStepSize()
        l1, l2 = self._penalties()
        tables: list[Table] = []
        try:
            # float64, as pyspark.ml: in float32 the order of rows shows in the fifth digit.
            weights = context.table(
                f"{name}/weights",
                dtype="float64",
                optimizer=solver_optimizer(solver, step_size, l1, l2),
            )
            tables.append(weights)
            intercept = None
            if self.getFitIntercept():
                plain = solver_optimizer(solver, step_size, 0.0, 0.0)
                intercept = context.table(
                    f"{name}/intercept", dim=1, partitions=1, dtype="float64", optimizer=plain
                )
                tables.append(intercept)
            history = context.run(
                dataset.select(
                    F.col(self.getLabelCol()).cast("double").alias(self.getLabelCol()), *columns
                ),
                LogisticStep(intercept),
                epochs=self.getMaxIter(),
                consistency=self.getConsistency(),
                workers=self.getNumWorkers(),
                batch_rows=self.getBatchSize(),
                prepare=_Prepare(
                    weights, self.getLabelCol(), self.getFeaturesCol(), self.getValuesCol()
                ),
                on_epoch=_StopOrGoOn(weights, self.getTol(), l1, l2, ftrl=solver == "ftrl"),
            )
            model = LogisticRegressionModel(
                fetch_weights(weights, context), _first(intercept), vector_size(history[0])
            )
        finally:
            for table in tables:
                table.drop()
        model._resetUid(self.uid)
        return self._copyValues(model)

    def write(self) -> ParamsWriter:
        """A writer of the Params, as pyspark.ml's."""
        return ParamsWriter(self)

    @classmethod
    def read(cls) -> ParamsReader[LogisticRegression]:
        """A reader of what :meth:`write` has written."""
        return ParamsReader(cls)


class LogisticRegressionModel(
    Model, _LogisticRegressionParams, MLWritable, MLReadable["LogisticRegressionModel"]
):
    """A fitted model, which stands on its own: it needs no server.

    Attributes
    ----------
    weights : SparseWeights
        The non-zero weights: ``keys`` int64 ascending, ``values`` float.
    intercept : float
    numFeatures : int or None
        Length of the feature vectors; None for a model fitted on columns of ids, where any int64 is
        a feature.
    """

    def __init__(self, weights: SparseWeights, intercept: float, num_features: int | None) -> None:
        super().__init__()
        self.weights = weights
        self.intercept = intercept
        self.numFeatures = num_features

    @property
    def coefficients(self) -> SparseVector:
        """The weights as a vector of ``numFeatures``."""
        if self.numFeatures is None:
            raise InvalidArgument(
                name="coefficients",
                value=None,
                reason="this model has int64 feature ids; use model.weights",
            )
        return SparseVector(self.numFeatures, self.weights.keys, self.weights.values)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        self._check_ranges()
        features, values = self.getFeaturesCol(), self.getValuesCol()
        _check_columns(dataset, [features, *([values] if values else [])])
        margin = f"margin {uuid.uuid4().hex[:8]}"
        function = margin_function(
            self.weights.ship(dataset.sparkSession),
            features,
            values,
            self.intercept,
            margin,
            self.numFeatures,
        )
        schema = StructType([*dataset.schema.fields, StructField(margin, DoubleType())])
        frame = dataset.mapInArrow(function, schema)
        m = F.col(margin)
        # exp(-m) overflows to infinity for a very negative margin, and 1 / infinity is the right
        # probability, 0.
        probability = 1.0 / (1.0 + F.exp(-m))
        if self.getRawPredictionCol():
            frame = frame.withColumn(self.getRawPredictionCol(), array_to_vector(F.array(-m, m)))
        if self.getProbabilityCol():
            frame = frame.withColumn(
                self.getProbabilityCol(), array_to_vector(F.array(1.0 - probability, probability))
            )
        if self.getPredictionCol():
            frame = frame.withColumn(
                self.getPredictionCol(),
                F.when(probability > self.getThreshold(), 1.0).otherwise(0.0),
            )
        return frame.drop(margin)

    def write(self) -> LinearModelWriter:
        """A writer of the Params and the weights, as pyspark.ml's."""
        return LinearModelWriter(self)

    @classmethod
    def read(cls) -> LinearModelReader[LogisticRegressionModel]:
        """A reader of what :meth:`write` has written."""
        return LinearModelReader(cls)


class _StopOrGoOn:
    """``on_epoch`` of a fit: stop when the objective no longer gets better; tell FTRL how many
    steps there will be.
    """

    def __init__(self, weights: Table, tol: float, l1: float, l2: float, *, ftrl: bool) -> None:
        self.weights = weights
        self.tol = tol
        self.l1, self.l2 = l1, l2
        self.ftrl = ftrl
        self.before = float("inf")

    def __call__(self, epoch: int, metrics: dict[str, float]) -> str | None:
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
        if abs(self.before - objective) <= self.tol * abs(objective):
            return "stop"
        self.before = objective
        if self.ftrl and (self.l1 or self.l2):
            # What the objective asks of the last step of the next epoch, which is the one whose
            # weights stay.
            self.weights.configure(
                **ftrl_penalties(self.l1, self.l2, round((epoch + 2) * metrics["steps"]))
            )
        return None


class _Prepare:
    """The ``prepare`` of a fit: rows as CSR, their keys registered with the servers once.

    Each task has a copy of its own, and with it one vocabulary for all its batches.
    """

    def __init__(self, weights: Table, label: str, features: str, values: str | None) -> None:
        self.weights = weights
        self.label, self.features, self.values = label, features, values
        self.vocabulary: Vocabulary | None = None

    def __call__(self, worker: Worker, batch: pa.RecordBatch) -> LinearBatch:
        if self.vocabulary is None:
            self.vocabulary = self.weights.vocabulary()
        rows = csr(batch, self.features, self.values, self.vocabulary)
        labels = _labels(batch, self.label)
        keyset = self.vocabulary.keyset(rows.ordinals)
        return LinearBatch(rows.indptr, rows.columns, rows.values, labels, keyset, rows.size)


def _labels(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float32]:
    column = batch.column(batch.schema.get_field_index(name))
    labels = column.to_numpy(zero_copy_only=False).astype(np.float32)
    bad = np.flatnonzero((labels != 0) & (labels != 1))
    if len(bad):
        raise InvalidInput(
            name=name,
            value=None,
            where=f"column {name!r}",
            reason=f"{len(bad)} of {len(labels)} labels of a batch are not 0 or 1, such as "
            f"{labels[bad[0]]:g}; map them to 0 and 1 first",
        )
    return labels


def _first(intercept: Table | None) -> float:
    return float(intercept.pull(np.zeros(1, np.int64))[0]) if intercept is not None else 0.0


def _check_columns(dataset: DataFrame, names: list[str]) -> None:
    for name in names:
        if name not in dataset.columns:
            raise InvalidArgument(
                name="column", value=name, reason=f"the DataFrame has {', '.join(dataset.columns)}"
            )


__all__ = ["LogisticRegression", "LogisticRegressionModel"]
