"""Public reports of models that only worked with as many servers as had trained them: B37."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext, csr, read_libsvm
from sparkps.optim import Adam
from tests.reports.conftest import A9A

pytestmark = pytest.mark.spark


def squares(worker: Any, batch: pa.RecordBatch) -> None:
    """A step of least squares, whose gradients make every field of Adam move."""
    table = worker.table("w")
    x = csr(batch, "features")
    errors = x.dot(table.pull(x.keys)) - np.asarray(batch.column("label"))
    table.push(x.keys, x.dot_t(errors / worker.full_clock_rows))


def test_b37_a_saved_table_goes_on_with_any_number_of_servers(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = read_libsvm(spark, str(A9A / "a9a_train.libsvm.gz")).limit(3000).coalesce(2).cache()

    def one_epoch(context: PSContext) -> tuple[np.ndarray, np.ndarray]:
        context.run(rows, squares, workers=2, batch_rows=500)
        keys, values = context.table("w").collect()
        return keys, values

    def with_servers(number: int, start: Callable[[PSContext], Any]) -> tuple[Any, Any]:
        with PSContext(spark, servers=number, progress=False) as context:
            start(context)
            before = context.table("w").collect()
            return before, one_epoch(context)

    def trained(context: PSContext) -> None:
        context.table("w", dtype="float64", optimizer=Adam(lr=0.01))
        one_epoch(context)
        context.table("w").save(tmp_path / "w")

    saved, expected = with_servers(3, trained)
    for number in (1, 2, 5):
        loaded, after = with_servers(number, lambda context: context.load(tmp_path / "w"))
        for mine, other in ((loaded, saved), (after, expected)):
            assert mine[0].tolist() == other[0].tolist()
            np.testing.assert_allclose(mine[1], other[1], rtol=1e-9)
