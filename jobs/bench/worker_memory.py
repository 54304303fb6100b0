"""What a training worker's rows cost in memory: peak anonymous bytes per non-zero.

Rows of 30 ids (``array<bigint>``) and values (``array<float>``) go through ``sparkps.csr`` and a
vocabulary, and are trained on for two epochs by two workers. The peak of each worker's anonymous
memory, less that of a run over 1,000 rows, is divided by its non-zeros. Prints one JSON object.

    python jobs/bench/worker_memory.py --nonzeros 30000000
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparkps import PSContext, csr

IDS, WORKERS = 30, 2


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


class Peak:
    """Watches this process's anonymous memory until the rank has finished."""

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


def rows_of(spark: SparkSession, rows: int, distinct: int) -> DataFrame:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rng = np.random.default_rng(batch.column(0)[0].as_py())
            n = batch.num_rows * IDS
            ids = (distinct * rng.random(n) ** 3).astype(np.int64) * 999_983
            offsets = pa.array(np.arange(0, n + 1, IDS, dtype=np.int32))
            columns = (pa.array(ids), pa.array(rng.random(n, np.float32)))
            lists = [pa.ListArray.from_arrays(offsets, column) for column in columns]
            yield pa.RecordBatch.from_arrays(lists, names=["ids", "x"])

    return spark.range(0, rows, 1, WORKERS).mapInArrow(make, "ids array<bigint>, x array<float>")


class Training:
    """``prepare`` and ``step`` in one object, which each task has a copy of."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def prepare(self, worker: Any, batch: pa.RecordBatch) -> Any:
        if not worker.state:
            worker.state = {"watched": True}
            worker.peak, worker.vocabulary = Peak(), self.table.vocabulary()
        return csr(batch, "ids", "x", worker.vocabulary)

    def __call__(self, worker: Any, rows: Any) -> None:
        margins = rows.dot(worker.vocabulary.pull(rows.ordinals))
        worker.vocabulary.push(rows.ordinals, rows.dot_t(margins) / worker.clock_rows)

    def finish(self, worker: Any) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"peak": [worker.peak.stop()]})


def peak_of(ps: PSContext, rows: int, distinct: int) -> int:
    table = ps.table("rows", width=1, replace=True)
    training = Training(table)
    frame = rows_of(ps.spark, rows, distinct)
    history = ps.run(frame, training, prepare=training.prepare, epochs=2, workers=WORKERS)
    peaks = [row.peak for row in history.rows.collect()]
    table.drop()
    return max(peaks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nonzeros", type=int, default=30_000_000)
    parser.add_argument("--distinct", type=int, default=730_000, help="distinct ids")
    args = parser.parse_args()
    spark = (
        SparkSession.builder.master(f"local[{WORKERS}]")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    with PSContext(spark, servers=1) as ps:
        idle = peak_of(ps, 1_000, args.distinct)
        full = peak_of(ps, args.nonzeros // IDS, args.distinct)
    spark.stop()
    per_nonzero = (full - idle) / (args.nonzeros / WORKERS)
    result = {"bench": "worker_memory", "nonzeros": args.nonzeros, "distinct": args.distinct}
    print(json.dumps(result | {"bytes_per_nonzero": round(per_nonzero, 2)}))


if __name__ == "__main__":
    main()
