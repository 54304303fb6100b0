"""Numbers in and out of rows, against plain numpy on the partitions' own views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkps.kernels.partitions import PartitionArray, init_values
from sparkps.kernels.rows import gather, gather_field, scatter_add, scatter_set, sum_rows

Array = NDArray[Any]
P, DIM = 5, 203
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
widths = pytest.mark.parametrize("width", [1, 3, 8])


def table(dtype: str, width: int, dim: int | None = DIM, **options: Any) -> PartitionArray:
    """A table with a counter per row as field 1; dense ones hold 0, 1, 2, … throughout."""
    fields = [(dtype, False, 0), ("int64", True, 4)]
    pa = PartitionArray(P, width, dtype, fields, dim=dim, **options)
    for p in range(P):
        pa.open(p)
        pa.field(p, 0).ravel()[:] = np.arange(pa.field(p, 0).size) + 1000 * p
    return pa


def shaped(count: int, width: int) -> tuple[int, ...]:
    return (count,) if width == 1 else (count, width)


def random_message(pa: PartitionArray, count: int, seed: int) -> tuple[Array, Array, Array]:
    """Groups in a shuffled order, repeated rows, and values with exact sums."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(P)
    counts = rng.multinomial(count, np.ones(P) / P)
    counts[rng.integers(P)] = 0
    parts = np.stack([order, counts], 1).astype(np.int32)
    rows = [rng.integers(0, pa.rows(p), n) for p, n in parts]
    values = rng.integers(-9, 9, shaped(int(counts.sum()), pa.width)).astype(pa.dtype)
    return parts, np.concatenate(rows).astype(np.int32), values


def owners(parts: Array) -> Array:
    return np.repeat(parts[:, 0], parts[:, 1])


def unaligned(array: Array) -> Array:
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)


@dtypes
@widths
@pytest.mark.parametrize("count", [0, 1, 40, 1000])
def test_gather_reads_the_rows_of_each_partition(dtype: str, width: int, count: int) -> None:
    pa = table(dtype, width)
    parts, rows, _ = random_message(pa, count, 1)
    got = gather_field(pa, 0, parts, rows)
    want = [pa.field(p, 0)[row] for p, row in zip(owners(parts), rows, strict=True)]
    assert got.dtype == dtype
    assert np.array_equal(got, np.array(want, dtype).reshape(shaped(len(rows), width)))
    assert gather_field(pa, 1, parts, rows).tolist() == [4] * len(rows)
    flat = np.empty(rows.size * width, dtype)
    gather(pa, 0, unaligned(parts), unaligned(rows), flat)
    assert np.array_equal(flat, got.ravel())


@dtypes
@widths
def test_an_absent_row_reads_as_it_would_begin(dtype: str, width: int) -> None:
    pa = table(dtype, width, init=("constant", 6, 0))
    parts, rows = np.array([[2, 3]], np.int32), np.array([-1, 5, -1], np.int32)
    got = gather_field(pa, 0, parts, rows).reshape(3, width)
    assert np.all(got[[0, 2]] == 6)
    assert np.array_equal(got[1], pa.field(2, 0)[5].ravel())
    assert gather_field(pa, 1, parts, rows).tolist() == [4, 4, 4]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@widths
def test_an_absent_row_of_a_random_table_needs_its_key(dtype: str, width: int) -> None:
    init = ("normal", 0.0, 1.0)
    pa = table(dtype, width, dim=None, init=init, seed=3)
    keys = np.array([5, -9, 2**63 - 1])
    parts, rows = np.array([[2, 2], [4, 1]], np.int32), np.full(3, -1, np.int32)
    got = gather_field(pa, 0, parts, rows, keys)
    assert np.array_equal(got, init_values(init, 3, keys, width, dtype))
    with pytest.raises(ValueError, match="gather needs keys"):
        gather_field(pa, 0, parts, rows)
    assert gather_field(pa, 1, parts, rows).tolist() == [4, 4, 4]


@dtypes
@widths
@pytest.mark.parametrize("count", [0, 1, 40, 1000])
def test_scatter_add_adds_every_value_of_a_repeated_row(dtype: str, width: int, count: int) -> None:
    pa = table(dtype, width)
    want = [pa.field(p, 0).copy() for p in range(P)]
    parts, rows, values = random_message(pa, count, 2)
    scatter_add(pa, 0, parts, rows, values)
    scatter_add(pa, 0, unaligned(parts), rows.tobytes(), unaligned(values))
    for p, row, value in zip(owners(parts), rows, values, strict=True):
        want[p][row] += value + value
    assert all(np.array_equal(pa.field(p, 0), want[p]) for p in range(P))


