"""Public reports of models: bad numbers in the rows (B08), and labels of another kind (B11)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkps import PSContext, read_libsvm
from sparkps.errors import InvalidInput
from sparkps.ml.classification import LogisticRegression
from tests.reports.conftest import A9A

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def a9a(spark: SparkSession) -> Iterator[DataFrame]:
    rows = read_libsvm(spark, str(A9A / "a9a_train.libsvm.gz"))
    rows = rows.limit(3000).withColumn("row", F.monotonically_increasing_id()).coalesce(2).cache()
    yield rows
    rows.unpersist()


SPOILED = {
    "a NaN value": ("values", "transform(values, v -> double('NaN'))", r"'values', row \d+.*1 of"),
    "an infinity": ("values", "transform(values, v -> double('inf'))", r"'values', row \d+.*1 of"),
    "a NaN label": ("label", "double('NaN')", r"'label', row \d+.*1 of \d+ labels.*null or NaN"),
    "no label": ("label", "double(null)", r"'label', row \d+.*1 of \d+ labels.*null or NaN"),
    "no features": ("features", "CAST(null AS array<bigint>)", r"'features', row \d+.*1 of.*null"),
}


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
@pytest.mark.parametrize("what", SPOILED)
def test_b08_one_bad_number_is_refused_with_its_row(
    ps: PSContext, a9a: DataFrame, solver: str, what: str
) -> None:
    column, expression, words = SPOILED[what]
    bad = a9a.withColumn(column, F.expr(f"if(row = 1000, {expression}, {column})"))
    with pytest.raises(InvalidInput, match=words):
        LogisticRegression(solver=solver, maxIter=2, valuesCol="values").fit(bad)
    assert ps.tables() == []


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
def test_b11_labels_of_another_kind_are_named(ps: PSContext, a9a: DataFrame, solver: str) -> None:
    rings = a9a.withColumn("label", (F.col("row") % 29 + 1).cast("double"))
    words = r"'label', row \d+ of its batch: \d+ of \d+ labels.*but 2, 3, 4, 5, 6, \.\.\.; map them"
    with pytest.raises(InvalidInput, match=words):
        LogisticRegression(solver=solver, maxIter=2).fit(rings)
