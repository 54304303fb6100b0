from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext, init, optim
from sparkps.errors import BrokenModel, InvalidArgument, PathExists, SnapshotFailed, WrongType
from sparkps.spark.frames import DriverTable, local_path

pytestmark = pytest.mark.spark

Make = Callable[..., DriverTable]
KEYS = np.array([5, -7, 2**40, 2**63 - 1, -(2**63), 0])


def trained(make_table: Make, **spec: Any) -> DriverTable:
    table = make_table(optimizer=optim.Adam(lr=0.1), **spec)
    for scale in (1.0, -0.5, 0.25):
        table.push(KEYS[:4], scale * np.ones((4, table.width)).squeeze())
        table.push(KEYS[2:], 2 * scale * np.ones((4, table.width)).squeeze())
    return table


@pytest.mark.parametrize(
    ("spec", "schema"),
    [
        ({}, "struct<key:bigint,value:float>"),
        ({"dtype": "float64"}, "struct<key:bigint,value:double>"),
        ({"width": 3, "init": init.Normal(0.5)}, "struct<key:bigint,value:array<float>>"),
    ],
)
def test_a_frame_holds_the_rows_of_the_table(
    make_table: Make, spec: dict[str, Any], schema: str
) -> None:
    table = trained(make_table, **spec)
    df = table.to_df()
    assert df.schema.simpleString() == schema
    rows = sorted(df.collect())
    keys, values = table.collect()
    assert [row.key for row in rows] == keys.tolist()
    assert np.array_equal(np.array([row.value for row in rows], values.dtype), values)


def test_a_frame_of_counts_is_of_whole_numbers(make_table: Make) -> None:
    table = make_table(dtype="int64")
    table.push([1, 2, 1], [2**53, 1, 1])
    assert sorted(map(tuple, table.to_df().collect())) == [(1, 2**53 + 1), (2, 1)]


def test_a_frame_is_as_of_the_call_and_reads_many_times(make_table: Make) -> None:
    table = make_table(dim=3)
    table.push([0], [1.0])
    df = table.to_df()
    table.push([0, 2], [5.0, 5.0])
    assert sorted(map(tuple, df.collect())) == [(0, 1.0), (1, 0.0), (2, 0.0)]
    assert df.count() == 3
    assert sorted(map(tuple, table.to_df().collect())) == [(0, 6.0), (1, 0.0), (2, 5.0)]


def test_an_empty_table_is_an_empty_frame(make_table: Make) -> None:
    assert make_table().to_df().collect() == []


@pytest.mark.parametrize(
    "spec", [{}, {"width": 4, "init": init.Uniform(-1, 1)}, {"dtype": "float64"}]
)
def test_a_saved_table_comes_back_whole_and_trains_on_the_same(
    ps: PSContext, make_table: Make, tmp_path: Path, spec: dict[str, Any]
) -> None:
    table = trained(make_table, **spec)
    table.save(tmp_path / "model")
    loaded = ps.load(tmp_path / "model", name="loaded")
    fields = range(1 + 3)
    for before, after in zip(table.scan(fields)[1], loaded.scan(fields)[1], strict=True):
        assert np.array_equal(before, after)
    assert np.array_equal(table.scan()[0], loaded.scan()[0])
    for each in (table, loaded):
        each.push(KEYS, np.ones((len(KEYS), table.width)).squeeze())
    assert np.array_equal(table.collect()[1], loaded.collect()[1])
    loaded.drop()


def test_b04_keys_of_64_bits_stay_apart_also_when_saved(
    ps: PSContext, make_table: Make, tmp_path: Path
) -> None:
    table = make_table()
    keys = [2, 2**32 + 2, 2**40 + 7, 2**63 - 1]
    table.push(np.array(keys[:1], np.int32), [1.0])
    table.push(np.array(keys[1:], np.uint64), [2.0, 3.0, 4.0])
    assert table.pull(keys).tolist() == [1.0, 2.0, 3.0, 4.0]
    table.save(tmp_path / "model")
    loaded = ps.load(tmp_path / "model", name="b04")
    assert loaded.pull(keys).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert loaded.count() == 4
    loaded.drop()


