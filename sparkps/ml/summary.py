"""What a model says of its training and of rows that it has scored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.ml.classification import BinaryLogisticRegressionSummary
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkps.errors import InvalidArgument

if TYPE_CHECKING:
    from sparkps.ml.fitting import Fitted


class LogisticRegressionTrainingSummary(BinaryLogisticRegressionSummary):
    """How training went; and what pyspark.ml's summary says of the training rows (``areaUnderROC``,
    ``accuracy``, ``predictions`` and so on), which are scored when it is asked for.

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
        Of each pass over the data.
    validationHistory : list of float
        The mean loss of the rows for validation, at the start and after each iteration, or of each
        pass; empty where there are none.
    """

    def __init__(
        self, found: Fitted, evaluate: Callable[[], BinaryLogisticRegressionSummary]
    ) -> None:
        self.objectiveHistory = found.objective
        self.totalIterations = found.iterations
        self.reason = found.reason
        self.seconds = found.seconds
        self.epochSeconds = found.epoch_seconds
        self.validationHistory = found.validation
        self._evaluate: Callable[[], BinaryLogisticRegressionSummary] | None = evaluate
        self._evaluated: BinaryLogisticRegressionSummary | None = None

    @property
    def _java_obj(self) -> Any:
        """What the inherited properties ask."""
        if self._evaluated is None:
            if self._evaluate is None:
                reason = "the training rows did not come along with the model; use evaluate()"
                raise InvalidArgument(name="summary", value=None, reason=reason)
            self._evaluated = self._evaluate()
        return self._evaluated._java_obj

    def __del__(self) -> None:
        """Leave the JVM's object to the evaluation that it belongs to."""

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process has the numbers alone."""
        return self.__dict__ | {"_evaluate": None, "_evaluated": None}

    def __repr__(self) -> str:
        return (
            f"<LogisticRegressionTrainingSummary: {self.totalIterations} iterations, "
            f"{self.seconds:.2f} s, {self.reason}>"
        )


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
