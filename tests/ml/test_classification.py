"""LogisticRegression as a user of pyspark.ml meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml import classification as theirs
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from sparkps import PSContext
from sparkps.errors import InvalidArgument, InvalidInput, WrongType
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel

pytestmark = pytest.mark.spark

A9A = Path(__file__).parents[2] / "jobs/data/a9a"

TRAINING = {"maxIter": 30}


def rows_of(frame: DataFrame) -> list[Row]:
    return frame.select("label", "rawPrediction", "probability", "prediction").collect()


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
    with pytest.raises(WrongType, match=r"int64 feature ids, which fit no vector; model\.weights"):
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
    ("params", "words"),
    [
        ({"family": "multinomial"}, "family='multinomial': only auto and binomial"),
        ({"aggregationDepth": 3}, "aggregationDepth=3: servers add gradients up without a tree"),
        ({"maxBlockSizeInMB": 1.0}, "maxBlockSizeInMB=1.0"),
        ({"lowerBoundsOnIntercepts": Vectors.dense([0.0])}, "lowerBoundsOnIntercepts.*not supp"),
        ({"thresholds": [0.2, 0.3, 0.5]}, "thresholds"),
        ({"solver": "adam", "standardization": True}, "standardization=True: solver adam"),
        ({"solver": "ftrl", "weightCol": "label"}, "weightCol='label': solver ftrl"),
        ({"consistency": "asp"}, "consistency='asp': solver lbfgs needs whole gradients"),
        ({"stepSize": 0.1}, "stepSize=0.1: solver lbfgs"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    frame: DataFrame, params: dict[str, Any], words: str
) -> None:
    with pytest.raises((InvalidArgument, ValueError), match=words):
        LogisticRegression(**params).fit(frame)


def test_the_params_are_those_of_pyspark_ml(ps: PSContext) -> None:
    mine, other = LogisticRegression(), theirs.LogisticRegression()
    ours = {param.name: param for param in mine.params}
    for param in other.params:
        assert ours[param.name].doc == param.doc
        assert mine.hasDefault(param.name) == other.hasDefault(param.name)
        if other.hasDefault(param.name):
            assert mine.getOrDefault(param.name) == other.getOrDefault(param.name)
        setter = f"set{param.name[0].upper()}{param.name[1:]}"
        if hasattr(other, setter):
            assert hasattr(mine, setter)
    added = ours.keys() - {param.name for param in other.params}
    assert added == {
        *("solver", "numWorkers", "batchSize", "stepSize", "consistency", "valuesCol"),
        *("validationIndicatorCol", "validationTol"),
    }
    assert mine.setMaxIter(7).setRegParam(0.5).getMaxIter() == 7


def test_an_unknown_param_is_refused_with_the_nearest(ps: PSContext) -> None:
    with pytest.raises(InvalidArgument, match=r"maxiter=.*did you mean 'maxIter'"):
        LogisticRegression(maxiter=3)


@pytest.mark.parametrize(
    ("param", "value", "words"),
    [
        ("solver", "newton", "one of lbfgs, adagrad, adam, sgd, ftrl"),
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
    with pytest.raises(InvalidInput, match="neither 0 and 1 nor -1 and 1, but 2, 3;"):
        LogisticRegression().fit(frame.withColumn("label", F.col("label") + 2))


def test_a_missing_column_is_named(ps: PSContext, frame: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match=r"featuresCol='nothing'.*label, features"):
        LogisticRegression(featuresCol="nothing").fit(frame)


def test_vectors_of_another_length_are_refused(model: Any, frame: DataFrame) -> None:
    from_other = VectorAssembler(inputCols=["features", "label"], outputCol="longer")
    longer = from_other.transform(frame).select("label", F.col("longer").alias("features"))
    with pytest.raises(Exception, match="the model has 6 features and this row 7"):
        model.transform(longer).collect()


CONFIGURATIONS = [
    {"regParam": 1 / 300, "standardization": False},
    {"regParam": 0.01},
    {},
    {"regParam": 0.02, "elasticNetParam": 0.5},
    {"regParam": 0.02, "elasticNetParam": 1.0, "standardization": False},
    {"regParam": 0.01, "fitIntercept": False},
    {"regParam": 0.01, "weightCol": "weight"},
    {"maxIter": 3},
]


@pytest.fixture(scope="module")
def mixed(ps: PSContext) -> DataFrame:
    """Rows of scales far apart, dense and sparse, a feature that never varies, and weights."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 6)) * [1, 100, 0.01, 1, 1, 0] + [0, 50, 0, 3, 0, 2]
    x[:, 4] *= rng.random(300) < 0.2
    x = x.astype(np.float32).astype(float)  # what a worker keeps of a value
    y = (x @ [1, 0.01, 50, -1, 2, 0] + 2 + rng.logistic(size=300) > 0).astype(float)
    rows = [
        (float(label), Vectors.dense(row) if i % 2 else Vectors.sparse(6, dict(enumerate(row))))
        for i, (label, row) in enumerate(zip(y, x.tolist(), strict=True))
    ]
    made = ps.spark.createDataFrame(rows, ["label", "features"])
    return made.withColumn("weight", F.rand(1) + 0.5).coalesce(3).cache()


