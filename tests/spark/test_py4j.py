"""What a run asks of the JVM beyond methods of DataFrames: nothing once its job has started."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import py4j
import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

import sparkps
from sparkps import PSContext
from sparkps.ml.classification import LogisticRegression

pytestmark = pytest.mark.spark

PY4J, SPARKPS = (str(Path(str(package.__file__)).parent) for package in (py4j, sparkps))
CONTEXT = inspect.getfile(SparkContext)


@dataclass(frozen=True)
class Call:
    """One command to the JVM."""

    thread: str
    #: The method; empty if it is not a call of one.
    method: str
    #: Functions of sparkps that asked for more than a method of a DataFrame: of py4j itself or of
    #: the SparkContext.
    beyond: str | None


def beyond(frame: FrameType | None) -> str | None:
    """The function of sparkps that is the first caller outside of py4j and the SparkContext."""
    while frame is not None and frame.f_code.co_filename.startswith((PY4J, CONTEXT)):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.startswith(SPARKPS):
        return None
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"


@pytest.fixture
def calls(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """All commands from now on, but for those of the garbage collector."""
    gateway: Any = SparkContext._gateway
    client = gateway._gateway_client
    send, made = client.send_command, list[Call]()

    def send_command(command: str, *arguments: Any, **more: Any) -> Any:
        kind, *words = command.split("\n")
        if kind != "m":
            method = words[1] if kind == "c" else ""
            name = threading.current_thread().name
            made.append(Call(name, method, beyond(sys._getframe(1))))
        return send(command, *arguments, **more)

    monkeypatch.setattr(client, "send_command", send_command)
    return made


def split(calls: list[Call]) -> tuple[list[Call], list[Call]]:
    """The calls before the job and those since; without what its own thread asks to collect."""
    (start,) = (i for i, call in enumerate(calls) if call.method == "collectToPython")
    job = calls[start].thread
    assert job.endswith("-job")
    return calls[:start], [call for call in calls[start:] if call.thread != job]


def trained(ps: PSContext, **more: Any) -> None:
    table = ps.table("jvm", dim=1, replace=True)

    def step(worker: Any, batch: pa.RecordBatch) -> None:
        table.push([0], [1.0])

    ps.run(ps.spark.range(0, 1000, 1, 4), step, epochs=3, batch_rows=100, **more)


def fitted(ps: PSContext, **more: Any) -> None:
    rows = [(float(i % 2), Vectors.sparse(3, [i % 3], [1.0])) for i in range(60)]
    frame = ps.spark.createDataFrame(rows, ["label", "features"]).coalesce(2)
    LogisticRegression(maxIter=3, numWorkers=2, **more).fit(frame)


@pytest.mark.parametrize(
    "run",
    [
        lambda ps: trained(ps, workers=2),
        lambda ps: trained(ps, workers=2, on_epoch=lambda epoch, metrics: {"epoch": epoch}),
        fitted,
        lambda ps: fitted(ps, solver="ftrl", regParam=0.01),
    ],
    ids=["run", "on_epoch", "lbfgs", "ftrl"],
)
def test_the_driver_asks_the_jvm_nothing_while_the_job_runs(
    ps: PSContext, calls: list[Call], run: Callable[[PSContext], None]
) -> None:
    run(ps)
    before, since = split(calls)
    # The tag of on_epoch's own jobs is taken off when all is over.
    assert {call.beyond for call in since} <= {"run.supervise"}
    assert [call.method for call in since] in ([], ["removeJobTag"])
    asked = {call.beyond.partition(".")[0] for call in before if call.beyond is not None}
    assert asked <= {"plan", "executors", "job", "run"}


def test_before_the_job_rows_to_be_distributed_ask_for_the_task_slots_alone(
    ps: PSContext, calls: list[Call]
) -> None:
    trained(ps, workers=2, distribute=True)
    before, _ = split(calls)
    # The job's thread marks what it starts.
    asked = {call.beyond.partition(".")[0] for call in before if call.beyond is not None}
    assert asked == {"executors", "job"}
