"""Binary logistic regression on the servers, used as
``pyspark.ml.classification.LogisticRegression`` is.

The objective is pyspark.ml's: the weighted mean of the logistic losses, plus ``regParam`` times
``elasticNetParam * |w|_1 + (1 - elasticNetParam) / 2 * |w|²``; the intercept is not penalised. With
``standardization`` the penalties are on the weights times the features' standard deviations.

The Params, their defaults and their words are pyspark.ml's own; what is not supported is refused by
name. Not here: training (``sparkps.ml.fitting``), scoring (``sparkps.ml.scoring``), summaries
(``sparkps.ml.summary``) and files (``sparkps.ml.io``).
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, Final

import numpy as np
from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.classification import (
    BinaryLogisticRegressionSummary,
)
from pyspark.ml.classification import LogisticRegressionModel as _TheirModel
from pyspark.ml.classification import (
    _LogisticRegressionParams as _TheirParams,  # the one source of names, defaults and words
)
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import DenseMatrix, DenseVector, SparseVector, Vector
from pyspark.ml.param import Param, Params
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from sparkps.errors import InvalidArgument, WrongType
from sparkps.ml.fitting import Initial, LinearProblem, by_batches, by_full_batches
from sparkps.ml.io import LinearModelReader, LinearModelWriter, ParamsReader, ParamsWriter
from sparkps.ml.params import (
    HasServerParams,
    HasValidation,
    HasValuesCol,
    one_of,
    refuse_unknown,
    with_setters,
)
from sparkps.ml.scoring import SparseWeights, margin_function
from sparkps.ml.summary import LogisticRegressionTrainingSummary, evaluation
from sparkps.spark.context import PSContext
from sparkps.spec import no_column

#: Params of pyspark.ml's class that may only keep their default, and why.
_FIXED: Final = {
    "aggregationDepth": "servers add gradients up without a tree",
    "maxBlockSizeInMB": "rows are kept as they are, in batches of batchSize",
    "lowerBoundsOnCoefficients": "bounds are not supported yet",
    "upperBoundsOnCoefficients": "bounds are not supported yet",
    "lowerBoundsOnIntercepts": "bounds are not supported yet",
    "upperBoundsOnIntercepts": "bounds are not supported yet",
}
_SOLVERS: Final = ("lbfgs", "adagrad", "adam", "sgd", "ftrl")


class _LogisticRegressionParams(_TheirParams, HasServerParams, HasValuesCol, HasValidation):
    """Params shared by :class:`LogisticRegression` and :class:`LogisticRegressionModel`."""

    solver: Param[str] = Param(
        Params._dummy(),
        "solver",
        "lbfgs (whole passes), or the optimizer that the servers run: adagrad, adam, sgd or ftrl",
        typeConverter=one_of("solver", *_SOLVERS),
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(solver="lbfgs")

    def getSolver(self) -> str:
        """``lbfgs``, or the optimizer that the servers run."""
        return self.getOrDefault(self.solver)

    def _weight(self) -> str | None:
        """The column of row weights, or None."""
        return self.getWeightCol() or None if self.isDefined(self.weightCol) else None

    def _check(self) -> None:
        """Refuse values out of range, and what is not supported."""
        for name, low, high in (
            ("maxIter", 0, float("inf")),
            ("regParam", 0, float("inf")),
            ("elasticNetParam", 0, 1),
            ("tol", 0, float("inf")),
            ("threshold", 0, 1),
        ):
            value = self.getOrDefault(self.getParam(name))
            if not low <= value <= high or value == float("inf"):
                raise InvalidArgument(
                    name=name, value=value, reason=f"must be between {low:g} and {high:g}"
                )
        for name, why in _FIXED.items():
            param = self.getParam(name)
            if self.isSet(param) and self._paramMap[param] != self._defaultParamMap.get(param):
                raise InvalidArgument(
                    name=name, value=self._paramMap[param], reason=f"{why}; leave it out"
                )
        if self.getFamily().lower() not in ("auto", "binomial"):
            raise InvalidArgument(
                name="family",
                value=self.getFamily(),
                reason="only auto and binomial are supported, for labels 0 and 1",
            )
        if self.isSet(self.thresholds):
            given = self.getOrDefault(self.thresholds)
            if len(given) != 2 or min(given) < 0 or not 0 < sum(given) < float("inf"):
                raise InvalidArgument(
                    name="thresholds",
                    value=given,
                    reason="must be two numbers from 0, for two classes, and at most one of them 0",
                )
            if given[1] == 0:
                raise InvalidArgument(
                    name="thresholds", value=given, reason="the second may not be 0; use threshold"
                )
        self._checkThresholdConsistency()

    def _check_solver(self) -> None:
        """Refuse what the solver does not do."""
        solver = self.getSolver()
        if solver == "lbfgs":
            if self.getConsistency() != "bsp":
                raise InvalidArgument(
                    name="consistency",
                    value=self.getConsistency(),
                    reason="solver lbfgs needs whole gradients, which only bsp gives",
                )
            if self.getStepSize() is not None:
                raise InvalidArgument(
                    name="stepSize",
                    value=self.getStepSize(),
                    reason="solver lbfgs finds its steps itself",
                )
            return
        if self.getMaxIter() < 1:
            raise InvalidArgument(
                name="maxIter", value=0, reason=f"solver {solver} makes at least one pass"
            )
        for name, wrong in (
            ("standardization", self.isSet(self.standardization) and self.getStandardization()),
            ("weightCol", self._weight() is not None),
        ):
            if wrong:
                raise InvalidArgument(
                    name=name,
                    value=self.getOrDefault(self.getParam(name)),
                    reason=f"solver {solver} does not support it; solver lbfgs does",
                )


@with_setters
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
        0 and 1, or -1 and 1. If all are equal and there is an intercept, that is all of the model.
    maxIter : int
        Iterations at most; with a solver other than ``lbfgs``, passes over the data.
    tol : float
        As in pyspark.ml; with a solver other than ``lbfgs``, training stops when a pass improves
        the objective by less than this share of it.
    solver : {"lbfgs", "adagrad", "adam", "sgd", "ftrl"}
        ``lbfgs`` is pyspark.ml's algorithm (with an L1 penalty, OWL-QN) and finds the optimum; the
        others step after each batch, come near the optimum within few passes, and do not
        standardise.
    stepSize : float, optional
        Unset: 0.3 for adagrad, 0.05 for adam, 1.0 for sgd, 2.0 for ftrl.
    batchSize : int
        Rows of one worker's gradient.
    numWorkers : int, optional
        Tasks that train at once; unset: what the input's partitions and Spark's slots allow.
    consistency : {"bsp", "ssp:<staleness>", "asp"}
        Of the solvers other than ``lbfgs``.
    validationIndicatorCol : str, optional
        A boolean column. Rows in which it is true are kept from training, and training ends as soon
        as their mean loss, without penalties, does not get better by ``validationTol`` times itself
        (or times 0.01 if that is more); the model is the one before that iteration or pass.
    validationTol : float
        See ``validationIndicatorCol``.

    Other parameters mean what they mean in pyspark.ml; those that are not supported are refused.
    Workers keep the values of features as float32.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from sparkps.ml.classification import LogisticRegression
    >>> rows = [(1.0, Vectors.sparse(3, [0], [1.0])), (0.0, Vectors.sparse(3, [2], [1.0]))] * 20
    >>> frame = spark.createDataFrame(rows, ["label", "features"])
    >>> model = LogisticRegression(regParam=0.01, numWorkers=1).fit(frame)
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
        thresholds: list[float] | None = None,
        probabilityCol: str = "probability",
        rawPredictionCol: str = "rawPrediction",
        standardization: bool = True,
        weightCol: str | None = None,
        family: str = "auto",
        solver: str = "lbfgs",
        numWorkers: int | None = None,
        batchSize: int = 4096,
        stepSize: float | None = None,
        consistency: str = "bsp",
        valuesCol: str | None = None,
        validationIndicatorCol: str | None = None,
        validationTol: float = 0.01,
        **others: Any,
    ) -> None:
        super().__init__()
        self._initial: Initial | None = None
        self.setParams(**self._input_kwargs)

    def setInitialModel(
        self, model: LogisticRegressionModel | _TheirModel | None
    ) -> LogisticRegression:
        """Begin training at a fitted model, of this class or of pyspark.ml's; None begins at 0.

        The model is no Param: a copy of the estimator begins at it too, a saved one does not. With
        ``fitIntercept=False`` its intercept is left out. Features that do not occur in the rows
        keep their weights, which count in the penalties, but with ``lbfgs``, where a feature
        without variance has no weight, as in pyspark.ml.

        Raises
        ------
        WrongType
            It is no binary logistic regression model with one vector of coefficients.
        """
        self._initial = None if model is None else _initial(model)
        return self

    def setParams(self, **given: Any) -> LogisticRegression:
        """Set several Params by name; one that is None is left unset."""
        refuse_unknown(given, {param.name for param in self.params})
        self._set(**{name: value for name, value in given.items() if value is not None})
        self._check()
        return self

    def _fit(self, dataset: DataFrame) -> LogisticRegressionModel:
        self._check()
        self._check_solver()
        context = PSContext.get_or_create(dataset.sparkSession)
        problem = self._problem(dataset)
        if self.getSolver() == "lbfgs":
            found = by_full_batches(context, problem, standardize=self.getStandardization())
        else:
            found = by_batches(
                context,
                problem,
                solver=self.getSolver(),
                step_size=self.getStepSize(),
                consistency=self.getConsistency(),
            )
        model = LogisticRegressionModel(found.weights, found.intercept, found.size)
        model._resetUid(self.uid)
        self._copyValues(model)
        # Of the model as it is now and of the rows that it was trained on.
        rows = dataset if problem.validation is None else dataset.where(~F.col(problem.validation))
        scored = partial(model.copy().evaluate, rows)
        model._summary = LogisticRegressionTrainingSummary(found, scored)
        return model

    def _problem(self, dataset: DataFrame) -> LinearProblem:
        label, features, values = self.getLabelCol(), self.getFeaturesCol(), self.getValuesCol()
        weight, validation = self._weight(), self.getValidationIndicatorCol()
        numbers = dict.fromkeys(name for name in (label, weight) if name)
        others = [name for name in (features, values, validation) if name]
        _check_columns(
            dataset,
            featuresCol=features,
            valuesCol=values,
            labelCol=label,
            weightCol=weight,
            validationIndicatorCol=validation,
        )
        if validation in numbers:
            reason = "this column holds the label or the weight"
            raise InvalidArgument(name="validationIndicatorCol", value=validation, reason=reason)
        mix = self.getElasticNetParam()
        return LinearProblem(
            name=self.uid,
            frame=dataset.select(
                *(F.col(name).cast("double").alias(name) for name in numbers),
                *others,
            ),
            label=label,
            features=features,
            values=values,
            weight=weight,
            validation=validation,
            validation_tol=self.getValidationTol(),
            initial=self._initial,
            fit_intercept=self.getFitIntercept(),
            l1=self.getRegParam() * mix,
            l2=self.getRegParam() * (1 - mix),
            tol=self.getTol(),
            max_iter=self.getMaxIter(),
            batch_rows=self.getBatchSize(),
            workers=self.getNumWorkers(),
        )

    def write(self) -> ParamsWriter:
        """A writer of the Params, as pyspark.ml's."""
        return ParamsWriter(self)

    @classmethod
    def read(cls) -> ParamsReader[LogisticRegression]:
        """A reader of what :meth:`write` has written."""
        return ParamsReader(cls)


