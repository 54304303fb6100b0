"""One context for the estimators' tests, and a small separable frame."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from sparkps import PSContext
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel


@pytest.fixture(scope="module")
def ps(spark: SparkSession) -> Iterator[PSContext]:
    with PSContext(spark, servers=2, progress=False) as context:
        yield context


@pytest.fixture(scope="module")
def model(ps: PSContext, frame: DataFrame) -> LogisticRegressionModel:
    return LogisticRegression(maxIter=30).fit(frame)


@pytest.fixture(scope="module")
def frame(ps: PSContext) -> DataFrame:
    """300 rows of 6 binary features: as a vector, as ids with values, and as a struct of them."""
    rng = np.random.default_rng(7)
    truth = np.array([2.0, -1.0, 0.5, 0.0, -2.0, 1.0])
    rows = []
    for _ in range(300):
        ids = np.flatnonzero(rng.random(6) < 0.5)
        label = float(rng.random() < 1 / (1 + np.exp(-truth[ids].sum())))
        keys, ones = ids.tolist(), [1.0] * len(ids)
        rows.append((label, Vectors.sparse(6, keys, ones), keys, ones))
    made = ps.spark.createDataFrame(rows, ["label", "features", "ids", "values"])
    return made.selectExpr("*", "struct(ids, values) AS pairs").coalesce(2).cache()
