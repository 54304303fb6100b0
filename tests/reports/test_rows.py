"""Public reports of wrong rows and uneven partitions: B01, B03, B06, B07, B14, B16, B17."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkps
from sparkps import PSContext, read_libsvm
from sparkps.errors import InvalidInput, InvalidKey, NotEnoughSlots
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel
from tests.reports.conftest import A9A

pytestmark = pytest.mark.spark


def fit(frame: DataFrame, **params: Any) -> LogisticRegressionModel:
    values = "values" if "values" in frame.columns else None
    return LogisticRegression(valuesCol=values, **{"maxIter": 3, **params}).fit(frame)


def margins(model: LogisticRegressionModel, frame: DataFrame) -> np.ndarray:
    found = model.transform(frame).select(vector_to_array("rawPrediction")[1].alias("m"))
    return np.array([row.m for row in found.collect()])


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def same_model(one: LogisticRegressionModel, other: LogisticRegressionModel, tol: float) -> None:
    assert one.weights.keys.tolist() == other.weights.keys.tolist()
    np.testing.assert_allclose(one.weights.values, other.weights.values, rtol=tol, atol=tol)
    assert one.intercept == pytest.approx(other.intercept, rel=tol, abs=tol)


def test_b01_both_bases_score_alike_row_by_row(ps: PSContext) -> None:
    model = fit(read_libsvm(ps.spark, str(A9A / "a9a_train.libsvm.gz")))
    one = margins(model, read_libsvm(ps.spark, str(A9A / "a9a_test01.libsvm.gz")))
    zero = margins(model, read_libsvm(ps.spark, str(A9A / "a9a_test.dummy.gz"), base=0))
    assert len(one) == 16_281
    assert np.array_equal(one, zero)


def test_b01_index_0_in_a_1_based_file_is_refused_with_file_and_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "zero.libsvm", "1 1:1", "0 2:1", "1 0:1 3:1")
    with pytest.raises(PythonException, match=r"zero\.libsvm, line 3: index 0 .* base 0"):
        read_libsvm(spark, path).collect()


def test_b03_an_index_beyond_the_declared_features_is_refused_with_its_line(
    spark: SparkSession,
) -> None:
    frame = read_libsvm(spark, str(A9A / "a9a_train.libsvm.gz"), features=122)
    with pytest.raises(PythonException, match=r"line \d+: index 123 is beyond the 122 features"):
        frame.collect()


def test_b03_a_key_beyond_a_dense_table_fails_before_the_first_push(ps: PSContext) -> None:
    table = ps.table("b03", dim=100, replace=True)
    frame = read_libsvm(ps.spark, str(A9A / "a9a_train.libsvm.gz"))

    def prepare(worker: Any, batch: Any) -> Any:
        return sparkps.csr(batch, "features", "values")

    def step(worker: Any, rows: Any) -> None:
        table.push(rows.keys, np.ones(len(rows.keys)))

    with pytest.raises(InvalidKey, match=r"'b03': key 1\d\d at position \d+ is outside 0\.\.99"):
        ps.run(frame, step, prepare=prepare, workers=1)
    assert not table.pull().any()


def test_b03_an_open_ended_table_takes_any_index(ps: PSContext) -> None:
    model = fit(read_libsvm(ps.spark, str(A9A / "a9a_train.libsvm.gz")), maxIter=1)
    assert model.weights.keys.max() == 122


def test_b06_unsorted_indices_mean_what_sorted_ones_mean(ps: PSContext, tmp_path: Path) -> None:
    mixed = write(tmp_path / "mixed", *["1 7:1 3:2", "0 3:1 3:1 2:1", "1 2:1 1:3"] * 20)
    sorted_ = write(tmp_path / "sorted", *["1 3:2 7:1", "0 2:1 3:1 3:1", "1 1:3 2:1"] * 20)
    frames = [read_libsvm(ps.spark, path) for path in (mixed, sorted_)]
    models = [fit(frame) for frame in frames]
    same_model(*models, tol=1e-6)
    weight = dict(zip(models[0].weights.keys.tolist(), models[0].weights.values, strict=True))
    rows = [{6: 1, 2: 2}, {2: 2, 1: 1}, {1: 1, 0: 3}]  # as the files say, 0-based
    expected = [
        models[0].intercept + sum(weight[key] * value for key, value in row.items()) for row in rows
    ]
    for frame in frames:
        np.testing.assert_allclose(margins(models[0], frame), expected * 20, rtol=1e-12)


def test_b07_an_index_twice_in_a_row_counts_with_its_sum_in_fit_and_in_predict(
    ps: PSContext, tmp_path: Path
) -> None:
    twice = write(tmp_path / "twice", *["1 3:1 3:2", "0 4:1"] * 20)
    once = write(tmp_path / "once", *["1 3:3", "0 4:1"] * 20)
    frames = [read_libsvm(ps.spark, path) for path in (twice, once)]
    models = [fit(frame) for frame in frames]
    same_model(*models, tol=1e-6)
    np.testing.assert_allclose(
        margins(models[0], frames[0]), margins(models[0], frames[1]), rtol=1e-12
    )


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1", "asp"])
def test_b14_more_workers_than_slots_is_an_error_before_any_job(
    ps: PSContext, consistency: str
) -> None:
    def step(worker: Any, batch: Any) -> None:
        raise AssertionError("no task may start")

    with pytest.raises(NotEnoughSlots, match="5 workers were asked for and Spark has 4 task slots"):
        ps.run(ps.spark.range(100), step, workers=5, consistency=consistency)


@pytest.fixture
def a9a(spark: SparkSession) -> DataFrame:
    return read_libsvm(spark, str(A9A / "a9a_train.libsvm.gz"))


def test_b16_empty_partitions_change_nothing(ps: PSContext, a9a: DataFrame) -> None:
    some = a9a.repartition(8).where(F.spark_partition_id() < 3).cache()
    whole = {"batchSize": 40_000}
    same_model(fit(some, **whole), fit(some.coalesce(1), **whole), tol=1e-6)
    some.unpersist()


def test_b16_five_rows_in_sixteen_partitions(ps: PSContext, spark: SparkSession) -> None:
    rows = [(float(i % 2), Vectors.sparse(9, [i], [1.0])) for i in range(5)]
    few = spark.createDataFrame(rows, ["label", "features"])
    same_model(fit(few.repartition(16)), fit(few.coalesce(1)), tol=1e-6)


def test_b16_an_empty_frame_says_no_rows(ps: PSContext, a9a: DataFrame) -> None:
    with pytest.raises(InvalidInput, match="no rows"):
        fit(a9a.limit(0))


@pytest.mark.parametrize("consistency", ["bsp", "ssp:2"])
@pytest.mark.parametrize(("short", "long"), [(1_000, 1_010), (10, 10_000)])
def test_b17_uneven_partitions_end_and_use_every_row_once_per_epoch(
    ps: PSContext, consistency: str, short: int, long: int
) -> None:
    uses = ps.table("b17", dtype="int64", replace=True)
    of_first = ps.spark.range(0, short, 1, 1)
    frame = of_first.union(ps.spark.range(short, short + long, 1, 1))

    def step(worker: Any, batch: Any) -> dict[str, int]:
        ids = batch.column(0).to_numpy()
        uses.push(ids, np.ones(len(ids), np.int64))
        return {"rows": len(ids)}

    history = ps.run(frame, step, epochs=3, consistency=consistency, batch_rows=100, workers=2)
    assert [epoch["rows"] for epoch in history] == [short + long] * 3
    keys, counts = uses.collect()
    assert keys.tolist() == list(range(short + long))
    assert (counts == 3).all()
