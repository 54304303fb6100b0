"""An executor whose server holds a table is not idle."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.plugin.application import Application, until
from tests.spark.processes import gone

pytestmark = pytest.mark.spark

IDLE = 3


def test_an_executor_stays_as_long_as_its_server_holds_a_table(tmp_path: Path) -> None:
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": f"{IDLE}s",
    }
    with Application(
        tmp_path, "local-cluster[2,1,1024]", test_holding="1", conf=json.dumps(conf)
    ) as application:
        assert application.answer() == "ready"
        until("two servers", lambda: len(application.children("server")) == 2)
        by_executor = {server["first"]["executor"]: server for server in application.living()}
        assert gone(by_executor["0"]["pid"])
        threading.Event().wait(3 * IDLE)
        assert [server["pid"] for server in application.living()] == [by_executor["1"]["pid"]]
        # It drops its last table: now it may go.
        os.kill(by_executor["1"]["pid"], signal.SIGUSR1)
        assert gone(by_executor["1"]["pid"])
        assert application.events("exited") == []
        assert application.end() == 0
