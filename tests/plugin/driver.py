"""A plain Spark application: ``driver.py CONF``, then commands on stdin until its end.

CONF is JSON. Each command is answered with a line of JSON; the first line says that Spark is ready.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

from pyspark import SparkConf, SparkContext


def endpoint_file(_: int) -> tuple[str, int]:
    """In a task: what the file of this executor holds, and its mode."""
    import os  # noqa: PLC0415 - travels by value
    from pathlib import Path  # noqa: PLC0415

    path = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / "sparkps.json"  # noqa: TID251
    return path.read_text(), path.stat().st_mode & 0o777


def gauges(spark: SparkContext) -> dict[str, Any]:
    """The plugin's gauges as the driver's metrics servlet shows them."""
    with urllib.request.urlopen(f"{spark.uiWebUrl}/metrics/json/") as answer:
        shown = json.load(answer)["gauges"]
    return {
        name.rpartition(".")[2]: gauge["value"]
        for name, gauge in shown.items()
        if ".plugin.org.sparkps." in name
    }


def main() -> None:
    conf = SparkConf().setAll(list(json.loads(sys.argv[1]).items()))
    spark = SparkContext(conf=conf)
    answers = {
        "conf": lambda: dict(spark.getConf().getAll()),
        "endpoints": lambda: spark.parallelize(range(4), 4).map(endpoint_file).collect(),
        "gauges": lambda: gauges(spark),
        "executors": lambda: spark._jsc.sc().getExecutorMemoryStatus().size() - 1,
    }
    sys.stdout.write('"ready"\n')
    for command in iter(sys.stdin.readline, ""):
        sys.stdout.write(json.dumps(answers[command.strip()]()) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
