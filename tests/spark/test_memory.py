"""The memory that a worker needs for its rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkps import PSContext, csr
from sparkps.spark.frames import DriverTable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

IDS, DISTINCT, WORKERS = 30, 730_000, 2
#: Flatter than the ids of real data: three of four ids of a batch occur in it once.
SKEW = 1 / 3


def sparse_rows(spark: SparkSession, rows: int) -> DataFrame:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rng = np.random.default_rng(batch.column(0)[0].as_py())
            n = batch.num_rows * IDS
            ids = (DISTINCT * rng.random(n) ** (1 / SKEW)).astype(np.int64) * 999_983
            values = rng.random(n, np.float32)
            offsets = pa.array(np.arange(0, n + 1, IDS, dtype=np.int32))
            lists = [pa.ListArray.from_arrays(offsets, pa.array(a)) for a in (ids, values)]
            yield pa.RecordBatch.from_arrays(lists, names=["ids", "x"])

    return spark.range(0, rows, 1, WORKERS).mapInArrow(make, "ids array<bigint>, x array<float>")


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


class Peak:
    """Watches this process's anonymous memory."""

    def __init__(self) -> None:
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.bytes = max(self.bytes, anonymous_bytes())

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self.bytes


@pytest.mark.timeout(600)
def test_a_worker_needs_at_most_16_bytes_per_nonzero(
    ps: PSContext, make_table: Callable[..., DriverTable], spark: SparkSession
) -> None:
    table = make_table()

    class Prepare:
        def __init__(self) -> None:
            self.peak: Peak | None = None

        def __call__(self, worker: Any, batch: pa.RecordBatch) -> Any:
            if self.peak is None:
                self.peak, self.vocabulary = Peak(), table.vocabulary()
            return csr(batch, "ids", "x", self.vocabulary), self.vocabulary, self.peak

    class Step:
        def start(self, worker: Any) -> None:
            self.most = self.nnz = self.distinct = 0

        def __call__(self, worker: Any, batch: Any) -> None:
            x, vocabulary, self.peak = batch
            margins = x.dot(vocabulary.pull(x.ordinals))
            vocabulary.push(x.ordinals, x.dot_t(margins) / worker.clock_rows)
            self.nnz += x.nnz
            self.distinct += len(x.ordinals)

        def finish(self, worker: Any) -> pa.RecordBatch:
            figures = {"bytes": self.peak.stop(), "nnz": self.nnz, "distinct": self.distinct}
            return pa.record_batch({name: [figure] for name, figure in figures.items()})

    def run(rows: int) -> list[Any]:
        history = ps.run(sparse_rows(spark, rows), Step(), prepare=Prepare(), workers=WORKERS)
        assert history.rows is not None
        return history.rows.collect()

    least = min(row.bytes for row in run(1_000))
    for row in run(1_000_000):
        per_nonzero = (row.bytes - least) / row.nnz
        print(f"{row.nnz} non-zeros, {row.distinct} distinct: {per_nonzero:.2f} B")  # noqa: T201
        assert row.nnz == 15_000_000
        assert row.distinct > 0.7 * row.nnz
        assert per_nonzero <= 16
