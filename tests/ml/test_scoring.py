"""Weights of a fitted model: looked up, shipped, and too many for memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame

from sparkps import PSContext
from sparkps.errors import InvalidSetting
from sparkps.ml.scoring import SparseWeights, _sorted_on_disk, fetch_weights


def test_keys_that_the_model_has_not_seen_weigh_nothing() -> None:
    weights = SparseWeights(np.array([-5, 3, 2**40]), np.array([1.0, 2.0, 3.0], np.float32))
    keys = np.array([2**40, 4, -5, -(2**63), 2**63 - 1])
    assert weights.lookup(keys).tolist() == [3.0, 0.0, 1.0, 0.0, 0.0]
    none = SparseWeights(np.empty(0, np.int64), np.empty(0))
    assert none.lookup(keys).tolist() == [0.0] * 5


@pytest.mark.spark
def test_a_model_too_large_for_memory_is_mapped_from_files(
    ps: PSContext, frame: DataFrame, tmp_path: Path
) -> None:
    table = ps.table("large", width=1)
    rng = np.random.default_rng(0)
    keys = rng.permutation(10_000) - 5_000
    values = np.where(keys % 3 == 0, 0.0, keys).astype(np.float32)
    table.assign(keys, values)
    table.save(str(tmp_path / "saved"))
    table.drop()
    found = _sorted_on_disk(tmp_path / "saved", int(np.count_nonzero(values)), "float32")
    order = np.argsort(keys)
    kept = order[values[order] != 0]
    assert isinstance(found.keys, np.memmap)
    assert np.array_equal(found.keys, keys[kept])
    assert np.array_equal(found.values, values[kept])


@pytest.mark.spark
def test_a_model_over_the_limit_goes_to_a_directory_which_it_needs(
    ps: PSContext, tmp_path: Path
) -> None:
    ps.stop()  # the last test of this file: there is one context at a time
    keys = np.arange(10_000)
    small = {"servers": 1, "progress": False, "model_local_bytes": 65536}
    with PSContext(ps.spark, **small) as context:
        table = context.table("large", width=1)
        table.assign(keys, np.ones(len(keys), np.float32))
        with pytest.raises(InvalidSetting, match="set a directory for large models"):
            fetch_weights(table, context)
    with PSContext(ps.spark, **small, model_dir=str(tmp_path)) as context:
        table = context.table("large", width=1)
        table.assign(keys, np.ones(len(keys), np.float32))
        weights = fetch_weights(table, context)
    assert isinstance(weights.values, np.memmap)
    assert weights.lookup(keys).sum() == len(keys)
