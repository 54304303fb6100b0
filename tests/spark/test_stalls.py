"""Workers that stop without ending: named, waited for, or given up."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkps import PSContext
from sparkps.errors import WorkerStalled
from tests.spark.processes import gone

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1000, 1, 4)


def ones(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
    return {"rows": batch.num_rows, "again": int(worker.attempt > 0)}


def stops(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
    if (worker.rank, worker.epoch, worker.attempt) == (1, 1, 0) and "stopped" not in worker.state:
        worker.state["stopped"] = True
        os.kill(os.getpid(), signal.SIGSTOP)
    return ones(worker, batch)


@contextmanager
def warnings_to(heard: Callable[[str], None]) -> Iterator[None]:
    """Pass the warnings of runs on, in the thread that runs them."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard(record.getMessage())

    handler, logger = Handler(), logging.getLogger("sparkps.run")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


def pid_of(warning: str) -> int:
    found = re.search(r"\(pid (\d+)\)", warning)
    assert found is not None
    return int(found[1])


def test_b18_a_stopped_worker_is_named_holds_the_others_at_the_bound_and_may_go_on(
    spark: SparkSession, rows: DataFrame
) -> None:
    heard: list[str] = []
    clocks: list[list[int]] = []

    def wake(warning: str) -> None:
        heard.append(warning)
        clocks.extend(session["clocks"] for session in ps.status()["sessions"])
        os.kill(pid_of(warning), signal.SIGCONT)

    with PSContext(spark, servers=1, progress=False, stall_warn=1.0) as ps, warnings_to(wake):
        history = ps.run(rows, stops, epochs=4, workers=4, batch_rows=25, consistency="ssp:2")
    assert [epoch["rows"] for epoch in history] == [1000] * 4
    assert sum(epoch["again"] for epoch in history) == 0
    (warning,) = heard
    assert re.match(r"rank 1 on .* has been at clock (8|9|10) for \d+ s and holds the", warning)
    # It had ended the ten clocks of an epoch; of the last ones it may not have told yet. Who has
    # ended three more than it leads by more than two, and waits.
    ((_, slowest, *_),) = clocks
    assert clocks == [[slowest + 3, slowest, slowest + 3, slowest + 3]]


def test_b18_a_worker_that_stays_stopped_ends_the_run_by_name_and_leaves_its_slot(
    spark: SparkSession, rows: DataFrame
) -> None:
    with PSContext(spark, servers=1, progress=False, stall_warn=0.5, stall_fatal=1.0) as ps:
        with pytest.raises(WorkerStalled, match=r"rank 1 .* at clock (8|9|10) ") as caught:
            ps.run(rows, stops, epochs=4, workers=4, batch_rows=25, consistency="ssp:2")
        assert gone(caught.value.fields["pid"])
        assert ps.run(rows, ones, workers=4)[0]["rows"] == 1000
