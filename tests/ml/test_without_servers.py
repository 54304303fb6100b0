"""A model stands on its own: it outlives its servers, its estimator and its application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import SparkSession

from sparkps import PSContext
from sparkps.ml.classification import LogisticRegression

pytestmark = pytest.mark.spark

SCORE = """
import json, sys
from pyspark.sql import SparkSession
from sparkps.ml.classification import LogisticRegressionModel

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF").getOrCreate()
)
model = LogisticRegressionModel.load(sys.argv[1])
rows = model.transform(spark.read.parquet(sys.argv[2])).orderBy("row").select("probability")
print(json.dumps([row.probability.tolist() for row in rows.collect()]))
spark.stop()
"""


def loads_come_to(context: PSContext, expected: dict[str, float]) -> bool:
    """Whether the servers say so, with the next heartbeats."""
    deadline, pause = time.monotonic() + 20, threading.Event()
    while time.monotonic() < deadline:
        loads = [server["load"] for server in context.status()["servers"]]
        if all(load and load | expected == load for load in loads):
            return True
        pause.wait(0.1)
    return False


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # pyspark leaves its thread pool open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_model_outlives_its_servers_its_estimator_and_its_application(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Twelve fits of a cross validation leave no row on any server; a lazy frame of the best model
    is evaluated after another fit, after ps.stop(), and in another application."""
    path = str(tmp_path / "rows.parquet")
    rng = np.random.default_rng(5)
    made = [(float(x[0] + rng.normal() > 0), Vectors.dense(x), i)
            for i, x in enumerate(rng.normal(size=(200, 4)))]  # fmt: skip
    spark.createDataFrame(made, ["label", "features", "row"]).write.parquet(path)
    rows = spark.read.parquet(path).coalesce(2).cache()
    with PSContext(spark, servers=2, progress=False) as context:
        estimator = LogisticRegression(maxIter=2, numWorkers=2)
        grid = ParamGridBuilder().addGrid(estimator.regParam, [0.0, 0.01, 0.1, 1.0]).build()
        search = CrossValidator(
            estimator=estimator, estimatorParamMaps=grid, parallelism=2, numFolds=3, seed=1,
            evaluator=BinaryClassificationEvaluator(),
        )  # fmt: skip
        best: Any = search.fit(rows).bestModel
        assert context.tables() == []
        assert loads_come_to(context, {"tables": 0, "bytes": 0})
        scored = best.transform(rows).orderBy("row").select("probability")
        first = [row.probability.tolist() for row in scored.collect()]
        lazy = best.transform(rows).orderBy("row").select("probability")
        LogisticRegression(regParam=5.0).fit(rows)
        assert [row.probability.tolist() for row in lazy.collect()] == first
    assert [row.probability.tolist() for row in lazy.collect()] == first
    best.write().save(str(tmp_path / "model"))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # noqa: TID251
    done = subprocess.run(
        [sys.executable, "-c", SCORE, str(tmp_path / "model"), path],
        check=True, capture_output=True, text=True, env=environment, timeout=100,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == first