@with_setters
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
    numClasses : int
        2.
    """

    numClasses: Final = 2

    def __init__(self, weights: SparseWeights, intercept: float, num_features: int | None) -> None:
        super().__init__()
        self.weights = weights
        self.intercept = intercept
        self.numFeatures = num_features
        self._summary: LogisticRegressionTrainingSummary | None = None

    def __repr__(self) -> str:
        return (
            f"LogisticRegressionModel: uid={self.uid}, numClasses={self.numClasses}, "
            f"numFeatures={self.numFeatures}, weights={len(self.weights)}"
        )

    @property
    def coefficients(self) -> SparseVector:
        """The weights as a vector of ``numFeatures``."""
        if self.numFeatures is None:
            raise WrongType(
                what="this model",
                got="one of int64 feature ids, which fit no vector",
                expected="model.weights",
            )
        return SparseVector(self.numFeatures, self.weights.keys, self.weights.values)

    @property
    def coefficientMatrix(self) -> DenseMatrix:
        """The weights as a matrix of one row."""
        return DenseMatrix(1, self.coefficients.size, self.coefficients.toArray())

    @property
    def interceptVector(self) -> DenseVector:
        """The intercept as a vector of one number."""
        return DenseVector([self.intercept])

    @property
    def hasSummary(self) -> bool:
        """Whether the model comes from :meth:`LogisticRegression.fit` and not from a file."""
        return self._summary is not None

    @property
    def summary(self) -> LogisticRegressionTrainingSummary:
        """How training went."""
        if self._summary is None:
            raise InvalidArgument(
                name="summary", value=None, reason="this model was loaded and has none"
            )
        return self._summary

    def evaluate(self, dataset: DataFrame) -> BinaryLogisticRegressionSummary:
        """Score rows that have labels, and say how well; what pyspark.ml's model returns."""
        summary: BinaryLogisticRegressionSummary = evaluation(self, dataset, self._weight())
        return summary

    def predictRaw(self, value: Vector) -> DenseVector:
        """The raw prediction of one vector, (-margin, margin)."""
        if self.numFeatures is not None and len(value) != self.numFeatures:
            reason = f"the model has {self.numFeatures} features"
            raise InvalidArgument(name="vector", value=f"of size {len(value)}", reason=reason)
        if isinstance(value, SparseVector):
            keys, numbers = value.indices.astype(np.int64), value.values
        else:
            keys, numbers = np.arange(len(value), dtype=np.int64), value.toArray()
        margin = float(self.weights.lookup(keys) @ numbers) + self.intercept
        return DenseVector([-margin, margin])

    def predictProbability(self, value: Vector) -> DenseVector:
        """The probabilities of 0 and 1 for one vector."""
        with np.errstate(over="ignore"):
            probability = 1 / (1 + np.exp(-self.predictRaw(value)[1]))
        return DenseVector([1 - probability, probability])

    def predict(self, value: Vector) -> float:
        """The label of one vector."""
        return float(self.predictProbability(value)[1] > self.getThreshold())

    def _transform(self, dataset: DataFrame) -> DataFrame:
        self._check()
        features, values = self.getFeaturesCol(), self.getValuesCol()
        _check_columns(dataset, featuresCol=features, valuesCol=values)
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


def _initial(model: Any) -> Initial:
    if isinstance(model, LogisticRegressionModel):
        return Initial(model.weights, model.intercept, model.numFeatures)
    if not isinstance(model, _TheirModel) or model.coefficientMatrix.numRows != 1:
        raise WrongType(
            what="the initial model",
            got=type(model).__name__,
            expected="a binary LogisticRegressionModel, of family binomial",
        )
    weights = model.coefficients.toArray()
    keys = np.flatnonzero(weights)
    return Initial(SparseWeights(keys, weights[keys]), model.intercept, model.numFeatures)


def _check_columns(dataset: DataFrame, **columns: str | None) -> None:
    """Refuse the first Param that names a column which is not there; one may name none."""
    for param, name in columns.items():
        if name and name not in dataset.columns:
            reason = no_column(name, dataset.columns)
            raise InvalidArgument(name=param, value=name, reason=reason)


__all__ = ["LogisticRegression", "LogisticRegressionModel"]
