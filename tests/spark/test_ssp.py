"""What a worker of an ssp run sees, by value, when one of four is slow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext
from sparkps.spark.frames import DriverTable

pytestmark = pytest.mark.spark

WORKERS, CLOCKS, SLOW = 4, 25, 2


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_nobody_leads_by_more_and_every_pull_is_fresh_enough(
    ps: PSContext, make_table: Callable[..., DriverTable], spark: SparkSession, staleness: int
) -> None:
    # Row r counts the clocks of rank r: what a pull returns says which updates it contains.
    done = make_table(dim=WORKERS, partitions=WORKERS, dtype="int64")

    class Step:
        def __init__(self) -> None:
            self.leads: list[int] = []
            self.clocks: list[int] = []
            self.from_cache: list[bool] = []

        def __call__(self, worker: Any, batch: pa.RecordBatch) -> None:
            def pulled() -> float:
                return float(worker.client.core.figures()["pull_bytes"])

            before = pulled()
            seen = done.pull(range(WORKERS))
            self.from_cache.append(pulled() == before)
            self.leads.append(worker.clock - int(seen.min()))
            self.clocks.append(worker.clock)
            done.push([worker.rank], [1])
            if worker.rank == SLOW:
                threading.Event().wait(0.03)

        def finish(self, worker: Any) -> pa.RecordBatch:
            columns = {"clock": self.clocks, "lead": self.leads, "cached": self.from_cache}
            return pa.record_batch({"rank": [worker.rank] * len(self.clocks), **columns})

    history = ps.run(
        spark.range(0, WORKERS * CLOCKS, 1, WORKERS),
        Step(), consistency=f"ssp:{staleness}", workers=WORKERS, batch_rows=1,
    )  # fmt: skip
    assert history.rows is not None
    rows = history.rows.collect()
    assert len(rows) == WORKERS * CLOCKS
    # A pull at clock c contains all updates of clocks <= c - s - 1, which is a lead of at most s.
    assert max(row.lead for row in rows) == staleness
    assert any(row.cached for row in rows) == (staleness > 0)
    assert done.pull().tolist() == [CLOCKS] * WORKERS
