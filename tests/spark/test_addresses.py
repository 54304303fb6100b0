"""Servers of a local master that listen to others too."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext

pytestmark = pytest.mark.spark


def step(worker: Any, batch: Any) -> dict[str, int]:
    table = worker.table("t")
    table.push([worker.rank], [batch.num_rows])
    table.pull([worker.rank])
    return {"rows": batch.num_rows}


@pytest.mark.parametrize("security", ["auth", "encrypt"])
def test_tasks_go_by_the_local_sockets_and_need_no_key(spark: SparkSession, security: str) -> None:
    options = {"bind_host": "127.0.0.1", "security": security, "progress": False}
    with PSContext(spark, servers=2, **options) as ps:
        assert ",tcp://127.0.0.1:" in ps._servers.endpoint
        table = ps.table("t", dim=8, dtype="int64")
        summary = ps.run(spark.range(0, 400, 1, 2), step, workers=2, batch_rows=100)
        assert summary[0]["rows"] == 400
        assert table.pull([0, 1]).tolist() == [200, 200]
        assert sum(table.reduce(lambda part: int(part["value"].sum()))) == 400
