"""Optima that others have published or computed: a9a and rcv1; and fits at the same time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import classification as theirs
from pyspark.ml.linalg import SparseVector
from pyspark.sql import DataFrame

from sparkps import PSContext, read_libsvm
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel

pytestmark = pytest.mark.spark

A9A = Path(__file__).parents[2] / "jobs/data/a9a/a9a_train.libsvm.gz"
RCV1 = Path(__file__).parents[1] / "data/rcv1_100/rcv1_100.libsvm.gz"


@pytest.fixture(scope="module")
def a9a(ps: PSContext) -> DataFrame:
    rows = ps.spark.read.format("libsvm").load(str(A9A), numFeatures="123")
    return rows.selectExpr("double(label > 0) AS label", "features").coalesce(2).cache()


@pytest.mark.parametrize(
    ("params", "optimum", "apart"),
    [
        # The objective is so flat here that pyspark.ml itself is 6e-4 from its end at tol=1e-9.
        ({"regParam": 1 / 32_561, "standardization": False, "tol": 1e-12}, 10528.5724, 5e-4),
        ({"regParam": 0.001, "elasticNetParam": 0.5, "tol": 1e-9}, None, 1e-6),
    ],
    ids=str,
)
def test_a9a_comes_to_the_optimum_of_pyspark_ml(
    a9a: DataFrame, params: dict[str, Any], optimum: float | None, apart: float
) -> None:
    params = {"maxIter": 1000, **params}
    ours = LogisticRegression(**params).fit(a9a)
    other = theirs.LogisticRegression(**params).fit(a9a)
    objective = ours.summary.objectiveHistory[-1]
    assert objective == pytest.approx(other.summary.objectiveHistory[-1], rel=1e-9)
    if optimum is not None:
        assert objective * 32_561 == pytest.approx(optimum, rel=1e-8)
    np.testing.assert_allclose(
        ours.coefficients.toArray(), other.coefficients.toArray(), atol=apart
    )
    assert ours.intercept == pytest.approx(other.intercept, abs=apart)


def test_a9a_in_as_many_iterations_has_the_weights_of_pyspark_ml(a9a: DataFrame) -> None:
    ours, other = LogisticRegression().fit(a9a), theirs.LogisticRegression().fit(a9a)
    assert ours.summary.totalIterations == other.summary.totalIterations
    np.testing.assert_allclose(ours.coefficients.toArray(), other.coefficients.toArray(), atol=1e-5)


def test_rcv1_has_the_published_optimum(ps: PSContext) -> None:
    rows = read_libsvm(ps.spark, str(RCV1)).coalesce(2)
    fitted = LogisticRegression(
        regParam=0.001, elasticNetParam=1.0, fitIntercept=False, standardization=False,
        maxIter=1000, tol=1e-10, valuesCol="values",
    ).fit(rows)  # fmt: skip
    assert len(fitted.weights) == 47
    magnitude = float(np.abs(fitted.weights.values).sum())
    loss = fitted.summary.objectiveHistory[-1] * 100 - 0.1 * magnitude
    assert loss == pytest.approx(15.8849, abs=0.005)
    assert magnitude == pytest.approx(206.3501, rel=1e-3)


def test_the_training_rows_are_scored_when_the_summary_is_asked(
    ps: PSContext, frame: DataFrame, model: Any
) -> None:
    expected = theirs.LogisticRegression(maxIter=30).fit(frame).summary
    assert model.summary.areaUnderROC == pytest.approx(expected.areaUnderROC, rel=1e-9)
    assert model.summary.accuracy == pytest.approx(expected.accuracy)
    assert model.summary.predictions.count() == frame.count()
    assert model.summary.roc.columns == expected.roc.columns
    assert "iterations" in repr(model.summary)


def test_two_fits_at_once_are_those_alone(ps: PSContext, frame: DataFrame) -> None:
    """Each needs three of four slots, so one waits for the other."""
    estimators = [
        LogisticRegression(maxIter=8, numWorkers=3, regParam=penalty) for penalty in (0.01, 0.1)
    ]
    rows = frame.repartition(3).cache()
    alone = [estimator.fit(rows) for estimator in estimators]
    together: dict[int, LogisticRegressionModel] = {}

    def fit(number: int) -> None:
        together[number] = estimators[number].fit(rows)

    threads = [threading.Thread(target=fit, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    for number, model in enumerate(alone):
        assert together[number].intercept == model.intercept
        assert together[number].weights.values.tobytes() == model.weights.values.tobytes()


def test_vectors_of_20_million_features_are_not_filled_in(ps: PSContext) -> None:
    size = 20_000_000
    rng = np.random.default_rng(0)
    data = []
    for _ in range(100):
        ids = np.sort(rng.choice(size, 20, replace=False))
        data.append((float(rng.random() < 0.5), SparseVector(size, ids, np.ones(20))))
    rows = ps.spark.createDataFrame(data, ["label", "features"]).coalesce(2)
    fitted = LogisticRegression(maxIter=3).fit(rows)
    assert fitted.numFeatures == size
    assert 0 < len(fitted.weights) <= 2000
    assert fitted.transform(rows).where("prediction = label").count() == 100
