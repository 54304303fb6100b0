"""A public report of foreign names, re-tried with an estimator: B39 (tables: tests/spark)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.ml.linalg import Vectors

from sparkps import PSContext
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel

pytestmark = pytest.mark.spark


def test_b39_names_need_not_be_ascii(ps: PSContext, tmp_path: Path) -> None:
    rows = [(1.0, Vectors.dense([1.0, 0.0])), (0.0, Vectors.dense([0.0, 1.0]))] * 10
    frame = ps.spark.createDataFrame(rows, ["étiquette", "特征 列"])
    estimator = LogisticRegression(
        labelCol="étiquette", featuresCol="特征 列", predictionCol="prédiction", maxIter=5
    )
    model = estimator.fit(frame)
    path = str(tmp_path / "my modèle" / "第1")
    model.write().save(path)
    again = LogisticRegressionModel.load(path)
    for fitted in (model, again):
        found = fitted.transform(frame).select("étiquette", "prédiction").collect()
        assert all(row["étiquette"] == row["prédiction"] for row in found)