@dtypes
@widths
def test_scatter_set_keeps_the_last_value_of_a_repeated_row(dtype: str, width: int) -> None:
    pa = table(dtype, width)
    want = [pa.field(p, 0).copy() for p in range(P)]
    parts, rows, values = random_message(pa, 700, 3)
    scatter_set(pa, 0, parts, rows, values)
    for p, row, value in zip(owners(parts), rows, values, strict=True):
        want[p][row] = value
    assert all(np.array_equal(pa.field(p, 0), want[p]) for p in range(P))
    scatter_set(pa, 1, parts, rows, np.arange(len(rows)))
    assert pa.field(owners(parts)[-1], 1)[rows[-1]] == len(rows) - 1


@dtypes
@widths
@pytest.mark.parametrize("count", [0, 1, 40, 1000])
def test_sum_rows_gives_each_row_once_with_the_sum_of_its_values(
    dtype: str, width: int, count: int
) -> None:
    pa = table(dtype, width)
    parts, rows, values = random_message(pa, count, 4)
    for _ in range(2):  # the second time on the scratch that the first one left
        parts2, rows2, sums = sum_rows(pa, parts, rows, values)
        assert np.array_equal(parts2[:, 0], parts[:, 0])
        sums_of: dict[tuple[int, int], Any] = {}
        for p, row, value in zip(owners(parts).tolist(), rows.tolist(), values, strict=True):
            sums_of[p, row] = sums_of[p, row] + value if (p, row) in sums_of else value
        assert list(zip(owners(parts2).tolist(), rows2.tolist(), strict=True)) == list(sums_of)
        want = np.array(list(sums_of.values()), dtype).reshape(shaped(len(sums_of), width))
        assert np.array_equal(sums, want)
        assert sums.dtype == dtype


def test_sums_are_added_in_the_order_of_the_message() -> None:
    pa = table("float32", 1)
    values = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    parts, rows = np.array([[0, 4]], np.int32), np.zeros(4, np.int32)
    assert sum_rows(pa, parts, rows, values)[2].tolist() == [1.0]
    assert sum_rows(pa, parts, rows, values[[0, 2, 1, 3]])[2].tolist() == [2.0]


@pytest.mark.parametrize("row", [-1, 40, 2**31 - 1, -(2**31)])
def test_a_row_that_does_not_exist_is_named_and_nothing_is_written(row: int) -> None:
    pa = table("float32", 1)
    before = [pa.field(p, 0).copy() for p in range(P)]
    parts, rows = np.array([[0, 1], [1, 2]], np.int32), np.array([39, 0, row], np.int32)
    if row == 40:
        rows[2] = pa.rows(1)
    values = np.ones(3, np.float32)
    sentence = rf"rows\[2\] is {rows[2]}, but partition 1 has {pa.rows(1)} rows"
    for call in (scatter_add, scatter_set):
        with pytest.raises(ValueError, match=sentence):
            call(pa, 0, parts, rows, values)
    with pytest.raises(ValueError, match=sentence):
        sum_rows(pa, parts, rows, values)
    if row != -1:
        with pytest.raises(ValueError, match=sentence):
            gather_field(pa, 0, parts, rows)
    assert all(np.array_equal(pa.field(p, 0), before[p]) for p in range(P))


def test_values_of_another_size_dtype_or_field_are_refused() -> None:
    pa = table("float32", 3)
    parts, rows = np.array([[0, 2]], np.int32), np.array([0, 1], np.int32)
    for call in (scatter_add, scatter_set):
        with pytest.raises(TypeError, match="values must be float32, not float64"):
            call(pa, 0, parts, rows, np.ones((2, 3)))
        with pytest.raises(ValueError, match="values holds 6 numbers in 3 rows, expected 2"):
            call(pa, 0, parts, rows, np.ones((3, 2), np.float32))
        with pytest.raises(ValueError, match="field 2 does not exist"):
            call(pa, 2, parts, rows, np.ones((2, 3), np.float32))
    with pytest.raises(TypeError, match="values must be float32"):
        sum_rows(pa, parts, rows, np.ones((2, 3), np.int64))
    with pytest.raises(ValueError, match="out is read-only"):
        gather(pa, 0, parts, rows, np.frombuffer(bytes(24), np.float32))
