"""What a model says of its training and of rows that it has scored.

The names are pyspark.ml's. Metrics of scored rows are computed by Spark's own evaluation classes,
lazily and from one cached pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.ml.functions import vector_to_array
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkps.errors import InvalidArgument


@dataclass(frozen=True)
class LogisticRegressionTrainingSummary:
    """How training went.

    Attributes
    ----------
    objectiveHistory : list of float
        The objective at the start and after each iteration; with a solver other than ``lbfgs``, of
        each pass while it was made.
    totalIterations : int
        Iterations, or passes.
    reason : str
        Why training ended.
    seconds : float
        Of the whole fit.
    """

    objectiveHistory: list[float]
    totalIterations: int
    reason: str
    seconds: float


class LogisticRegressionSummary:
    """Metrics of scored rows.

    Attributes
    ----------
    predictions : DataFrame
        The rows with their scores.
    labelCol, scoreCol, predictionCol, weightCol : str
        ``scoreCol`` is the column of probabilities.
    """

    def __init__(self, predictions: DataFrame, label: str, weight: str | None, model: Any) -> None:
        self.predictions = predictions
        self.labelCol = label
        self.weightCol = weight
        self.predictionCol: str = model.getPredictionCol()
        self.probabilityCol: str = model.getProbabilityCol()
        self.scoreCol = self.probabilityCol
        for name in ("predictionCol", "probabilityCol"):
            if not getattr(self, name):
                reason = "evaluate() needs this column; give it a name"
                raise InvalidArgument(name=name, value="", reason=reason)

    @property
    def labels(self) -> list[float]:
        """The labels, ascending."""
        return [0.0, 1.0]

    @property
    def accuracy(self) -> float:
        """The share of the weight of rows that are predicted right."""
        total = sum(self._confusion.values())
        right = sum(n for (label, said), n in self._confusion.items() if label == said)
        return right / total if total else 0.0

    @property
    def precisionByLabel(self) -> list[float]:
        """Of the rows that are said to have a label, the share that has it."""
        return [self._share(label, of_said=True) for label in self.labels]

    @property
    def recallByLabel(self) -> list[float]:
        """Of the rows that have a label, the share that is said to."""
        return [self._share(label, of_said=False) for label in self.labels]

    @property
    def truePositiveRateByLabel(self) -> list[float]:
        """The same as ``recallByLabel``."""
        return self.recallByLabel

    @property
    def falsePositiveRateByLabel(self) -> list[float]:
        """Of the rows that have another label, the share that is said to have this."""
        rates = []
        for label in self.labels:
            others = {key: n for key, n in self._confusion.items() if key[0] != label}
            total = sum(others.values())
            wrong = sum(n for (_, said), n in others.items() if said == label)
            rates.append(wrong / total if total else 0.0)
        return rates

    def fMeasureByLabel(self, beta: float = 1.0) -> list[float]:
        """The weighted harmonic mean of precision and recall of each label."""
        pairs = zip(self.precisionByLabel, self.recallByLabel, strict=True)
        square = beta * beta
        return [(1 + square) * p * r / (square * p + r) if p + r else 0.0 for p, r in pairs]

    @property
    def weightedPrecision(self) -> float:
        """Precision, averaged over the labels by their rows."""
        return self._weighted(self.precisionByLabel)

    @property
    def weightedRecall(self) -> float:
        """Recall, averaged over the labels by their rows."""
        return self._weighted(self.recallByLabel)

    @property
    def areaUnderROC(self) -> float:
        """Area under the receiver operating characteristic, from as many points as ``roc`` has."""
        return float(self._metrics.areaUnderROC())

    @property
    def roc(self) -> DataFrame:
        """The receiver operating characteristic: columns ``FPR`` and ``TPR``."""
        return self._curve("roc", "FPR", "TPR")

    @property
    def pr(self) -> DataFrame:
        """Precision over recall: columns ``recall`` and ``precision``."""
        return self._curve("pr", "recall", "precision")

    @property
    def precisionByThreshold(self) -> DataFrame:
        """Columns ``threshold`` and ``precision``."""
        return self._curve("precisionByThreshold", "threshold", "precision")

    @property
    def recallByThreshold(self) -> DataFrame:
        """Columns ``threshold`` and ``recall``."""
        return self._curve("recallByThreshold", "threshold", "recall")

    @property
    def fMeasureByThreshold(self) -> DataFrame:
        """Columns ``threshold`` and ``F-Measure``."""
        return self._curve("fMeasureByThreshold", "threshold", "F-Measure")

    # --- inside

    @cached_property
    def _confusion(self) -> dict[tuple[float, float], float]:
        """The weight of rows by (label, prediction)."""
        rows = self.predictions.groupBy(self._label(), F.col(self.predictionCol)).agg(
            F.sum(self._weight())
        )
        return {(row[0], row[1]): float(row[2]) for row in rows.collect()}

    @cached_property
    def _metrics(self) -> Any:
        """Spark's ``BinaryClassificationMetrics``, with 1,000 bins as pyspark.ml's summary."""
        score = vector_to_array(self.probabilityCol)[1]
        rows = self.predictions.select(
            score.alias("score"), self._label().alias("label"), self._weight().alias("weight")
        )
        gateway: Any = rows.sparkSession.sparkContext._jvm
        kind = gateway.org.apache.spark.mllib.evaluation.BinaryClassificationMetrics
        return kind(rows._jdf)

    def _label(self) -> Any:
        """The label, where -1 stands for 0."""
        return F.greatest(F.col(self.labelCol).cast("double"), F.lit(0.0))

    def _weight(self) -> Any:
        return F.lit(1.0) if self.weightCol is None else F.col(self.weightCol).cast("double")

    def _curve(self, method: str, x: str, y: str) -> DataFrame:
        session: Any = self.predictions.sparkSession
        pairs = getattr(self._metrics, method)()
        rows = session._jsparkSession.createDataFrame(
            pairs, session._jvm.java.lang.Class.forName("scala.Tuple2")
        )
        return DataFrame(rows, session).toDF(x, y)

    def _share(self, label: float, *, of_said: bool) -> float:
        place = 1 if of_said else 0
        total = sum(n for key, n in self._confusion.items() if key[place] == label)
        return self._confusion.get((label, label), 0.0) / total if total else 0.0

    def _weighted(self, numbers: list[float]) -> float:
        totals = [
            sum(n for (label, _), n in self._confusion.items() if label == each)
            for each in self.labels
        ]
        return sum(n * t for n, t in zip(numbers, totals, strict=True)) / (sum(totals) or 1.0)
