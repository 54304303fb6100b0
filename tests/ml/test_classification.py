"""LogisticRegression as a user of pyspark.ml meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml import classification as theirs
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from sparkps import PSContext
from sparkps.errors import InvalidArgument, InvalidInput
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel

pytestmark = pytest.mark.spark

TRAINING = {"maxIter": 30}


def rows_of(frame: DataFrame) -> list[Row]:
    return frame.select("label", "rawPrediction", "probability", "prediction").collect()


@pytest.fixture(scope="module")
def model(ps: PSContext, frame: DataFrame) -> LogisticRegressionModel:
    return LogisticRegression(**TRAINING).fit(frame)


def test_the_columns_are_those_of_pyspark_ml(model: Any, frame: DataFrame) -> None:
    expected = theirs.LogisticRegression(maxIter=1).fit(frame).transform(frame)
    found = model.transform(frame)
    assert found.dtypes == expected.dtypes
    row = rows_of(found)[0]
    margin = row.rawPrediction[1]
    assert row.rawPrediction[0] == -margin
    assert row.probability[1] == pytest.approx(1 / (1 + np.exp(-margin)))
    assert row.prediction == float(margin > 0)


@pytest.mark.parametrize("solver", ["adagrad", "adam", "sgd", "ftrl"])
@pytest.mark.parametrize("mix", [0.0, 0.5])
def test_every_solver_comes_near_the_optimum_of_pyspark_ml(
    ps: PSContext, frame: DataFrame, solver: str, mix: float
) -> None:
    params = {"regParam": 0.02, "elasticNetParam": mix}
    best = theirs.LogisticRegression(**params, standardization=False).fit(frame)
    ours = LogisticRegression(**params, solver=solver, maxIter=100, tol=0).fit(frame)

    def objective(model: Any) -> float:
        weights = model.coefficients.toArray()
        margins = frame.select("label", "features").collect()
        m = np.array([row.features.dot(weights) + model.intercept for row in margins])
        y = np.array([row.label for row in margins])
        penalty = mix * np.abs(weights).sum() + (1 - mix) / 2 * (weights**2).sum()
        return float(np.mean(np.logaddexp(0, -m * (2 * y - 1))) + 0.02 * penalty)

    assert objective(ours) == pytest.approx(objective(best), rel=0.01)


@pytest.mark.parametrize(
    "columns",
    [
        {"featuresCol": "ids"},
        {"featuresCol": "ids", "valuesCol": "values"},
        {"featuresCol": "pairs"},
    ],
)
def test_ids_values_and_structs_give_the_model_of_the_vector(
    model: Any, frame: DataFrame, columns: dict[str, str]
) -> None:
    other = LogisticRegression(**TRAINING, **columns).fit(frame)
    assert other.weights.keys.tolist() == model.weights.keys.tolist()
    np.testing.assert_allclose(other.weights.values, model.weights.values, rtol=1e-9)
    assert other.numFeatures is None
    with pytest.raises(InvalidArgument, match="int64 feature ids"):
        _ = other.coefficients


def test_bsp_gives_the_same_bits_again(ps: PSContext, frame: DataFrame) -> None:
    estimator = LogisticRegression(maxIter=5, batchSize=32)
    one, other = estimator.fit(frame), estimator.fit(frame)
    assert one.intercept == other.intercept
    assert one.weights.values.tobytes() == other.weights.values.tobytes()


def test_a_fit_leaves_no_table(ps: PSContext, model: Any) -> None:
    assert ps.tables() == []


def test_a_model_scores_the_same_after_being_saved_and_loaded(
    model: Any, frame: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "model")
    model.write().save(path)
    again = LogisticRegressionModel.load(path)
    assert again.uid == model.uid
    assert again.getMaxIter() == TRAINING["maxIter"]
    assert rows_of(again.transform(frame)) == rows_of(model.transform(frame))


def test_an_estimator_is_saved_with_its_params(ps: PSContext, tmp_path: Path) -> None:
    estimator = LogisticRegression(maxIter=3, solver="ftrl", stepSize=0.5)
    estimator.write().save(str(tmp_path / "estimator"))
    again = LogisticRegression.load(str(tmp_path / "estimator"))
    assert again.extractParamMap() == estimator.extractParamMap()


def test_it_stands_in_a_pipeline_and_is_saved_with_it(frame: DataFrame, tmp_path: Path) -> None:
    wide = frame.select("label", *(F.expr(f"double(array_contains(ids, {i}))").alias(f"x{i}")
                                   for i in range(6)))  # fmt: skip
    stages = [
        VectorAssembler(inputCols=[f"x{i}" for i in range(6)], outputCol="features"),
        LogisticRegression(maxIter=3),
    ]
    fitted = Pipeline(stages=stages).fit(wide)
    fitted.write().save(str(tmp_path / "pipeline"))
    again = PipelineModel.load(str(tmp_path / "pipeline"))
    assert rows_of(again.transform(wide)) == rows_of(fitted.transform(wide))


def test_a_copy_takes_other_params(model: Any, frame: DataFrame) -> None:
    strict = model.copy({model.threshold: 1.0})
    assert {row.prediction for row in rows_of(strict.transform(frame))} == {0.0}
    assert model.getThreshold() == 0.5
    estimator = LogisticRegression(maxIter=3)
    assert estimator.copy({estimator.maxIter: 7}).getMaxIter() == 7


@pytest.mark.parametrize(
    ("param", "value"),
    [("standardization", True), ("thresholds", [0.5, 0.5]), ("weightCol", "w"), ("family", "auto")],
)
def test_params_that_are_not_supported_are_refused_by_name(
    ps: PSContext, param: str, value: Any
) -> None:
    with pytest.raises(InvalidArgument, match=f"{param}=.*not supported yet"):
        LogisticRegression(**{param: value})


def test_an_unknown_param_is_refused_with_the_nearest(ps: PSContext) -> None:
    with pytest.raises(InvalidArgument, match=r"maxiter=.*did you mean 'maxIter'"):
        LogisticRegression(maxiter=3)


@pytest.mark.parametrize(
    ("param", "value", "words"),
    [
        ("solver", "lbfgs", "one of adagrad, adam, sgd, ftrl"),
        ("consistency", "ssp", "ssp:<staleness>"),
        ("stepSize", 0.0, "more than 0"),
        ("batchSize", 0, "at least 1"),
        ("regParam", -1.0, "between 0 and inf"),
        ("elasticNetParam", 2.0, "between 0 and 1"),
    ],
)
def test_values_out_of_range_are_refused(
    frame: DataFrame, param: str, value: Any, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        LogisticRegression(**{param: value}).fit(frame)


def test_labels_that_are_not_0_or_1_are_refused(ps: PSContext, frame: DataFrame) -> None:
    with pytest.raises(InvalidInput, match=r"labels of a batch are not 0 or 1, such as [23];"):
        LogisticRegression().fit(frame.withColumn("label", F.col("label") + 2))


def test_a_missing_column_is_named(ps: PSContext, frame: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match=r"column='nothing'.*label, features"):
        LogisticRegression(featuresCol="nothing").fit(frame)


def test_vectors_of_another_length_are_refused(model: Any, frame: DataFrame) -> None:
    from_other = VectorAssembler(inputCols=["features", "label"], outputCol="longer")
    longer = from_other.transform(frame).select("label", F.col("longer").alias("features"))
    with pytest.raises(Exception, match="the model has 6 features and this row 7"):
        model.transform(longer).collect()
