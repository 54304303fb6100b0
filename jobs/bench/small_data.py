"""``LogisticRegression`` against ``pyspark.ml``'s on small data: a9a, and 100 rows of it.

Both are fitted in turn on the same cached frame; medians of ``--repeat`` fits after three of each
that are not counted. The first fits are those of new JVMs, each with one estimator; ours has the
start of its servers in it. Prints one JSON object per comparison.

    python jobs/bench/small_data.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml import classification as theirs
from pyspark.sql import DataFrame, SparkSession

from sparkps import PSContext
from sparkps.ml.classification import LogisticRegression

A9A = Path(__file__).parents[1] / "data/a9a/a9a_train.libsvm.gz"
WARM_UP = 3


def session() -> SparkSession:
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sparkps.progress", "false")
        .getOrCreate()
    )
    return spark


def a9a(spark: SparkSession) -> DataFrame:
    rows = spark.read.format("libsvm").load(str(A9A), numFeatures="123")
    rows = rows.selectExpr("CAST(label > 0 AS DOUBLE) AS label", "features")
    rows = rows.repartition(2).cache()
    rows.count()
    return rows


def seconds(make: Callable[[], Any]) -> float:
    began = time.perf_counter()
    make()
    return time.perf_counter() - began


def in_turn(frame: DataFrame, repeat: int, **params: Any) -> tuple[float, float]:
    """Median seconds of both."""
    ours, others = LogisticRegression(**params), theirs.LogisticRegression(**params)
    pairs = [
        (seconds(lambda: ours.fit(frame)), seconds(lambda: others.fit(frame)))
        for _ in range(WARM_UP + repeat)
    ]
    mine, its = np.median(pairs[WARM_UP:], axis=0)
    return float(mine), float(its)


def first_fit(whose: str) -> float:
    """Seconds of the first fit in a JVM of its own."""
    command = [sys.executable, __file__, "--first-fit", whose]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def told(case: str, mine: float, its: float) -> None:
    print(
        json.dumps(
            {
                "bench": "small_data", "case": case, "fit_s": round(mine, 3),
                "mllib_fit_s": round(its, 3), "ratio": round(mine / its, 3),
            }
        ),
        flush=True,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="fits that are counted (default 5)")
    parser.add_argument("--new-jvms", type=int, default=3, help="first fits of each (default 3)")
    parser.add_argument("--first-fit", choices=["ours", "mllib"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.first_fit:
        frame = a9a(session())
        kind = LogisticRegression if args.first_fit == "ours" else theirs.LogisticRegression
        print(seconds(lambda: kind().fit(frame)))
        return
    spark = session()
    frame = a9a(spark)
    few = frame.limit(100).coalesce(1).cache()
    few.count()
    with PSContext(spark):
        told("a9a, defaults", *in_turn(frame, args.repeat))
        told("a9a, maxIter=10", *in_turn(frame, args.repeat, maxIter=10))
        told("100 rows", *in_turn(few, args.repeat))
    spark.stop()
    pairs = [(first_fit("ours"), first_fit("mllib")) for _ in range(args.new_jvms)]
    told("a9a, first fit in a new JVM", *np.median(pairs, axis=0).tolist())


if __name__ == "__main__":
    main()
