"""Real failures on masters that need a session of their own: ``jobs/bench/exactly_once.py`` once
per master, and several workers on one executor.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.processes import none_left

#: Seconds that a driver may take with all it runs, on a machine that does much else.
PATIENCE = 500.0

pytestmark = [pytest.mark.masters, pytest.mark.timeout(PATIENCE + 90)]

JOB = Path(__file__).parents[2] / "jobs/bench/exactly_once.py"

ONE_EXECUTOR = """
import json
from pyspark.sql import SparkSession
from sparkps import PSContext

spark = (
    SparkSession.builder.master("local-cluster[1,4,2048]").config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF").config("spark.driver.host", "127.0.0.1").getOrCreate()
)

def step(worker, batch):
    worker.table("t").push([worker.rank], [batch.num_rows])
    return {"rows": batch.num_rows, "workers": 1}

with PSContext(spark, servers=1, launch="local", progress=False) as ps:
    for _ in range(3):
        table = ps.table("t", dim=4, dtype="int64", replace=True)
        history = ps.run(spark.range(0, 400, 1, 4), step, workers=4, batch_rows=100)
        print(json.dumps([history[0]["rows"], history[0]["workers"], table.pull().tolist()]))
spark.stop()
"""


def output_of(directory: Path, *arguments: str) -> list[Any]:
    """The JSON lines of a driver, which must leave nothing: no process, no file, no memory."""
    shared = set(os.listdir("/dev/shm"))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(directory)}  # noqa: TID251
    driver = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        text=True, env=environment, start_new_session=True, cwd=directory,
    )  # fmt: skip
    try:
        output, errors = driver.communicate(timeout=PATIENCE)
    except BaseException:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        raise
    assert driver.returncode == 0, errors[-4000:] + output
    assert none_left(driver.pid) == []
    assert not [path for path in directory.iterdir() if "sparkps" in path.name]
    assert {name for name in os.listdir("/dev/shm") if "sparkps" in name} <= shared
    return [json.loads(line) for line in output.splitlines() if line[:1] in "[{"]


def scenarios(directory: Path, master: str) -> list[dict[str, Any]]:
    """What the job says of a master, with as few repetitions as show each scenario once."""
    lines = output_of(directory, str(JOB), "--master", master, "--repetitions", "1", "--seeds", "3")
    assert [line["details"] for line in lines] == [[] for _ in lines]
    return [dict(line) for line in lines]


def test_b19_failed_tasks_count_no_row_twice_and_change_no_bit(tmp_path: Path) -> None:
    lines = scenarios(tmp_path, "local[2,4]")
    counts, bits = lines[:6], lines[6:]
    # Both ranks, once each, and the run went on with their second attempts.
    assert [line["failed"] for line in counts] == [2] * 6
    assert [(line["scenario"], line["faults"]) for line in bits] == [("bits", ["killed"])]


def test_b22_killed_executors_and_tasks_count_no_row_twice_and_change_no_bit(
    tmp_path: Path,
) -> None:
    lines = scenarios(tmp_path, "local-cluster[2,1,1024]")
    counts, bits = lines[:6], lines[6:]
    killed = [line for line in counts if line["faults"][0] == "executor"]
    assert [line["shuffle"] for line in killed] == [False, True]
    # What was read through a shuffle was lost with the executor: its stage was started anew.
    assert [line["stages_again"] > 0 for line in killed] == [False, True]
    assert [line["faults"] for line in bits] == [["executor"]]


def test_b19_speculative_copies_count_no_row_twice(tmp_path: Path) -> None:
    *slow, stopped = scenarios(tmp_path, "hosts")
    assert [line["failed"] for line in slow] == [0] * 3
    # Only in asp does a task end so long before the slow one that Spark always starts a copy.
    assert slow[2]["copies"] > 0
    # The copy of a task that has stopped takes its rank over.
    assert (stopped["copies"], stopped["again"] > 0) == (1, True)


def test_b21_four_workers_on_one_executor_three_times(tmp_path: Path) -> None:
    assert output_of(tmp_path, "-c", ONE_EXECUTOR) == [[400, 4, [100] * 4]] * 3
