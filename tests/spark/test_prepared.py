from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sparkps.spark.prepared import PreparedBatches, nbytes


class Pair(NamedTuple):
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Both:
    pair: Pair
    name: str


def batch(i: int) -> Any:
    pair = Pair(np.full((3, 2), i, np.float32), np.arange(i, dtype=np.int64))
    return {
        "both": Both(pair, f"batch {i}"),
        "list": [np.array(i), (np.zeros(0), None)],
        "keep": {i},
    }


def mapped_files() -> int:
    """Parts of files without a name in this process's memory."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.endswith("(deleted)") and tempfile.gettempdir() in line for line in maps)


@pytest.mark.parametrize("limit", [0, 100, 10**6])
def test_batches_come_back_as_they_were_whatever_the_limit(limit: int) -> None:
    batches = PreparedBatches(limit)
    for i in range(10):
        batches.append(batch(i))
    assert len(batches) == 10
    for i, got in enumerate(batches):
        pair = got["both"].pair
        assert got["both"].name == f"batch {i}"
        assert got["keep"] == {i}
        assert pair.x.tolist() == [[i, i]] * 3
        assert pair.y.tolist() == list(range(i))
        assert got["list"][0] == i
        assert pair.x.dtype == np.float32


def test_beyond_the_limit_arrays_live_in_a_nameless_file() -> None:
    batches = PreparedBatches(limit=100)
    for _ in range(3):
        batches.append([np.ones(20, np.float32)])
    assert batches.memory_bytes == 80
    assert batches.file_bytes >= 160
    assert mapped_files() == 2
    batches[2][0][:] = 5
    assert batches[1][0].tolist() == [1] * 20
    del batches
    assert mapped_files() == 0


def test_record_batches_move_too() -> None:
    batches = PreparedBatches(limit=0)
    rows = pa.record_batch({"x": [1, 2, 3], "s": ["a", None, "c"]})
    batches.append(rows)
    assert batches[0].equals(rows)
    assert batches.memory_bytes == 0


def test_objects_that_no_file_can_hold_stay_in_memory() -> None:
    batches = PreparedBatches(limit=0)
    array = np.array([object()])
    batches.append(array)
    assert batches[0] is array


def test_bytes_are_counted_in_nested_containers() -> None:
    assert nbytes(Both(Pair(np.zeros(4, np.int64), np.zeros(2, np.float32)), "")) == 40
    assert nbytes([{"a": np.zeros(3, np.int8)}, "text", 7]) == 3
