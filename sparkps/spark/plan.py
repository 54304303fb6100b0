"""What Spark will run for a training input: how many task slots, how many input partitions, which
rows on which rank.

The driver looks once at the plan, before the job, and never runs a job to find out:

* Task slots are asked of the scheduler (what a barrier stage would be checked against). Where they
  come with executors, and too few are there for the workers that were asked for, it waits a little:
  Spark starts executors while the driver goes on already, and replaces a lost one within seconds.
  Under dynamic allocation it asks for them.
* Input partitions: without adaptive execution their number is free to ask. With an adaptive
  *exchange* (a shuffle whose outcome Spark may reshape) asking would run the shuffle and training
  would run it again, so such an input is repartitioned by the hash of its rows. An exchange whose
  number is fixed by the query (``repartition(n)``, a single partition) is adaptive in name only and
  is trained on as it is. A cached input is asked: that fills the cache at most.
  With ``distribute=True`` and a number of workers it does not matter, and nobody asks.
* More input partitions than workers: ``coalesce``, no shuffle. Fewer: rows are repartitioned by
  their hash, as with ``distribute=True``. Otherwise ranks are the input's own partitions.

Slots, partitions and the size of the input are what only the JVM tells (py4j). All else that the
training path asks of Spark are methods of DataFrames, and the tags of its jobs.

Then the rows of each partition are put in an order that no retry and no timing changes: by a 64-bit
hash of all their columns, seeded by the run's seed (which is the shuffle that SGD wants, too).
Equal rows have equal hashes, so their order does not matter. The hash travels to the task as the
last column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparkps.errors import InvalidArgument, InvalidInput, NotEnoughSlots, WrongType
from sparkps.spark.executors import most_slots, slots_to_come
from sparkps.spark.rows import HASH

#: Spark's estimate of the input's bytes that make one more worker worth its start, by default.
#: Below it a batch
#: costs less than the round trip that a further worker adds to each clock.
SMALL_INPUT_BYTES: Final = 64 * 1024

_FIXED: Final = "REPARTITION_BY_NUM"


@dataclass(frozen=True)
class TrainingInput:
    """The frame that the training stage reads; it has exactly ``workers`` partitions."""

    frame: DataFrame
    workers: int
    slots: int
    input_partitions: int | None
    shuffled: bool


def training_input(
    df: DataFrame,
    *,
    workers: int | None = None,
    seed: int = 0,
    ordered: bool = False,
    distribute: bool = False,
) -> TrainingInput:
    """Plan a run over ``df``.

    Parameters
    ----------
    df
        Any batch DataFrame without map columns.
    workers
        Wanted number of workers; None for the smaller of task slots and input partitions.
    seed
        Seeds the hash that orders the rows.
    ordered
        Leave the order of rows as it comes.
    distribute
        Place the rows on ranks by their hash.

    Raises
    ------
    NotEnoughSlots
        More workers than task slots.
    InvalidInput
        An input that has no partitions, hence no rows.
    InvalidArgument, WrongType
        Bad arguments; map columns, which Spark cannot hash.
    """
    if not isinstance(df, DataFrame):
        raise WrongType(what="df", got=type(df).__name__, expected="a DataFrame")
    if df.isStreaming:
        raise InvalidArgument(
            name="df", value="a stream", reason="ps.run trains on a batch DataFrame"
        )
    if workers is not None and (type(workers) is not int or workers < 1):
        raise InvalidArgument(
            name="workers", value=workers, reason="must be a positive whole number, or None"
        )
    _refuse_maps(df.schema)
    slots = slots_to_come(df.sparkSession, workers or 1)
    if workers is not None and workers > slots:
        raise NotEnoughSlots(asked=workers, slots=slots)
    hashed = _with_hash(df, seed)
    # Rows that are placed by their hash come from any number of partitions.
    placed = distribute and workers is not None
    partitions = None if placed else input_partitions(hashed)
    if partitions == 0:
        raise InvalidInput(where="the training DataFrame", reason="it has no rows")
    if workers is None:
        most = most_slots(df.sparkSession)
        if partitions is not None and not distribute:
            most = min(most, partitions)
        # Fewer may have come than dynamic allocation allows.
        workers = min(_worthwhile(hashed), most)
        slots = slots_to_come(df.sparkSession, workers)
        workers = min(workers, slots)
    shuffled = distribute or partitions is None or partitions < workers
    if shuffled:
        hashed = hashed.repartition(workers, F.col(HASH))
    elif partitions != workers:
        hashed = hashed.coalesce(workers)
    if not ordered:
        hashed = hashed.sortWithinPartitions(HASH)
    return TrainingInput(hashed, workers, slots, partitions, shuffled)


def input_partitions(df: DataFrame) -> int | None:
    """Return the number of partitions of ``df``, or None if it could only be had by running a
    shuffle.
    """
    plan = df.sortWithinPartitions(HASH)._jdf.queryExecution().executedPlan()
    if _name(plan) == "AdaptiveSparkPlanExec":
        initial = plan.initialPlan()
        if _has_exchange(initial):
            return _fixed_partitions(initial)
    return int(plan.execute().getNumPartitions())


def _with_hash(df: DataFrame, seed: int) -> DataFrame:
    if HASH in df.columns:
        raise InvalidArgument(
            name="df", value=HASH, reason="is the name of a column of sparkps itself"
        )
    if not df.columns:
        raise InvalidArgument(name="df", value="DataFrame[]", reason="it has no columns")
    return df.select("*", F.xxhash64(F.lit(seed), F.col("*")).alias(HASH))


def _refuse_maps(schema: StructType) -> None:
    for field in schema.fields:
        if _has_map(field.dataType):
            reason = (
                "Spark cannot hash a map, so its rows could not be put in a fixed order; drop the "
                "column, or turn it into arrays with map_keys and map_values"
            )
            raise InvalidArgument(name="column", value=field.name, reason=reason)


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)


def _worthwhile(df: DataFrame) -> int:
    """How many workers the size of the input is worth, by Spark's own estimate of its bytes."""
    size = int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return max(1, math.ceil(size / SMALL_INPUT_BYTES))


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(i) for i in range(children.size())]


def _has_exchange(plan: Any) -> bool:
    return "Exchange" in _name(plan) or any(_has_exchange(child) for child in _children(plan))


def _fixed_partitions(plan: Any) -> int | None:
    """The number of partitions that adaptive execution cannot change, if the plan has one."""
    name, children = _name(plan), _children(plan)
    if name == "ShuffleExchangeExec":
        number = int(plan.outputPartitioning().numPartitions())
        return number if number == 1 or str(plan.shuffleOrigin().toString()) == _FIXED else None
    # A node with several children may put their partitions together in ways of its own (a union
    # that finds them alike does), so nothing is said about it.
    below = _fixed_partitions(children[0]) if len(children) == 1 else None
    if below is not None and name == "CoalesceExec":
        return min(int(plan.numPartitions()), below)
    return below
