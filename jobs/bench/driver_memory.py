"""Whether training needs more of the driver when there are more features than it could hold.

1,000 rows of 20 ids each are trained on with a driver of 512 MB, once with ids below 20 thousand
and once with ids up to 20 million; a dense vector of those would take 160 MB, and pyspark.ml holds
some thirty. Each is a driver of its own. Prints one JSON object per dimension: the peak memory of
the driver's Python and of its JVM, in MB, and how many weights the model has.

    python jobs/bench/driver_memory.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml.linalg import SparseVector, VectorUDT
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

from sparkps import PSContext
from sparkps.ml.classification import LogisticRegression

ROWS, IDS = 1_000, 20
FEATURES = (20_000, 20_000_000)


def peak_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    return 0


def rows_of(features: int) -> list[tuple[float, SparseVector]]:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(ROWS):
        ids = np.unique(rng.integers(0, features, IDS))
        rows.append((float(rng.random() < 0.5), SparseVector(features, ids, np.ones(len(ids)))))
    return rows


def measure(features: int, memory: str) -> dict[str, Any]:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .getOrCreate()
    )
    kinds = [StructField("label", DoubleType()), StructField("features", VectorUDT())]
    frame = spark.createDataFrame(rows_of(features), StructType(kinds)).coalesce(2)
    with PSContext(spark, servers=2, progress=False):
        fitted = LogisticRegression(maxIter=20, regParam=0.001).fit(frame)
        correct = fitted.transform(frame).where("prediction = label").count()
    java: Any = spark.sparkContext._gateway
    figures = {
        "bench": "driver_memory",
        "features": features,
        "python_peak_mb": peak_mb(os.getpid()),
        "jvm_peak_mb": peak_mb(java.proc.pid),
        "weights": len(fitted.weights),
        "accuracy": correct / ROWS,
    }
    spark.stop()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, help="only this many")
    parser.add_argument("--memory", default="512m", help="of Spark's driver (default 512m)")
    args = parser.parse_args()
    if args.features is not None:
        print(json.dumps(measure(args.features, args.memory)))
        return
    for features in FEATURES:
        command = [sys.executable, __file__, "--features", str(features), "--memory", args.memory]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        print(done.stdout.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
