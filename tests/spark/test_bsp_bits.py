"""Training with 1, 2 and 5 servers under random delays: equal bits, and those of a numpy loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkps import PSContext, csr, init, optim
from sparkps.kernels.partitions import init_values
from sparkps.spark.plan import training_input

pytestmark = pytest.mark.spark

EPOCHS, BATCH, SEED, DIM = 3, 64, 5, 40
WORKERS = 3
TABLES: dict[str, dict[str, Any]] = {
    "dense adagrad": {"dim": DIM, "optimizer": optim.AdaGrad(lr=0.1)},
    "hashed adam": {"optimizer": optim.Adam(lr=0.01)},
    "wide": {
        "width": 8, "optimizer": optim.AdaGrad(lr=0.1), "init": init.Normal(0.3), "seed": 11,
    },
    "wide dense adam": {
        "width": 8, "dim": DIM, "partitions": 7, "optimizer": optim.Adam(lr=0.02),
        "init": init.Uniform(-0.5, 0.5),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """500, 140 and 60 rows in three input partitions, with four ids out of forty each."""
    n = F.col("id")
    ids = F.array(n * 7 % DIM, n * n % DIM, n % 11, (n * 13 + 5) % DIM)
    return (
        spark.range(0, 1500, 1, 3)
        .filter("id < 500 or (id >= 500 and id < 640) or id >= 1440")
        .select(ids.alias("ids"), (n % 3 == 0).cast("float").alias("label"))
    )


def residuals(tables: dict[str, Any], x: Any, labels: np.ndarray) -> np.ndarray:
    """The derivative of the logistic loss by the margin, for a sum of linear and squared terms."""
    margin = x.dot(tables["dense adagrad"]) + x.dot(tables["hashed adam"])
    for name in ("wide", "wide dense adam"):
        margin += np.square(x.dot(tables[name])).sum(axis=1)
    return (1 / (1 + np.exp(-margin)) - labels).astype(np.float32)


def gradients(values: dict[str, Any], x: Any, labels: np.ndarray, rows: int) -> dict[str, Any]:
    r = residuals(values, x, labels) / np.float32(rows)
    wide = {
        name: x.dot_t(2 * r[:, None] * x.dot(values[name])) for name in ("wide", "wide dense adam")
    }
    return {"dense adagrad": x.dot_t(r), "hashed adam": x.dot_t(r), **wide}


def labels_of(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column("label").to_numpy(zero_copy_only=False).astype(np.float32)


def step(worker: Any, batch: pa.RecordBatch) -> dict[str, float]:
    x = csr(batch, "ids")
    values = worker.pull(dict.fromkeys(TABLES, x.keys))
    grads = gradients(values, x, labels_of(batch), worker.clock_rows)
    for name, grad in grads.items():
        worker.table(name).push(x.keys, grad)
    return {"rows": batch.num_rows, "norm": float(np.square(values["wide"]).sum())}


def trained(spark: SparkSession, rows: DataFrame, servers: int) -> dict[str, Any]:
    """Keys in row order and all fields of every table, and the history, after a training."""
    with PSContext(
        spark, servers=servers, faults_delay_ms=2, faults_seed=servers, progress=False
    ) as ps:
        tables = {name: ps.table(name, **spec) for name, spec in TABLES.items()}
        history = ps.run(rows, step, epochs=EPOCHS, workers=WORKERS, batch_rows=BATCH, seed=SEED)
        found: dict[str, Any] = {"history": [(row["rows"], row["norm"]) for row in history]}
        for name, table in tables.items():
            fields = range(1 + len(TABLES[name]["optimizer"].fields()))
            keys, arrays, counts = table.scan(fields)
            found[name] = [keys, counts, *arrays]
        return found


@pytest.fixture(scope="module")
def one_server(spark: SparkSession, rows: DataFrame) -> dict[str, Any]:
    return trained(spark, rows, 1)


@pytest.mark.parametrize("servers", [2, 5])
def test_any_number_of_servers_gives_the_same_bits(
    spark: SparkSession, rows: DataFrame, one_server: dict[str, Any], servers: int
) -> None:
    found = trained(spark, rows, servers)
    assert found["history"] == one_server["history"]
    for name in TABLES:
        for mine, other in zip(found[name], one_server[name], strict=True):
            assert mine.tobytes() == other.tobytes()


def test_a_numpy_loop_gives_the_same_numbers(
    spark: SparkSession, rows: DataFrame, one_server: dict[str, Any]
) -> None:
    frame = training_input(rows, workers=WORKERS, seed=SEED).frame
    collected = frame.select("*", F.spark_partition_id().alias("rank")).collect()
    batches = [
        [
            pa.record_batch({"ids": [r.ids for r in part], "label": [r.label for r in part]})
            for part in (mine[i : i + BATCH] for i in range(0, len(mine), BATCH))
        ]
        for mine in ([row for row in collected if row.rank == rank] for rank in range(WORKERS))
    ]
    state = {name: whole_table(spec) for name, spec in TABLES.items()}
    for _ in range(EPOCHS):
        for clock in range(max(map(len, batches))):
            now = [mine[clock] for mine in batches if clock < len(mine)]
            one_clock(state, now)
    for name, spec in TABLES.items():
        keys, _, *arrays = one_server[name]
        for field, mine in zip(state[name], arrays, strict=True):
            np.testing.assert_allclose(mine, state[name][field][keys], rtol=1e-5, atol=1e-7)
        assert spec.get("dim") or set(keys) == set(
            np.concatenate([b.column("ids").flatten() for p in batches for b in p])
        )


def whole_table(spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """All rows of a table and its fields, as they begin."""
    width = spec.get("width", 1)
    start = init.as_init(spec.get("init", 0.0))
    value = init_values(
        (start.kind, start.a, start.b), spec.get("seed", 0), np.arange(DIM), width, "float32"
    )
    fields = {"value": value.reshape(DIM) if width == 1 else value.reshape(DIM, width)}
    for field in spec["optimizer"].fields():
        shape = (DIM,) if field.per_row or width == 1 else (DIM, width)
        fields[field.name] = np.full(shape, field.initial, "int64" if field.per_row else "float32")
    return fields


def one_clock(state: dict[str, Any], batches: list[pa.RecordBatch]) -> None:
    """Add up the gradients of all ranks and call each optimizer once per touched key."""
    rows = sum(batch.num_rows for batch in batches)
    sums = {name: np.zeros_like(fields["value"]) for name, fields in state.items()}
    touched = np.zeros(DIM, bool)
    for batch in batches:
        x = csr(batch, "ids")
        values = {name: fields["value"][x.keys] for name, fields in state.items()}
        for name, grad in gradients(values, x, labels_of(batch), rows).items():
            np.add.at(sums[name], x.keys, grad)
        touched[x.keys] = True
    for name, fields in state.items():
        part = {field: array[touched] for field, array in fields.items()}
        TABLES[name]["optimizer"].update(part, sums[name][touched])
        for field, array in part.items():
            fields[field][touched] = array
