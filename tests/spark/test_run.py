from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkps import PSContext, csr, optim
from sparkps.errors import (
    InvalidArgument,
    InvalidInput,
    NotEnoughSlots,
    NotPicklable,
    PSError,
    SlotsTaken,
    WrongType,
)
from sparkps.spark.frames import DriverTable

pytestmark = pytest.mark.spark

Make = Callable[..., DriverTable]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """1,000 rows of three ids each, in four input partitions."""
    n = F.col("id")
    return spark.range(0, 1000, 1, 4).select(
        n, F.array(n % 7, n % 50, n).alias("ids"), (n % 2).cast("float").alias("label")
    )


def count_into(table: Any) -> Callable[[Any, Any], dict[str, float]]:
    def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
        ids = batch.column("ids").flatten().to_numpy()
        table.push(ids, np.ones(len(ids), np.int64))
        return {"rows": batch.num_rows, "batches": 1}

    return step


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1", "asp"])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_row_is_used_once_per_epoch(
    ps: PSContext, make_table: Make, rows: DataFrame, consistency: str, workers: int
) -> None:
    counts = make_table(dtype="int64")
    history = ps.run(
        rows, count_into(counts), epochs=2, consistency=consistency, workers=workers, batch_rows=64
    )
    assert [epoch["rows"] for epoch in history] == [1000, 1000]
    assert [epoch["epoch"] for epoch in history] == [0, 1]
    assert history.workers == workers
    assert history.rows is None
    keys, values = counts.collect()
    expected = np.bincount([k for i in range(1000) for k in (i % 7, i % 50, i)])
    assert keys.tolist() == list(range(1000))
    assert values.tolist() == (2 * expected).tolist()


def test_prepare_runs_once_per_batch_and_step_gets_what_it_returned(
    ps: PSContext, make_table: Make, rows: DataFrame
) -> None:
    weights = make_table(optimizer=optim.SGD(lr=1.0))
    calls = make_table(dtype="int64", dim=1)

    class Prepare:
        def __init__(self) -> None:
            self.vocabulary: Any = None

        def __call__(self, worker: Any, batch: pa.RecordBatch) -> Any:
            self.vocabulary = self.vocabulary or weights.vocabulary()
            return csr(batch, "ids", vocabulary=self.vocabulary), self.vocabulary

    def step(worker: Any, batch: Any) -> dict[str, float]:
        x, vocabulary = batch
        w = vocabulary.pull(x.ordinals)
        vocabulary.push(x.ordinals, x.dot_t(np.ones(x.rows, np.float32)))
        calls.push([0], [1])
        return {"seen": float(w.sum()), "rows": x.rows}

    history = ps.run(rows, step, prepare=Prepare(), epochs=3, workers=2, batch_rows=100)
    assert [epoch["rows"] for epoch in history] == [1000] * 3
    assert history[0]["seen"] < 0 > history[1]["seen"]
    _, values = weights.collect()
    counts = np.bincount([k for i in range(1000) for k in (i % 7, i % 50, i)])
    assert values.tolist() == (-3.0 * counts).tolist()
    assert calls.pull([0])[0] == 3 * 10


def test_an_object_as_step_sees_start_end_of_epoch_and_finish(
    ps: PSContext, make_table: Make, rows: DataFrame
) -> None:
    class Step:
        def start(self, worker: Any) -> None:
            self.seen = [f"start {worker.rank}/{worker.size}"]

        def __call__(self, worker: Any, batch: pa.RecordBatch) -> None:
            self.seen.append(f"{worker.epoch}:{worker.clock}:{batch.num_rows}")

        def end_epoch(self, worker: Any) -> None:
            self.seen.append("end")

        def finish(self, worker: Any) -> pa.RecordBatch:
            return pa.record_batch({"rank": [worker.rank], "seen": [self.seen]})

    history = ps.run(rows, Step(), epochs=2, workers=2, batch_rows=300)
    assert history.rows is not None
    seen = {row.rank: row.seen for row in history.rows.collect()}
    for rank in (0, 1):
        assert seen[rank] == [
            f"start {rank}/2", "0:0:300", "0:1:200", "end", "1:2:300", "1:3:200", "end",
        ]  # fmt: skip


def test_on_epoch_sees_metrics_reads_and_writes_tables_and_sets_params(
    ps: PSContext, make_table: Make, rows: DataFrame
) -> None:
    table = make_table(dim=1)
    seen: list[tuple[int, float, float]] = []

    def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
        table.push([0], [1.0])
        return {"scale": worker.params.get("scale", 0)}

    def on_epoch(epoch: int, metrics: dict[str, Any]) -> Any:
        assert threading.current_thread() is threading.main_thread()
        seen.append((epoch, metrics["scale"], float(table.pull([0])[0])))
        table.assign([0], [100.0 * (epoch + 1)])
        return "stop" if epoch == 2 else {"scale": epoch + 1}

    history = ps.run(rows, step, epochs=10, workers=2, batch_rows=250, on_epoch=on_epoch)
    assert seen == [(0, 0, 4.0), (1, 4, 104.0), (2, 8, 204.0)]
    assert len(history) == 3
    assert table.pull([0])[0] == 300.0


