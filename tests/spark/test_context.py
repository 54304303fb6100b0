from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest
from pyspark.sql import Row, SparkSession

from sparkps import PSContext, init, optim
from sparkps.config import Settings
from sparkps.errors import (
    ContextExists,
    InvalidArgument,
    InvalidSetting,
    NotInRun,
    NotPicklable,
    TableExists,
    TableNotFound,
    WrongType,
)
from sparkps.spark.arguments import context_settings, table_spec

pytestmark = pytest.mark.spark


class FakeSpark:
    """A session as far as settings are read from it."""

    def __init__(self, master: str, core: dict[str, str], later: dict[str, str]) -> None:
        self.sparkContext = self
        self.master = master
        self._core = core
        self._later = later

    def sql(self, text: str) -> FakeSpark:
        assert text == "SET"
        return self

    def collect(self) -> list[Row]:
        return [Row(key=key, value=value) for key, value in (self._core | self._later).items()]

    def getConf(self) -> FakeSpark:
        return self

    def getAll(self) -> list[tuple[str, str]]:
        return list(self._core.items())


def settings(master: str = "local[4]", **options: Any) -> Settings:
    core = {"spark.app.name": "x", "spark.sparkps.heartbeat": "2s", "spark.sparkps.dead": "30s"}
    spark: Any = FakeSpark(master, core, {"spark.sparkps.heartbeat": "3s"})
    return context_settings(spark, options)[0]


def test_options_win_over_the_session_which_wins_over_sparks_start() -> None:
    assert (settings().heartbeat, settings().dead) == (3.0, 30.0)
    assert settings(heartbeat="4s").heartbeat == 4.0
    assert settings(servers=3).servers == 3


def test_what_was_set_after_spark_started_counts(spark: SparkSession) -> None:
    spark.conf.set("spark.sparkps.heartbeat", "3s")
    try:
        assert context_settings(spark, {})[0].heartbeat == 3.0
    finally:
        spark.conf.unset("spark.sparkps.heartbeat")
    assert context_settings(spark, {})[0].heartbeat == Settings().heartbeat


def test_encryption_of_sparks_own_network_is_ours_too() -> None:
    spark: Any = FakeSpark("yarn", {"spark.network.crypto.enabled": "true"}, {})
    assert context_settings(spark, {})[0].security == "encrypt"
    assert context_settings(spark, {"security": "auth"})[0].security == "auth"
    assert settings().security == "auth"


def test_a_setting_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidSetting, match="did you mean 'server_memory'"):
        settings(server_memry="2g")


def test_a_second_context_is_refused_and_get_or_create_gives_the_first(
    spark: SparkSession, ps: PSContext
) -> None:
    with pytest.raises(ContextExists, match="get_or_create"):
        PSContext(spark)
    assert PSContext.get_or_create(spark) is ps
    assert PSContext.get_or_create(spark, servers=2) is ps
    with pytest.raises(InvalidArgument, match="was made with 2; stop it first"):
        PSContext.get_or_create(spark, servers=3)


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_a_context_does_not_pickle(ps: PSContext, pickler: Any) -> None:
    with pytest.raises(NotPicklable, match="use a table handle"):
        pickler.dumps(ps)


def test_the_repr_fits_a_line(ps: PSContext) -> None:
    assert repr(ps).startswith("<PSContext of local-")
    assert len(repr(ps)) < 100


def test_b36_an_absent_key_reads_as_its_first_value_and_an_absent_table_is_an_error(
    ps: PSContext, make_table: Any
) -> None:
    assert make_table(init=0.5).pull([3, 2**50]).tolist() == [0.5, 0.5]
    assert make_table(dim=4, width=2).pull([3]).tolist() == [[0.0, 0.0]]
    with pytest.raises(TableNotFound, match=r"no table 'weights'.*ps.table\('weights', width=1\)"):
        ps.table("weights")


def test_a_bare_name_gives_the_table_that_is_there(ps: PSContext) -> None:
    made = ps.table("weights", width=2)
    assert ps.table("weights").info == made.info
    assert ps.table("weights", width=2).info == made.info
    assert made.info in [table.info for table in ps.tables()]
    with pytest.raises(TableExists, match="width 2 != 3"):
        ps.table("weights", width=3)
    assert ps.table("weights", width=3, replace=True).info.id != made.info.id
    ps.table("weights").drop()


@pytest.mark.parametrize("name", ["a b/c.d", "特征 列", "étiquette", "'\"`"])
def test_b39_any_printable_name_will_do(ps: PSContext, name: str) -> None:
    table = ps.table(name, dim=3)
    table.push([0], [1.0])
    assert ps.table(name).pull([0, 1]).tolist() == [1.0, 0.0]
    table.drop()


@pytest.mark.parametrize("name", ["a\nb", "tab\t", "\x00", "\ud800"])
def test_b39_a_name_that_cannot_be_shown_is_refused(ps: PSContext, name: str) -> None:
    with pytest.raises(InvalidArgument, match="printable"):
        ps.table(name, dim=3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": ""}, "name="),
        ({"width": 0}, "width="),
        ({"width": 1.5}, "width=1.5: must be a whole number"),
        ({"dim": 0}, "dim="),
        ({"dtype": "float16"}, "dtype="),
        ({"dim": 3, "partitions": 4}, "partitions="),
        ({"init": float("nan")}, "init="),
        ({"dtype": "int64", "optimizer": optim.SGD()}, "optimizer="),
        ({"optimizer": optim.FTRL(), "init": 0.5}, "init="),
    ],
)
def test_a_bad_argument_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        table_spec(**{"name": "t", **arguments})


def test_an_optimizer_is_an_object_and_a_name_a_string() -> None:
    with pytest.raises(WrongType, match=r"as AdaGrad\(lr=0.1\)"):
        table_spec("t", optimizer=optim.AdaGrad)
    with pytest.raises(WrongType, match="a table's name is int"):
        table_spec(3)


def test_small_dense_tables_get_fewer_partitions_and_dtypes_have_many_names() -> None:
    assert table_spec("t", dim=1).partitions == 1
    assert table_spec("t", dim=1000).partitions == 64
    assert table_spec("t").partitions == 64
    assert {table_spec("t", dtype=d).dtype for d in ("float64", np.float64, np.dtype("f8"))} == {
        "float64"
    }
    assert table_spec("t", init=init.Normal(0.1)).init.kind == "normal"


def test_status_knows_servers_and_tables(ps: PSContext) -> None:
    status = ps.status()
    assert len(status["servers"]) == 2
    assert "tables" in status


def test_in_a_task_outside_a_run_a_handle_reads_and_does_not_write(
    spark: SparkSession, make_table: Any
) -> None:
    table = make_table(dim=10)
    table.push([3], [2.5])

    def read(batches: Any) -> Any:
        for batch in batches:
            value = float(table.pull([3])[0])
            try:
                table.push([3], [1.0])
                said = "written"
            except NotInRun as error:
                said = str(error)
            yield batch.from_pydict({"value": [value], "said": [said]})

    row = spark.range(1).coalesce(1).mapInArrow(read, "value double, said string").collect()[0]
    assert row.value == 2.5
    assert "ps.run" in row.said
    assert table.pull([3])[0] == 2.5