@pytest.mark.parametrize("params", CONFIGURATIONS, ids=str)
def test_it_finds_what_pyspark_ml_finds(mixed: DataFrame, params: dict[str, Any]) -> None:
    params = {"maxIter": 8, **params}
    found = LogisticRegression(**params).fit(mixed)
    expected = theirs.LogisticRegression(**params).fit(mixed)
    np.testing.assert_allclose(
        found.coefficients.toArray(), expected.coefficients.toArray(), rtol=1e-6, atol=1e-9
    )
    assert found.intercept == pytest.approx(expected.intercept, rel=1e-6)
    assert found.coefficientMatrix.toArray().shape == expected.coefficientMatrix.toArray().shape
    assert found.interceptVector.size == expected.interceptVector.size
    history = expected.summary.objectiveHistory
    np.testing.assert_allclose(found.summary.objectiveHistory, history, rtol=1e-9)
    assert found.summary.totalIterations == expected.summary.totalIterations


def test_the_metrics_are_those_of_pyspark_ml(mixed: DataFrame) -> None:
    params = {"regParam": 0.01, "weightCol": "weight"}
    ours = LogisticRegression(**params).fit(mixed).evaluate(mixed)
    other = theirs.LogisticRegression(**params).fit(mixed).evaluate(mixed)
    for name in ("accuracy", "areaUnderROC", "weightedPrecision", "weightedRecall",
                 "precisionByLabel", "recallByLabel", "falsePositiveRateByLabel"):  # fmt: skip
        assert getattr(ours, name) == pytest.approx(getattr(other, name), rel=1e-9), name
    assert ours.fMeasureByLabel(0.5) == pytest.approx(other.fMeasureByLabel(0.5))
    for name in ("roc", "pr", "precisionByThreshold", "recallByThreshold", "fMeasureByThreshold"):
        mine, expected = getattr(ours, name), getattr(other, name)
        assert mine.columns == expected.columns
        np.testing.assert_allclose(mine.toPandas(), expected.toPandas(), rtol=1e-9)


def test_one_row_is_scored_as_a_frame_is(model: Any, frame: DataFrame) -> None:
    for row in model.transform(frame).limit(20).collect():
        np.testing.assert_allclose(model.predictRaw(row.features), row.rawPrediction)
        np.testing.assert_allclose(model.predictProbability(row.features), row.probability)
        assert model.predict(row.features) == row.prediction
        assert model.predict(Vectors.dense(row.features.toArray())) == row.prediction
    with pytest.raises(InvalidArgument, match=r"vector=.*size 5.*6 features"):
        model.predict(Vectors.sparse(5, {}))


def test_thresholds_decide_as_in_pyspark_ml(frame: DataFrame) -> None:
    ours = LogisticRegression(maxIter=5, thresholds=[0.3, 0.7]).fit(frame).transform(frame)
    other = theirs.LogisticRegression(maxIter=5, thresholds=[0.3, 0.7]).fit(frame).transform(frame)
    assert [r.prediction for r in rows_of(ours)] == [r.prediction for r in rows_of(other)]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # pyspark leaves its thread pool open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cross_validator_finds_the_same_fold_metrics(mixed: DataFrame) -> None:
    def metrics(estimator: Any) -> list[float]:
        grid = ParamGridBuilder().addGrid(estimator.regParam, [0.001, 0.1]).build()
        evaluator = BinaryClassificationEvaluator()
        search = CrossValidator(
            estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator,
            numFolds=2, parallelism=2, seed=1,
        )  # fmt: skip
        return search.fit(mixed).avgMetrics

    ours = metrics(LogisticRegression(maxIter=3, numWorkers=2))
    assert ours == pytest.approx(metrics(theirs.LogisticRegression(maxIter=3)), rel=1e-9)


def test_b09_labels_may_be_minus_1_and_1(frame: DataFrame, model: Any) -> None:
    signed = frame.withColumn("label", F.col("label") * 2 - 1)
    other = LogisticRegression(**TRAINING).fit(signed)
    np.testing.assert_allclose(other.weights.values, model.weights.values, rtol=1e-12)
    assert other.evaluate(signed).accuracy == model.evaluate(frame).accuracy
    mixed = frame.unionByName(signed)
    for solver in ("lbfgs", "adagrad"):
        with pytest.raises(InvalidInput, match=r"labels are -1 and \d+ are 0; use 0 and 1, or"):
            LogisticRegression(solver=solver, maxIter=1).fit(mixed)


@pytest.mark.parametrize("intercept", [True, False])
def test_b10_rows_of_one_label_give_finite_weights(
    frame: DataFrame, intercept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    positive = frame.where("label = 1")
    fitted = LogisticRegression(maxIter=10, fitIntercept=intercept).fit(positive)
    assert np.isfinite(fitted.weights.values).all()
    assert np.isfinite(fitted.intercept)
    if intercept:
        assert {row.prediction for row in rows_of(fitted.transform(positive))} == {1.0}
    assert ("all labels are 1" in caplog.text) == intercept
