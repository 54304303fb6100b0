"""``LogisticRegression`` against ``pyspark.ml``'s and scikit-learn's ``SGDClassifier``.

Rows of ids with the value 1 are drawn once, written as libsvm, and read by Spark into one cached
frame, on which both estimators are fitted in turn for 10 iterations; an objective that is worse
than pyspark.ml's is an error. Medians of ``--repeat`` fits after one of each that is not counted.
The JVM collects its garbage before each fit, so that none pays for what the other left behind. Then
the epochs of solver ``adagrad`` are set against those of ``SGDClassifier`` on the same rows.

``--skew hot`` draws from about 30 thousand ids, 5 thousand of which occur in 4,096 rows; ``flat``
from a million, 57 thousand of which do. Prints one JSON object.

    python jobs/bench/logistic_regression.py --features 16777216 --skew flat
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml import classification as theirs
from pyspark.sql import DataFrame, SparkSession
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier

from sparkps import PSContext
from sparkps.ml.classification import LogisticRegression

WORKERS = 2
ITERATIONS = 10
EPOCHS = 6


@dataclasses.dataclass(frozen=True)
class Skew:
    """How ids are drawn: ``share`` of them evenly from ``ids``, the others from the first ``head``,
    id r with a probability like 1 / r."""

    ids: int
    share: float
    head: int


SKEWS = {"hot": Skew(30_000, 0.03, 2_000), "flat": Skew(1 << 20, 0.43, 10_000)}


def rows_of(
    skew: Skew, features: int, rows: int, per_row: int, seed: int
) -> tuple[csr_matrix, np.ndarray]:
    """Rows whose values are all 1, and labels by a logistic model with random weights."""
    rng = np.random.default_rng(seed)
    count = rows * per_row
    even = rng.integers(0, skew.ids, count)
    ranked = np.where(rng.random(count) < skew.share, even, skew.head ** rng.random(count) - 1)
    places = rng.permutation(features)[: skew.ids]  # an id says nothing of how often it occurs
    indptr = np.arange(0, count + 1, per_row)
    x = csr_matrix((np.ones(count), places[ranked.astype(np.int64)], indptr), (rows, features))
    x.sum_duplicates()
    x.data[:] = 1
    margins = x @ rng.normal(0, 0.4, features) + rng.logistic(size=rows)
    return x, (margins > 0).astype(float)


def write_libsvm(path: Path, x: csr_matrix, y: np.ndarray) -> None:
    with path.open("w") as file:
        for row, label in enumerate(y):
            ids = x.indices[x.indptr[row] : x.indptr[row + 1]]
            file.write(f"{label:g} " + ":1 ".join(map(str, ids + 1)) + ":1\n")


def fitted(estimator: Any, frame: DataFrame) -> tuple[float, Any]:
    """Seconds of a fit in a JVM without garbage, and the model."""
    java: Any = frame.sparkSession.sparkContext._jvm
    java.System.gc()
    return timed(lambda: estimator.fit(frame))


def timed(make: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    made = make()
    return time.perf_counter() - began, made


def sklearn_seconds(x: csr_matrix, y: np.ndarray) -> float:
    """Seconds of one epoch: of ``EPOCHS`` less those of one, which has the set-up in it."""

    def fit(epochs: int) -> float:
        model = SGDClassifier(loss="log_loss", alpha=0, learning_rate="constant", eta0=0.01,
                              max_iter=epochs, tol=None, shuffle=False)  # fmt: skip
        return timed(lambda: model.fit(x, y))[0]

    return (fit(EPOCHS) - fit(1)) / (EPOCHS - 1)


def measure(frame: DataFrame, x: csr_matrix, y: np.ndarray, repeat: int) -> dict[str, Any]:
    mllib = theirs.LogisticRegression(maxIter=ITERATIONS)
    ours = LogisticRegression(maxIter=ITERATIONS, numWorkers=WORKERS)
    epochs = LogisticRegression(solver="adagrad", maxIter=EPOCHS, tol=0, numWorkers=WORKERS)
    seconds: dict[str, list[float]] = {"mllib": [], "ours": [], "sklearn": [], "epoch": []}
    first = []
    for turn in range(repeat + 1):
        its_time, its_model = fitted(mllib, frame)
        our_time, our_model = fitted(ours, frame)
        passes = epochs.fit(frame).summary.epochSeconds
        alone = sklearn_seconds(x, y)
        if turn:
            seconds["mllib"].append(its_time)
            seconds["ours"].append(our_time)
            seconds["sklearn"].append(alone)
            seconds["epoch"].append(float(np.median(passes[1:])))
            first.append(passes[0])
    objective, its = (m.summary.objectiveHistory[-1] for m in (our_model, its_model))
    if objective > its * (1 + 1e-9):
        raise SystemExit(f"the objective {objective} is worse than pyspark.ml's {its}")
    median = {name: float(np.median(numbers)) for name, numbers in seconds.items()}
    return {
        "nnz": x.nnz,
        "fit_s": round(median["ours"], 3),
        "mllib_fit_s": round(median["mllib"], 3),
        "speedup": round(median["mllib"] / median["ours"], 2),
        "objective": objective,
        "mllib_objective": its,
        "nnz_per_s": round(x.nnz / median["epoch"]),
        "sklearn_nnz_per_s": round(x.nnz / median["sklearn"]),
        "throughput_ratio": round(median["sklearn"] / median["epoch"], 2),
        "first_epoch_nnz_per_s": round(x.nnz / float(np.median(first))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, default=1 << 24, help="default 2^24")
    parser.add_argument("--rows", type=int, default=100_000, help="default 100,000")
    parser.add_argument("--nnz", type=int, default=30, help="ids of a row (default 30)")
    parser.add_argument("--skew", choices=SKEWS, default="flat")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=3, help="fits that are counted (default 3)")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--memory", default="12g", help="of Spark's driver, for MLlib's vectors")
    args = parser.parse_args()
    skew = SKEWS[args.skew]
    if args.features < skew.ids:
        parser.error(f"--skew {args.skew} draws from {skew.ids} ids; --features must be as many")
    x, y = rows_of(skew, args.features, args.rows, args.nnz, args.seed)
    spark = (
        SparkSession.builder.master(f"local[{WORKERS}]")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", args.memory)
        .config("spark.driver.maxResultSize", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "rows.libsvm")
        write_libsvm(path, x, y)
        frame = spark.read.format("libsvm").load(str(path), numFeatures=str(args.features))
        frame = frame.repartition(WORKERS).cache()
        frame.count()
        with PSContext(spark, servers=args.servers, progress=False):
            figures = measure(frame, x, y, args.repeat)
    spark.stop()
    about = {"bench": "logistic_regression", "skew": args.skew, "features": args.features,
             "rows": args.rows}  # fmt: skip
    print(json.dumps(about | figures))


if __name__ == "__main__":
    main()
