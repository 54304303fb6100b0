"""Real failures in Spark's tasks, on the session of all tests; on other masters in
``test_masters.py``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkps import PSContext
from sparkps.errors import NonDeterministicInput, SessionEnded
from sparkps.spark.frames import DriverTable
from tests.spark.processes import EXIT, gone

pytestmark = pytest.mark.spark

Make = Callable[..., DriverTable]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1000, 1, 4)


def ones(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
    return {"rows": batch.num_rows, "again": int(worker.attempt > 0)}


# -- errors that may go away ----------------------------------------------------------------------


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_an_os_error_of_a_step_is_tried_again_and_counts_nothing_twice(
    ps: PSContext, make_table: Make, rows: DataFrame, consistency: str
) -> None:
    table = make_table(dim=1, dtype="int64")

    def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
        table.push([0], [batch.num_rows])
        if worker.rank == 1 and worker.clock == 2 + worker.attempt and worker.attempt < 2:
            raise (ConnectionResetError, FileNotFoundError)[worker.attempt]("gone away")
        return ones(worker, batch)

    history = ps.run(rows, step, epochs=2, workers=2, batch_rows=100, consistency=consistency)
    assert [epoch["rows"] for epoch in history] == [1000, 1000]
    assert history[1]["again"] == 5
    assert table.pull([0])[0] == 2000


def test_an_os_error_that_stays_is_raised_itself_when_spark_gives_up(
    ps: PSContext, rows: DataFrame, tmp_path: Path
) -> None:
    attempts = tmp_path / "attempts"

    def prepare(worker: Any, batch: pa.RecordBatch) -> Any:
        if worker.rank == 0:
            with attempts.open("a") as file:
                file.write(f"{worker.attempt}\n")
            (tmp_path / "no such file").read_text()
        return batch

    with pytest.raises(FileNotFoundError) as caught:
        ps.run(rows, ones, prepare=prepare, workers=2)
    assert caught.value.filename == str(tmp_path / "no such file")
    assert isinstance(caught.value.__cause__, PythonException)
    # As often as spark.task.maxFailures says.
    assert attempts.read_text().split() == ["0", "1", "2", "3"]
    assert ps.run(rows, ones, workers=4)[0]["rows"] == 1000


def test_any_other_error_ends_the_run_at_its_first_attempt(
    ps: PSContext, rows: DataFrame, tmp_path: Path
) -> None:
    attempts = tmp_path / "attempts"

    def step(worker: Any, batch: pa.RecordBatch) -> None:
        with attempts.open("a") as file:
            file.write(f"{worker.attempt}\n")
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        ps.run(rows, step, workers=1)
    assert attempts.read_text().split() == ["0"]


def test_a_worker_that_dies_at_every_attempt_is_sparks_error(
    ps: PSContext, rows: DataFrame
) -> None:
    def step(worker: Any, batch: pa.RecordBatch) -> None:
        if worker.rank == 0 and worker.attempt == 0:
            raise ConnectionResetError("once; another attempt got over it")
        if worker.rank == 0 and worker.clock == 1:
            os._exit(1)

    with pytest.raises(Exception, match="Job aborted due to stage failure") as caught:
        ps.run(rows, step, workers=2, batch_rows=100)
    assert not isinstance(caught.value, OSError)


# -- rows that another attempt cannot read again --------------------------------------------------


def fails_once(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
    if worker.rank == 1 and worker.attempt == 0 and worker.clock == 1:
        os._exit(1)
    return ones(worker, batch)


def test_rows_that_another_attempt_reads_otherwise_end_the_run_at_once(
    ps: PSContext, rows: DataFrame
) -> None:
    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = np.random.default_rng().random(batch.num_rows)
            yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(numbers)], ["id", "x"])

    drawn = rows.mapInArrow(draw, "id long, x double")
    with pytest.raises(NonDeterministicInput, match="rank 1"):
        ps.run(drawn, fails_once, epochs=2, workers=2, batch_rows=100)


def test_sparks_rand_is_the_same_in_another_attempt_unless_it_follows_an_order_that_is_not(
    ps: PSContext, rows: DataFrame
) -> None:
    seeded = rows.select("id", F.rand().alias("x"))
    history = ps.run(seeded, fails_once, epochs=2, workers=2, batch_rows=100)
    assert [epoch["rows"] for epoch in history] == [1000, 1000]

    def turn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in another order each time, as they may come from a shuffle."""
        for batch in batches:
            yield batch.take(pa.array(np.random.default_rng().permutation(batch.num_rows)))

    turned = rows.mapInArrow(turn, rows.schema)
    assert len(ps.run(turned, fails_once, epochs=2, workers=2, batch_rows=100)) == 2
    with pytest.raises(NonDeterministicInput, match="cache or checkpoint"):
        ps.run(
            turned.select("id", F.rand().alias("x")), fails_once,
            epochs=2, workers=2, batch_rows=100,
        )  # fmt: skip


# -- runs that are over ---------------------------------------------------------------------------


def test_b21_three_runs_in_a_session_carry_nothing_over(
    ps: PSContext, make_table: Make, rows: DataFrame
) -> None:
    for _ in range(3):
        table = make_table(dim=1, dtype="int64")

        def step(worker: Any, batch: pa.RecordBatch, table: Any = table) -> dict[str, float]:
            assert "seen" not in worker.state or worker.clock
            worker.state["seen"] = worker.clock
            table.push([0], [batch.num_rows])
            return ones(worker, batch)

        history = ps.run(rows, step, epochs=2, workers=4, batch_rows=100)
        assert [(row["epoch"], row["rows"], row["again"]) for row in history] == [
            (0, 1000, 0), (1, 1000, 0),
        ]  # fmt: skip
        assert table.pull([0])[0] == 2000
        assert ps.status()["sessions"] == []


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_zombies_of_an_interrupted_run_write_no_more(
    ps: PSContext, make_table: Make, rows: DataFrame, tmp_path: Path, consistency: str
) -> None:
    table = make_table(dim=1, dtype="int64")
    told = tmp_path / "told"

    def step(worker: Any, batch: pa.RecordBatch) -> None:
        if worker.epoch == 0 or worker.rank == 0:
            return
        # A long step, which Spark lets go on for 2 s after it has cancelled the job.
        with told.open("a") as file:
            file.write(f"{os.getpid()}\n")
        for _ in range(10**6):
            try:
                table.push([0], [1], wait=True)
            except SessionEnded as error:
                with told.open("a") as file:
                    file.write(f"{os.getpid()} {type(error).__name__}\n")
                raise

    def interrupt(epoch: int, metrics: dict[str, Any]) -> None:
        threading.Thread(target=when_told).start()

    def when_told() -> None:
        deadline = time.monotonic() + EXIT
        while not told.exists() and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ps.run(
            rows, step, epochs=2, workers=2, batch_rows=1000,
            consistency=consistency, on_epoch=interrupt,
        )  # fmt: skip
    after = table.pull([0])[0]
    assert (after == 0) == (consistency == "bsp")
    pid = int(told.read_text().split()[0])
    assert ps.status()["sessions"] == []
    deadline = time.monotonic() + EXIT
    while "SessionEnded" not in told.read_text() and not gone(pid):
        assert time.monotonic() < deadline
    assert table.pull([0])[0] == after
    assert ps.run(rows, ones, workers=4)[0]["rows"] == 1000
    assert table.pull([0])[0] == after
