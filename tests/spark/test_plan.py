from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkps.errors import InvalidArgument, InvalidInput, NotEnoughSlots, WrongType
from sparkps.spark.executors import slots_of
from sparkps.spark.plan import training_input
from sparkps.spark.rows import HASH

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def large(spark: SparkSession) -> DataFrame:
    """Large enough, by Spark's estimate, to be worth four workers; in four input partitions."""
    return spark.range(100_000).withColumn("x", F.col("id") * 2)


def jobs(spark: SparkSession) -> int:
    """The number of jobs that have run in no group."""
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def partitions_of(df: DataFrame) -> list[tuple[int, int]]:
    """(partition, id) in the order in which the rows come."""
    rows = df.select(F.spark_partition_id().alias("p"), "id").collect()
    return [(row.p, row.id) for row in rows]


def test_slots_are_what_spark_can_run_at_once(spark: SparkSession) -> None:
    assert slots_of(spark) == 4


@pytest.mark.parametrize(
    ("shape", "workers", "expected"),
    [
        # the input; workers asked for; (workers, input partitions, shuffled)
        (lambda df: df, None, (4, 4, False)),
        (lambda df: df, 2, (2, 4, False)),
        (lambda df: df.coalesce(2), None, (2, 2, False)),
        (lambda df: df.coalesce(2), 4, (4, 2, True)),
        (lambda df: df.repartition(3), None, (3, 3, False)),
        (lambda df: df.repartition(16), None, (4, 16, False)),
        (lambda df: df.repartition(3).filter("id > 5").select("x"), 3, (3, 3, False)),
        (lambda df: df.repartition(5).coalesce(2), None, (2, 2, False)),
        (lambda df: df.repartition(2).union(df.repartition(2)), None, (4, None, True)),
        (lambda df: df.limit(9).union(df.limit(9)), 2, (2, None, True)),
        (lambda df: df.limit(50), 2, (2, 1, True)),
        (lambda df: df.groupBy("x").count(), None, (4, None, True)),
        (lambda df: df.repartition("id"), 3, (3, None, True)),
        (lambda df: df.orderBy("x"), 2, (2, None, True)),
    ],
)
def test_the_plan_alone_decides_how_rows_come_to_ranks(
    spark: SparkSession, large: DataFrame, shape: Any, workers: int | None, expected: Any
) -> None:
    before = jobs(spark)
    plan = training_input(shape(large), workers=workers)
    assert (plan.workers, plan.input_partitions, plan.shuffled) == expected
    assert jobs(spark) == before
    assert plan.frame.rdd.getNumPartitions() == plan.workers


def test_a_union_has_as_many_partitions_as_spark_makes_of_it(large: DataFrame) -> None:
    # Of two single partitions Spark 4.3 makes one and Spark 3.5 two.
    union = large.coalesce(1).union(large.coalesce(1))
    partitions = union.rdd.getNumPartitions()
    plan = training_input(union, workers=2)
    assert (plan.input_partitions, plan.shuffled) == (partitions, partitions < 2)
    assert plan.frame.rdd.getNumPartitions() == 2


def test_distribute_places_rows_by_their_hash_however_they_come(spark: SparkSession) -> None:
    rows = spark.range(2000)
    one = training_input(rows, workers=3, distribute=True)
    other = training_input(rows.coalesce(2).orderBy(F.desc("id")), workers=3, distribute=True)
    assert one.shuffled
    assert one.input_partitions is None  # it does not matter, and is not looked at
    assert partitions_of(one.frame) == partitions_of(other.frame)


def test_a_cached_input_is_trained_on_as_it_lies(large: DataFrame) -> None:
    cached = large.repartition(3).cache()
    try:
        assert training_input(cached).input_partitions == 3
    finally:
        cached.unpersist()


def test_a_small_input_gets_few_workers_unless_more_are_asked_for(spark: SparkSession) -> None:
    assert training_input(spark.range(10)).workers == 1
    assert training_input(spark.range(10), workers=4).workers == 4


def test_rows_are_ordered_by_a_hash_of_all_columns_that_depends_on_the_seed(
    spark: SparkSession,
) -> None:
    ids = spark.range(0, 2000, 1, 4)

    def rows(seed: int, df: DataFrame = ids) -> list[tuple[int, int]]:
        return partitions_of(training_input(df, workers=4, seed=seed).frame)

    assert rows(1) == rows(1, ids.sortWithinPartitions(F.desc("id")))
    assert rows(1) != rows(2)
    assert sorted(rows(1)) == sorted(rows(2)) != rows(1)


def test_ordered_leaves_the_order_and_still_sends_the_hash(large: DataFrame) -> None:
    plan = training_input(large, ordered=True)
    assert [row.id for row in plan.frame.collect()] == list(range(100_000))
    assert plan.frame.columns[-1] == HASH


def test_arrays_structs_vectors_and_odd_names_can_be_hashed(spark: SparkSession) -> None:
    df = spark.createDataFrame([([1, 2], (1, "a"), Vectors.sparse(3, [1], [2.0]))])
    named = df.toDF("特征 列", "a.b", "é`t")
    twice = named.select("*", F.col("`特征 列`"))
    assert training_input(twice).frame.count() == 1


@pytest.mark.parametrize(
    "kind", ["map<int,int>", "array<map<int,int>>", "struct<a:int,b:map<int,int>>"]
)
def test_maps_are_refused_by_name(spark: SparkSession, kind: str) -> None:
    with pytest.raises(InvalidArgument, match=r"'m'.*map_keys"):
        training_input(spark.createDataFrame([], f"id int, m {kind}"))


def test_more_workers_than_slots_are_refused_before_any_job(
    spark: SparkSession, large: DataFrame
) -> None:
    before = jobs(spark)
    with pytest.raises(NotEnoughSlots, match="5 workers were asked for and Spark has 4 task slots"):
        training_input(large, workers=5)
    assert jobs(spark) == before


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2"])
def test_workers_must_be_a_positive_number(large: DataFrame, workers: Any) -> None:
    with pytest.raises(InvalidArgument, match="workers="):
        training_input(large, workers=workers)


def test_inputs_that_cannot_be_trained_on_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it has no rows"):
        training_input(spark.createDataFrame(spark.sparkContext.emptyRDD(), "a int"))
    with pytest.raises(InvalidArgument, match="a batch DataFrame"):
        training_input(spark.readStream.format("rate").load())
    with pytest.raises(InvalidArgument, match="it has no columns"):
        training_input(spark.range(3).select())
    with pytest.raises(InvalidArgument, match="a column of sparkps itself"):
        training_input(spark.range(3).withColumnRenamed("id", HASH))


@pytest.mark.parametrize("df", [None, 5, "df", [1]])
def test_what_is_no_dataframe_is_refused(df: Any) -> None:
    with pytest.raises(WrongType, match=r"df is .*; a DataFrame is needed"):
        training_input(df)
