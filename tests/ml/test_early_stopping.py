"""Rows for validation, and models to begin at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.ml import classification as theirs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkps import PSContext
from sparkps.errors import InvalidArgument, InvalidInput, WrongType
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel
from sparkps.ml.scoring import SparseWeights

pytestmark = pytest.mark.spark

SOLVERS = ["lbfgs", "adagrad"]


@pytest.fixture(scope="module")
def noisy(ps: PSContext) -> DataFrame:
    """400 rows of 12 of 300 ids whose labels depend on few of them: training learns the noise."""
    rng = np.random.default_rng(11)
    rows = []
    for i in range(400):
        ids = rng.choice(300, 12, replace=False)
        label = float(rng.random() < 1 / (1 + np.exp(-(ids < 60).sum() + 2)))
        held_out = i % 4 == 0
        # An id that only rows for validation have.
        rows.append((label, [*ids.tolist(), *([1000 + i] if held_out else [])], held_out, i))
    made = ps.spark.createDataFrame(rows, ["label", "features", "held_out", "row"])
    return made.withColumn("weight", F.lit(1.0) + F.col("row") % 3).coalesce(2).cache()


def loss(model: LogisticRegressionModel, frame: DataFrame, weight: str | None = None) -> float:
    rows = frame.collect()
    margins = [model.weights.lookup(np.array(r.features)).sum() + model.intercept for r in rows]
    signs = np.array([2 * row.label - 1 for row in rows])
    weights = [row[weight] if weight else 1.0 for row in rows]
    return float(np.average(np.logaddexp(0, -signs * np.array(margins)), weights=weights))


@pytest.mark.parametrize("weight", [None, "weight"])
def test_it_stops_where_the_validation_loss_was_least(
    ps: PSContext, noisy: DataFrame, weight: str | None
) -> None:
    params: dict[str, Any] = {"maxIter": 50} | ({"weightCol": weight} if weight else {})
    kept, held_out = noisy.where("not held_out"), noisy.where("held_out")
    stopped = LogisticRegression(
        validationIndicatorCol="held_out", validationTol=0.0, **params
    ).fit(noisy)
    summary = stopped.summary
    assert summary.reason == "the validation loss has come to rest"
    assert 0 < summary.totalIterations < 50
    *better, last = summary.validationHistory
    assert better == sorted(better, reverse=True)
    assert last > better[-1]
    assert loss(stopped, held_out, weight) == pytest.approx(better[-1], rel=1e-9)
    params["maxIter"] = summary.totalIterations
    alone = LogisticRegression(**params).fit(kept)
    assert stopped.weights.keys.tolist() == alone.weights.keys.tolist()
    np.testing.assert_allclose(stopped.weights.values, alone.weights.values, rtol=1e-6)
    assert alone.summary.validationHistory == []
    assert stopped.weights.keys.max() < 300


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1"])
def test_batches_hold_no_rows_for_validation(
    ps: PSContext, noisy: DataFrame, consistency: str
) -> None:
    params: dict[str, Any] = {"solver": "adagrad", "batchSize": 32, "consistency": consistency}
    fitted = LogisticRegression(
        maxIter=60, tol=0.0, validationIndicatorCol="held_out", **params
    ).fit(noisy)
    summary = fitted.summary
    assert summary.reason == "the validation loss has come to rest"
    assert len(summary.validationHistory) == summary.totalIterations < 60
    best = min(summary.validationHistory)
    assert fitted.weights.keys.max() < 300
    if consistency == "bsp":
        assert loss(fitted, noisy.where("held_out")) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_tolerance_ends_it_sooner(ps: PSContext, noisy: DataFrame, solver: str) -> None:
    estimator = LogisticRegression(
        solver=solver, validationIndicatorCol="held_out", validationTol=0.5, tol=0.0
    )
    assert len(estimator.fit(noisy).summary.validationHistory) == 2  # nothing halves the loss


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("held_out", "error", "words"),
    [
        ("false", InvalidInput, r"'held'.*true in no row"),
        ("true", InvalidInput, "no rows"),
        ("if(row = 7, null, false)", InvalidInput, r"'held'.*null"),
        ("1", WrongType, r"'held'.*int.*boolean"),
    ],
)
def test_bad_indicators_are_refused(
    ps: PSContext, noisy: DataFrame, solver: str, held_out: str, error: Any, words: str
) -> None:
    frame = noisy.withColumn("held", F.expr(held_out))
    with pytest.raises(error, match=words):
        LogisticRegression(solver=solver, validationIndicatorCol="held").fit(frame)
    with pytest.raises(InvalidArgument, match="nothing"):
        LogisticRegression(solver=solver, validationIndicatorCol="nothing").fit(frame)


def test_the_summary_is_of_the_training_rows_and_of_the_model_as_it_was(
    ps: PSContext, frame: DataFrame
) -> None:
    rows = frame.withColumn("held", F.rand(3) < 0.25).cache()
    fitted = LogisticRegression(validationIndicatorCol="held", validationTol=0.0).fit(rows)
    kept = rows.where("not held")
    accuracy = fitted.evaluate(kept).accuracy
    fitted.setThreshold(0.99).setLabelCol("nothing")
    assert fitted.summary.predictions.count() == kept.count() < rows.count()
    assert fitted.summary.accuracy == pytest.approx(accuracy)


@pytest.mark.parametrize("param", ["labelCol", "weightCol"])
def test_an_indicator_that_is_another_column_is_refused(
    ps: PSContext, noisy: DataFrame, param: str
) -> None:
    estimator = LogisticRegression(validationIndicatorCol="held_out", **{param: "held_out"})
    with pytest.raises(InvalidArgument, match=r"validationIndicatorCol='held_out': this column"):
        estimator.fit(noisy)


def test_a_step_that_cannot_validate_is_refused(ps: PSContext, noisy: DataFrame) -> None:
    with pytest.raises(WrongType, match="validate"):
        ps.run(noisy, lambda worker, batch: None, validation="held_out")


@pytest.mark.parametrize("l1", [0.0, 0.5])
@pytest.mark.parametrize("standardization", [True, False])
def test_training_goes_on_from_an_initial_model(
    ps: PSContext, frame: DataFrame, l1: float, standardization: bool
) -> None:
    params: dict[str, Any] = {
        "regParam": 0.01, "elasticNetParam": l1, "standardization": standardization, "tol": 1e-12,
    }  # fmt: skip
    best = LogisticRegression(maxIter=200, **params).fit(frame)
    few = LogisticRegression(maxIter=3, **params).fit(frame)
    estimator = LogisticRegression(maxIter=1, **params).setInitialModel(few)
    on = estimator.fit(frame).summary.objectiveHistory
    assert on[0] == pytest.approx(few.summary.objectiveHistory[-1], rel=1e-9)
    assert on[1] < on[0]
    again = estimator.copy({estimator.maxIter: 100}).setInitialModel(best).fit(frame)
    assert again.summary.totalIterations <= 3
    np.testing.assert_allclose(again.coefficients.toArray(), best.coefficients.toArray(), atol=1e-6)
    assert again.intercept == pytest.approx(best.intercept, abs=1e-6)
    fresh = estimator.setInitialModel(None).fit(frame).summary.objectiveHistory
    assert fresh[0] > on[0]


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad", "ftrl"])
def test_it_may_be_pyspark_mls(ps: PSContext, frame: DataFrame, solver: str) -> None:
    best = theirs.LogisticRegression(regParam=0.01, standardization=False).fit(frame)
    estimator = LogisticRegression(
        solver=solver, maxIter=1, regParam=0.01,
        **({"standardization": False} if solver == "lbfgs" else {}),
    ).setInitialModel(best)  # fmt: skip
    objective = estimator.fit(frame).summary.objectiveHistory[0]
    assert objective == pytest.approx(best.summary.objectiveHistory[-1], rel=0.01)


def test_what_is_no_initial_model_is_refused(ps: PSContext, frame: DataFrame, model: Any) -> None:
    with pytest.raises(WrongType, match=r"initial model.*DataFrame"):
        LogisticRegression().setInitialModel(frame)
    three = frame.withColumn("label", F.col("label") + (F.rand(1) > 0.5).cast("int"))
    with pytest.raises(WrongType, match="binary"):
        LogisticRegression().setInitialModel(theirs.LogisticRegression().fit(three))
    rows_of_two = theirs.LogisticRegression(family="multinomial", maxIter=1).fit(frame)
    with pytest.raises(WrongType, match="family binomial"):
        LogisticRegression().setInitialModel(rows_of_two)
    ids = LogisticRegressionModel(SparseWeights(np.array([2, 1000]), np.ones(2)), 0.0, None)
    for solver in SOLVERS:
        with pytest.raises(InvalidArgument, match="ids 2 to 1000, and the rows have 6"):
            LogisticRegression(solver=solver).setInitialModel(ids).fit(frame)
    other = LogisticRegressionModel(model.weights, 0.0, 5)
    with pytest.raises(InvalidArgument, match="5 features, and the rows have 6"):
        LogisticRegression().setInitialModel(other).fit(frame)
