"""Public reports of lost models and foreign names, re-tried: B38 and B39."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.ml.linalg import Vectors

from sparkps import PSContext
from sparkps.errors import PathExists, PSError, ServerLost, SnapshotFailed
from sparkps.ml.classification import LogisticRegression, LogisticRegressionModel

pytestmark = pytest.mark.spark


def test_b38_missing_parents_are_created(ps: PSContext, tmp_path: Path) -> None:
    table = ps.table("b38", replace=True)
    table.push([1, 2], [1.0, 2.0])
    table.save(str(tmp_path / "a" / "b" / "c"))
    rows = ps.spark.read.parquet(str(tmp_path / "a" / "b" / "c")).orderBy("key").collect()
    assert [(row.key, row.value) for row in rows] == [(1, 1.0), (2, 2.0)]


def test_b38_a_model_that_is_there_is_kept_unless_told_otherwise(
    ps: PSContext, tmp_path: Path
) -> None:
    path = str(tmp_path / "model")
    table = ps.table("b38", replace=True)
    table.push([1], [1.0])
    table.save(path)
    table.push([1], [1.0])
    with pytest.raises(PathExists, match="overwrite=True"):
        table.save(path)
    assert ps.load(path, name="b38 kept").pull([1]).tolist() == [1]
    table.save(path, overwrite=True)
    assert ps.load(path, name="b38 new").pull([1]).tolist() == [2]


def test_b38_a_place_that_cannot_be_written_is_an_exception(ps: PSContext, tmp_path: Path) -> None:
    table = ps.table("b38", replace=True)
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(SnapshotFailed, match="file"):
        table.save(str(tmp_path / "file" / "model"))


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


def test_b39_a_table_may_have_any_printable_name_and_any_path(
    ps: PSContext, tmp_path: Path
) -> None:
    table = ps.table("a table/with.dots 表", width=1)
    table.push([7], [1.0])
    path = str(tmp_path / "my modèle" / "第1")
    table.save(path)
    assert ps.load(path, name="b39 again").pull([7]).tolist() == [1]
    with pytest.raises(PSError, match="255 bytes of printable characters"):
        ps.table("two\nlines", width=1)


def test_b38_a_save_that_dies_leaves_the_old_model_whole(ps: PSContext, tmp_path: Path) -> None:
    path = str(tmp_path / "model")
    ps.stop()  # the last test of this file: there is one context at a time
    with PSContext(ps.spark, servers=2, progress=False) as context:
        table = context.table("b38 dies", width=1)
        table.push(range(1000), [1.0] * 1000)
        table.save(path)
        os.kill(context._launcher.pids()["server 1"], signal.SIGKILL)
        with pytest.raises(ServerLost):
            table.save(path, overwrite=True)
        assert context.spark.read.parquet(path).count() == 1000
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