def test_spark_opens_a_saved_table_too(
    spark: SparkSession, make_table: Make, tmp_path: Path
) -> None:
    table = trained(make_table)
    table.save(tmp_path / "model")
    df = spark.read.parquet(str(tmp_path / "model"))
    assert df.columns == ["key", "value", "m", "v", "t"]
    assert df.count() == table.count()


def test_a_saved_table_loads_under_its_own_name_when_that_is_free(
    ps: PSContext, make_table: Make, tmp_path: Path
) -> None:
    table = make_table(dim=3)
    table.push([1], [1.0])
    table.save(tmp_path / "model")
    with pytest.raises(InvalidArgument, match="drop that one, or give another name"):
        ps.load(tmp_path / "model")
    table.drop()
    loaded = ps.load(tmp_path / "model")
    assert loaded.name == table.name
    assert loaded.pull().tolist() == [0, 1, 0]


def test_b38_missing_parents_are_made(make_table: Make, tmp_path: Path) -> None:
    make_table().save(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert os.listdir(tmp_path / "a" / "b") == ["c"]


def test_b38_an_existing_directory_is_replaced_only_when_told_to(
    ps: PSContext, make_table: Make, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    table = make_table(dim=1)
    table.save(path)
    table.push([0], [1.0])
    with pytest.raises(PathExists, match="overwrite=True"):
        table.save(path)
    table.save(path, overwrite=True)
    loaded = ps.load(path, name="replaced")
    assert loaded.pull().tolist() == [1.0]
    loaded.drop()
    assert os.listdir(tmp_path) == ["model"]


def test_b38_what_is_no_saved_table_is_never_replaced(make_table: Make, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    for name in ("mine", "file"):
        with pytest.raises(PathExists):
            make_table().save(tmp_path / name, overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_b38_a_place_that_cannot_be_written_is_an_error(make_table: Make) -> None:
    with pytest.raises(SnapshotFailed, match="/proc/nothing"):
        make_table().save("/proc/nothing/here")


def test_b38_a_save_that_fails_leaves_the_old_model_and_nothing_else(
    ps: PSContext, make_table: Make, tmp_path: Path
) -> None:
    table = make_table(dim=1)
    table.save(tmp_path / "model")
    table.drop()
    with pytest.raises(KeyError):
        table.save(tmp_path / "model", overwrite=True)
    assert os.listdir(tmp_path) == ["model"]
    ps.load(tmp_path / "model", name="intact").drop()


def test_b39_any_path_will_do(ps: PSContext, make_table: Make, tmp_path: Path) -> None:
    path = tmp_path / "my modèle" / "第1 100%"
    make_table(dim=2).save(f"file://{quote(str(path))}/")
    loaded = ps.load(path, name="第1 été/a.b")
    assert loaded.pull().tolist() == [0.0, 0.0]
    loaded.drop()


def test_a_directory_that_is_no_whole_model_does_not_load(
    ps: PSContext, make_table: Make, tmp_path: Path
) -> None:
    with pytest.raises(BrokenModel):
        ps.load(tmp_path)
    trained(make_table).save(tmp_path / "model")
    victim = max((tmp_path / "model").glob("*.parquet"), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(BrokenModel, match=victim.name):
        ps.load(tmp_path / "model", name="broken")
    assert "broken" not in [table.name for table in ps.tables()]


@pytest.mark.parametrize("path", ["hdfs://host/x", "s3://bucket/x", "file://elsewhere/x", ""])
def test_only_local_paths_are_taken(path: str) -> None:
    with pytest.raises(InvalidArgument, match="path="):
        local_path(path)


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (None, WrongType, "path is NoneType"),
        (5, WrongType, "path is int"),
        ("", InvalidArgument, "is empty"),
        ("a\0b", InvalidArgument, "zero byte"),
        ("\ud800", InvalidArgument, "UTF-8"),
    ],
)
def test_what_is_no_path_is_refused(path: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        local_path(path)
