"""Holds a table on the cluster's servers until ``data/release`` is there, then prints its rows.

It writes ``data/handle`` for those who try to reach the table without the application's key.
"""

from __future__ import annotations

import threading
from pathlib import Path

import cloudpickle
from pyspark.sql import SparkSession

import sparkps
from sparkps import PSContext

DATA = Path("data")

spark = SparkSession.builder.getOrCreate()
with PSContext(spark) as ps:
    table = ps.table("held", dim=64, optimizer=sparkps.optim.SGD(lr=1.0))
    table.push(range(64), [-1.0] * 64)
    (DATA / "begun").write_bytes(cloudpickle.dumps(table))
    (DATA / "begun").rename(DATA / "handle")
    print("held", flush=True)
    while not (DATA / "release").exists():
        threading.Event().wait(0.2)
    print("rows", table.pull().ravel().tolist())
spark.stop()
