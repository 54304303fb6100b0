"""A server that dies fails the run; its tables are lost until replaced, and all else goes on."""

from __future__ import annotations

import os
import signal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext
from sparkps.errors import ServerLost

pytestmark = pytest.mark.spark


def test_a_lost_server_is_named_and_its_tables_can_be_replaced(spark: SparkSession) -> None:
    rows = spark.range(0, 400, 1, 2)
    with PSContext(spark, servers=2, progress=False) as ps:
        table = ps.table("t", dim=100)

        def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
            worker.table("t").push([worker.rank], [1.0])
            return {"rows": batch.num_rows}

        def kill(epoch: int, metrics: dict[str, Any]) -> None:
            os.kill(ps._servers.launcher.pids()["server 1"], signal.SIGKILL)  # type: ignore[attr-defined]
            table.pull()

        with pytest.raises(ServerLost) as caught:
            ps.run(rows, step, epochs=3, workers=2, batch_rows=50, on_epoch=kill)
        for lost in (caught.value, _error_of(table.pull), _error_of(lambda: ps.table("t"))):
            assert "server 1 is lost (killed by signal 9, SIGKILL)" in str(lost)
            assert "replace=True" in str(lost)
            assert "the tables t," in str(lost)
            assert lost.fields["log"].endswith("server-1.log")
        again = ps.table("t", dim=100, replace=True)
        assert ps.run(rows, step, workers=2, batch_rows=50)[0]["rows"] == 400
        assert again.pull().sum() == 8


def _error_of(call: Any) -> ServerLost:
    with pytest.raises(ServerLost) as caught:
        call()
    return caught.value
