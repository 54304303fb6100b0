"""Children that do not start, or do not stay: who is told, and that it comes to an end."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.plugin.application import Application, until
from tests.spark.processes import none_left

pytestmark = pytest.mark.spark


def test_a_missing_python_on_an_executor_is_told_once_and_the_executor_stays(
    tmp_path: Path,
) -> None:
    conf = {
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": "/missing/python",
    }
    with Application(tmp_path, "local-cluster[1,1,1024]", conf=json.dumps(conf)) as application:
        assert application.answer() == "ready"
        ((what, reason, log, tail),) = until("the report", lambda: application.events("failed"))
        assert what.startswith("server 0 on executor 0 (")
        assert 'Cannot run program "/missing/python"' in reason
        assert "Set spark.sparkps.python to a Python that has sparkps installed" in reason
        assert "spark.pyspark.python" in reason
        assert log.endswith("-executor-0-server-0.log")
        assert tail == "  (the log is empty)"
        assert len(application.ask("endpoints")) == 4
        assert application.ask("executors") == 1
        assert application.end() == 0
        assert len(application.events("failed")) == 1
        assert f"{what} is given up: " in application.errors.read_text()


def test_a_server_that_ends_again_and_again_is_given_up(tmp_path: Path) -> None:
    with Application(tmp_path, "local[1]", test_server="ends") as application:
        assert application.answer() == "ready"
        ((what, reason, _, tail),) = until("the report", lambda: application.events("failed"))
        assert what == "server 3 on executor driver (127.0.0.1)"
        assert reason.startswith("it ended again after 3 restarts in its place: exit status 5")
        exited = application.events("exited")
        assert [event[:3] for event in exited] == [[i, 1, "exit status 5"] for i in range(4)]
        assert tail == exited[3][3]
        # A coordinator that ends is told too, and Spark goes on.
        os.kill(application.children("coordinator")[0]["pid"], signal.SIGKILL)
        until(
            "the log",
            lambda: "the coordinator is lost (killed by signal 9" in application.errors.read_text(),
        )
        assert application.end() == 0
        assert none_left(application.process.pid) == []


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("fails", "the coordinator refused it (exit status 4)"),
        ("silent", "it was not up within 5 s (spark.sparkps.start.timeout). It was run as: "),
    ],
)
def test_a_server_that_does_not_come_up_is_told_with_its_reason(
    tmp_path: Path, server: str, told: str
) -> None:
    with Application(tmp_path, "local[1]", test_server=server, start_timeout="5s") as application:
        assert application.answer() == "ready"
        ((_, reason, _, _),) = until("the report", lambda: application.events("failed"))
        assert reason.startswith(told)
        assert application.events("exited") == []
        assert application.end() == 0


@pytest.mark.parametrize(
    ("settings", "sentences"),
    [
        (
            {"python": "/missing/python"},
            [
                'Cannot run program "/missing/python"',
                "/missing/python -m sparkps.coordinator",
                "(/missing/python comes from: spark.sparkps.python)",
            ],
        ),
        (
            {"test_coordinator": "fails"},
            [
                'setting spark.sparkps.heartbeat=0: must be a "positive" time (exit status 3)',
                "begins",
            ],
        ),
        (
            {"test_coordinator": "silent", "start_timeout": "1500ms"},
            ["it did not listen within 1.5 s (spark.sparkps.start.timeout)"],
        ),
        ({"start_timeout": "soon"}, ["setting spark.sparkps.start.timeout='soon': must be a"]),
    ],
)
def test_without_a_coordinator_there_is_no_spark_context(
    tmp_path: Path, settings: dict[str, str], sentences: list[str]
) -> None:
    with Application(tmp_path, "local[1]", **settings) as application:
        assert application.end() == 1
        errors = application.errors.read_text()
        for sentence in sentences:
            assert sentence in errors
        assert none_left(application.process.pid) == []
        assert [path.name for path in application.temporary.glob("sparkps-*")] == []
