"""What a model says of its training and of rows that it has scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.ml.classification import BinaryLogisticRegressionSummary
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
    epochSeconds : list of float
        Of each pass over the data; the rows are read and prepared in the first.
    """

    objectiveHistory: list[float]
    totalIterations: int
    reason: str
    seconds: float
    epochSeconds: list[float]


def evaluation(model: Any, dataset: DataFrame, weight: str | None) -> Any:
    """Score rows and return pyspark.ml's own summary of them; the label -1 counts as 0.

    Parameters
    ----------
    model
        Has the names of its columns as Params; the summary needs those of the label, the prediction
        and the probability.
    weight
        The column of row weights; None for equal ones.
    """
    names = {}
    for name in ("probabilityCol", "predictionCol", "labelCol", "featuresCol"):
        names[name] = model.getOrDefault(name)
        if not names[name]:
            reason = "evaluate() needs this column; give it a name"
            raise InvalidArgument(name=name, value="", reason=reason)
    given = F.col(names["labelCol"]).cast("double")
    refused = F.concat(F.lit(f"column {names['labelCol']!r}: a label is not 0 or 1, but "), given)
    label = (
        F.when(given.isin(0.0, 1.0), given)
        .when(given == -1.0, 0.0)
        .otherwise(F.raise_error(F.coalesce(refused, F.lit("a label is null"))).cast("double"))
    )
    scored = model.transform(dataset).withColumn(names["labelCol"], label)
    gateway: Any = dataset.sparkSession.sparkContext._jvm
    kind = gateway.org.apache.spark.ml.classification.BinaryLogisticRegressionSummaryImpl
    # A column that does not exist stands for equal weights, as in pyspark.ml.
    return BinaryLogisticRegressionSummary(
        kind(scored._jdf, *names.values(), weight or "weightCol")
    )