def test_a_tick_sums_over_all_workers_in_bsp(
    ps: PSContext, make_table: Make, rows: DataFrame
) -> None:
    def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
        sums = worker.tick(rank=worker.rank, one=1)
        return {"rank": sums["rank"], "one": sums["one"]}

    history = ps.run(
        rows, step, workers=3, batch_rows=10_000, clock_every="manual", distribute=True
    )
    # Each rank's own numbers, and what it returned: the sums, 0 + 1 + 2, of three ranks.
    assert history[0]["rank"] == 3 + 3 * 3
    assert history[0]["one"] == 3 + 3 * 3


@pytest.mark.parametrize("consistency", ["bsp", "ssp:2"])
@pytest.mark.parametrize(("first", "second"), [(1000, 1010), (1010, 10)])
def test_b17_a_rank_that_runs_out_of_rows_holds_nobody_back(
    ps: PSContext, spark: SparkSession, first: int, second: int, consistency: str
) -> None:
    uneven = spark.range(0, 2020, 1, 2).filter(
        f"id < {first} or (id >= 1010 and id < 1010 + {second})"
    )

    def clocks(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
        return {"rows": batch.num_rows, f"of {worker.rank}": worker.clock}

    history = ps.run(uneven, clocks, epochs=3, consistency=consistency, workers=2, batch_rows=100)
    assert [epoch["rows"] for epoch in history] == [first + second] * 3
    # Both ranks begin every epoch at the same clock, eleven after the one before.
    for rank, rows in enumerate((first, second)):
        batches = -(-rows // 100)
        begin = [sum(range(11 * epoch, 11 * epoch + batches)) for epoch in range(3)]
        assert [epoch[f"of {rank}"] for epoch in history] == begin


def test_a_workers_own_exception_is_raised_with_sparks_as_its_cause(
    ps: PSContext, rows: DataFrame
) -> None:
    class MyError(LookupError):
        def __init__(self, value: int) -> None:
            super().__init__(value)
            self.value = value

    def step(worker: Any, batch: pa.RecordBatch) -> None:
        if worker.rank == 1:
            raise MyError(42)

    with pytest.raises(LookupError) as caught:
        ps.run(rows, step, workers=2, batch_rows=100)
    assert type(caught.value).__name__ == "MyError"
    assert caught.value.value == 42
    assert isinstance(caught.value.__cause__, PythonException)
    assert ps.run(rows, lambda worker, batch: {"rows": batch.num_rows})[0]["rows"] == 1000


def test_an_exception_in_prepare_is_the_users_too(ps: PSContext, rows: DataFrame) -> None:
    def prepare(worker: Any, batch: pa.RecordBatch) -> Any:
        return csr(batch, "label")

    with pytest.raises(WrongType, match="column 'label'"):
        ps.run(rows, lambda worker, batch: None, prepare=prepare, workers=2)


def test_an_exception_in_on_epoch_ends_the_run(ps: PSContext, rows: DataFrame) -> None:
    def on_epoch(epoch: int, metrics: dict[str, Any]) -> None:
        raise ZeroDivisionError(epoch)

    with pytest.raises(ZeroDivisionError):
        ps.run(rows, lambda worker, batch: None, epochs=3, workers=2, on_epoch=on_epoch)
    with pytest.raises(WrongType, match='"stop", a dict of params, or None'):
        ps.run(rows, lambda worker, batch: None, workers=2, on_epoch=lambda *_: 3)
    assert ps.run(rows, lambda worker, batch: None, workers=4).workers == 4


def test_on_epoch_that_waits_for_its_own_workers_slots_ends_the_run(
    ps: PSContext, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = dataclasses.replace(ps.settings, stall_warn=0.5, stall_fatal=1.5)
    monkeypatch.setattr(ps, "settings", short)
    counts: list[int] = []

    def on_epoch(epoch: int, metrics: dict[str, Any]) -> None:
        counts.append(rows.count())

    with pytest.raises(SlotsTaken, match="Train with fewer workers"):
        ps.run(rows, lambda worker, batch: None, epochs=3, workers=4, on_epoch=on_epoch)
    assert counts == [1000]  # its job went on when the workers had left
    ps.run(rows, lambda worker, batch: None, epochs=2, workers=2, on_epoch=on_epoch)
    assert counts == [1000] * 3


def test_what_spark_cannot_read_is_sparks_own_error(ps: PSContext, rows: DataFrame) -> None:
    def broken(batches: Any) -> Any:
        yield next(iter(batches))
        raise ZeroDivisionError("in the input")

    with pytest.raises(PythonException, match="in the input"):
        ps.run(rows.mapInArrow(broken, rows.schema), lambda worker, batch: None, workers=2)


def test_a_task_that_dies_is_taken_over_where_it_was(
    ps: PSContext, make_table: Make, rows: DataFrame
) -> None:
    table = make_table(dim=1, dtype="int64")

    def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
        table.push([0], [batch.num_rows])
        if worker.attempt == 0 and worker.rank == 1 and worker.clock == 2:
            raise SystemExit(3)
        return {"rows": batch.num_rows, "attempt": worker.attempt}

    history = ps.run(rows, step, epochs=2, workers=2, batch_rows=100)
    assert [epoch["rows"] for epoch in history] == [1000, 1000]
    assert table.pull([0])[0] == 2000
    assert history[1]["attempt"] == 5


def test_b14_more_workers_than_slots_are_an_error_at_once(ps: PSContext, rows: DataFrame) -> None:
    for consistency in ("bsp", "ssp:1", "asp"):
        with pytest.raises(NotEnoughSlots, match="workers=4"):
            ps.run(rows, lambda worker, batch: None, workers=5, consistency=consistency)


def test_b16_an_input_without_rows_is_an_error(ps: PSContext, spark: SparkSession) -> None:
    for empty in (spark.range(0), spark.range(10).filter("id < 0"), spark.range(9).limit(0)):
        with pytest.raises(InvalidInput, match="it has no rows"):
            ps.run(empty, lambda worker, batch: None)


@pytest.mark.parametrize("keep", ["id < 5", "id >= 0", "id % 125 < 40 and id > 600"])
def test_b16_empty_partitions_change_nothing(
    ps: PSContext, make_table: Make, rows: DataFrame, keep: str
) -> None:
    def fitted(df: DataFrame, workers: int) -> tuple[Any, Any]:
        weights = make_table(optimizer=optim.AdaGrad(lr=0.5))

        def step(worker: Any, batch: pa.RecordBatch) -> None:
            x = csr(batch, "ids")
            labels = batch.column("label").to_numpy(zero_copy_only=False)
            error = 1 / (1 + np.exp(-x.dot(weights.pull(x.keys)))) - labels
            weights.push(x.keys, x.dot_t((error / worker.clock_rows).astype(np.float32)))

        ps.run(df, step, epochs=3, workers=workers, batch_rows=1000)
        return weights.collect()

    some = rows.filter(keep)
    keys, values = fitted(some.coalesce(1), 1)
    for spread in (some, some.repartition(16)):
        got, same = fitted(spread, 4)
        assert got.tolist() == keys.tolist()
        np.testing.assert_allclose(same, values, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"batch_rows": -1}, "batch_rows=-1"),
        ({"consistency": "ssp"}, "consistency='ssp'"),
        ({"clock_every": "minute"}, "clock_every="),
        ({"workers": 0}, "workers=0"),
        ({"prepare": 3}, "prepare is int"),
        ({"on_epoch": "stop"}, "on_epoch is str"),
    ],
)
def test_a_bad_argument_is_named_before_anything_runs(
    ps: PSContext, rows: DataFrame, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises((InvalidArgument, WrongType), match=words):
        ps.run(rows, lambda worker, batch: None, **arguments)


def test_a_step_that_holds_the_context_is_refused_and_leaves_no_session(
    ps: PSContext, rows: DataFrame
) -> None:
    def step(worker: Any, batch: pa.RecordBatch) -> None:
        ps.table("t").push([0], [1.0])

    with pytest.raises(NotPicklable, match="use a table handle"):
        ps.run(rows, step)
    assert ps.status()["sessions"] == []


def test_a_step_must_be_callable(ps: PSContext, rows: DataFrame) -> None:
    with pytest.raises(WrongType, match=r"step\(worker, batch\)"):
        ps.run(rows, "step")


def test_runs_in_several_threads_do_not_mix(
    ps: PSContext, make_table: Make, rows: DataFrame
) -> None:
    results: dict[int, Any] = {}

    def fit(i: int) -> None:
        def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
            return {"i": i, "rows": batch.num_rows}

        try:
            results[i] = ps.run(rows, step, epochs=2, workers=2)[1]["rows"]
        except PSError as error:
            results[i] = error

    threads = [threading.Thread(target=fit, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: 1000, 1: 1000, 2: 1000}
