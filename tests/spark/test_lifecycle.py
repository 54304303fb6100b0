"""Whatever ends the driver or its Spark ends the servers: nothing of them is left. B25, but for a
killed executor, which has no server in local mode."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

#: What the two drivers share: a session, and a word to the test with the pids and the directory.
PROLOGUE = """
import json, sys, threading
from pyspark.sql import SparkSession
from sparkps import PSContext

def session():
    return (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF").config("spark.driver.host", "127.0.0.1").getOrCreate()
    )

def say(what, ps=None, **more):
    if ps:
        launcher = ps._servers.launcher
        more |= {"pids": list(launcher.pids().values()), "dir": launcher.directory}
    print(json.dumps({"what": what, **more}), flush=True)
"""

ENDS = (
    PROLOGUE
    + """
spark = session()
ps = PSContext(spark, servers=2)
say("up", ps)
spark.stop()
launcher = ps._servers.launcher
say("spark stopped", left=[n for n in launcher._children if not launcher.await_exit(n, 30)])
try:
    ps.tables()
except RuntimeError as error:
    say("after that", error=str(error))

try:
    with PSContext(session()) as ps:
        say("up", ps)
        raise LookupError
except LookupError:
    say("error passed", left=ps._servers.launcher.pids())

ps = PSContext(session())
ps.stop()
ps.stop()
say("stopped twice", left=ps._servers.launcher.pids(), repr=repr(ps))
say("up", PSContext(session()))
"""
)

INTERRUPTED = (
    PROLOGUE
    + """
ps = PSContext(session(), servers=2)
table = ps.table("t", dim=1)
rows = ps.spark.range(0, 1000, 1, 2)

def step(worker, batch):
    threading.Event().wait(0.02)
    return {"rows": batch.num_rows}

try:
    ps.run(rows, step, epochs=10**6, workers=2, batch_rows=100, on_epoch=lambda *_: say("epoch"))
except KeyboardInterrupt:
    say("interrupted", sessions=ps.status()["sessions"])
history = ps.run(rows, lambda worker, batch: {"rows": batch.num_rows}, workers=2)
say("up", ps, rows=history[0]["rows"])
sys.stdin.read()
"""
)


class Driver:
    """A driver process that says what it does, one JSON line each."""

    def __init__(self, script: str) -> None:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # noqa: TID251
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment, start_new_session=True,
        )  # fmt: skip

    def hears(self, what: str) -> dict[str, Any]:
        """The next word with that name; words of other names in between are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{") and (word := json.loads(line))["what"] == what:
                return dict(word)
        raise AssertionError(f"the driver ended with {self.process.wait()} before {what!r}")


@pytest.fixture
def start() -> Iterator[Callable[[str], Driver]]:
    drivers: list[Driver] = []

    def begin(script: str) -> Driver:
        drivers.append(Driver(script))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.process.kill()
        driver.process.communicate()


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_after(seconds: float, word: dict[str, Any]) -> list[Any]:
    """The processes and the directory of a context that are still there after some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        left = [pid for pid in word["pids"] if alive(pid)]
        left += [word["dir"]] if Path(word["dir"]).exists() else []
        if not left or time.monotonic() > deadline:
            return left
        threading.Event().wait(0.05)


@pytest.mark.timeout(240)
def test_b25_they_end_with_spark_with_the_block_and_with_the_interpreter(
    start: Callable[[str], Driver],
) -> None:
    driver = start(ENDS)
    first = driver.hears("up")
    assert len(first["pids"]) == 3
    assert driver.hears("spark stopped")["left"] == []
    assert "Spark was stopped" in driver.hears("after that")["error"]
    assert left_after(5, first) == []
    second = driver.hears("up")
    assert driver.hears("error passed")["left"] == {}
    assert left_after(0, second) == []
    assert driver.hears("stopped twice")["repr"] == "<PSContext stopped: stop() was called>"
    last = driver.hears("up")
    assert driver.process.wait(60) == 0
    assert left_after(5, last) == []


@pytest.mark.timeout(240)
def test_b25_they_outlive_an_interrupted_run_and_end_with_a_killed_driver(
    start: Callable[[str], Driver],
) -> None:
    driver = start(INTERRUPTED)
    driver.hears("epoch")
    driver.process.send_signal(signal.SIGINT)
    assert driver.hears("interrupted")["sessions"] == []
    word = driver.hears("up")
    assert word["rows"] == 1000
    assert all(alive(pid) for pid in word["pids"])
    driver.process.send_signal(signal.SIGKILL)
    assert left_after(10, word) == []
