"""The memory of a table: opening, loading, growing, looking, and what new rows hold."""

from __future__ import annotations

import doctest
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkps.errors import MemoryLimit
from sparkps.kernels import index, initial, partitions, updates
from sparkps.kernels.keys import partition_of
from sparkps.kernels.partitions import PartitionArray, init_values

Array = NDArray[Any]
VALUE = ("float32", False, 0.0)


def table(width: int = 1, p: int = 4, **options: Any) -> PartitionArray:
    """A float32 table with a second field that begins at 0.5 and an int64 counter per row."""
    fields = [VALUE, ("float32", False, 0.5), ("int64", True, 3)]
    made = PartitionArray(p, width, "float32", fields, **options)
    for number in range(p):
        made.open(number)
    return made


def insert(pa: PartitionArray, p: int, keys: Array) -> Array:
    rows = np.empty(len(keys), np.int32)
    index.find_or_insert(pa, np.array([[p, len(keys)]], np.int32), keys, rows)
    return rows


def keys_of(p: int, count: int, total: int = 4) -> Array:
    """The first `count` keys of partition `p` of a hashed table."""
    candidates: Array = np.arange(count * total * 2 + 100)
    mine: Array = candidates[partition_of(candidates, total, None) == p]
    return mine[:count]


@pytest.mark.parametrize("module", [initial, partitions, index, updates])
def test_the_examples_in_docstrings_run(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(("dim", "p"), [(10, 4), (4, 4), (1_000_003, 7)])
def test_a_dense_partition_owns_a_range_and_all_its_rows_exist(dim: int, p: int) -> None:
    pa = table(p=p, dim=dim)
    assert np.array_equal(np.concatenate([pa.keys(i) for i in range(p)]), np.arange(dim))
    assert pa.count() == dim
    assert all(pa.keys(i)[0] == i * dim // p for i in range(p))


def test_a_dense_key_space_may_be_larger_than_memory_if_few_partitions_are_open() -> None:
    pa = PartitionArray(4096, 1, "float32", [VALUE], dim=2**34 - 1)
    pa.open(4095)
    assert pa.keys(4095)[-1] == 2**34 - 2
    pa.close(4095)
    with pytest.raises(ValueError, match="give the table more partitions"):
        PartitionArray(2, 1, "float32", [VALUE], dim=2**40).open(0)


@pytest.mark.parametrize("width", [1, 3, 8])
def test_new_rows_hold_their_initial_numbers(width: int) -> None:
    pa = table(width, init=("normal", 0.0, 0.1), seed=9)
    keys = keys_of(2, 300)
    insert(pa, 2, keys)
    assert np.array_equal(
        pa.field(2, 0), init_values(("normal", 0.0, 0.1), 9, keys, width, "float32")
    )
    assert np.all(pa.field(2, 1) == np.float32(0.5))
    assert pa.field(2, 1).shape == ((300,) if width == 1 else (300, width))
    assert pa.field(2, 2).tolist() == [3] * 300


def test_dense_rows_begin_at_what_their_keys_say() -> None:
    pa = table(3, dim=10, init=("uniform", -1.0, 1.0), seed=-4)
    want = init_values(("uniform", -1.0, 1.0), -4, np.array([2, 3, 4]), 3, "float32")
    assert np.array_equal(pa.field(1, 0), want)


def test_opening_twice_changes_nothing_and_closing_ends_the_generation() -> None:
    pa = table()
    insert(pa, 1, keys_of(1, 10))
    pa.open(1)
    assert pa.rows(1) == pa.row_count(1) == 10
    assert pa.open_partitions().tolist() == [0, 1, 2, 3]
    before = pa.generation(1)
    pa.close(1)
    pa.close(1)
    assert not pa.is_open(1)
    assert pa.generation(1) == before + 1
    assert pa.open_partitions().tolist() == [0, 2, 3]
    pa.open(1)
    assert pa.rows(1) == 0


def test_log_numbers_are_kept_per_partition() -> None:
    pa = table()
    pa.set_log(2, 17)
    assert pa.log(2) == 17
    assert pa.logs().tolist() == [0, 0, 17, 0]


def test_a_view_is_never_moved_and_outlives_its_partition() -> None:
    pa = table(3)
    keys = keys_of(0, 60_000)
    insert(pa, 0, keys[:30_000])
    pa.field(0, 0)[:] = 7
    view, key_view = pa.field(0, 0), pa.keys(0)
    insert(pa, 0, keys)
    assert np.all(view == 7)
    assert np.array_equal(key_view, keys[:30_000])
    assert np.all(pa.field(0, 0)[:30_000] == 7)
    assert not pa.field(0, 0)[30_000:].any()
    pa.close(0)
    assert np.all(view == 7)


def test_memory_grows_without_losing_a_number_through_every_kind_of_area() -> None:
    pa = table()
    keys = keys_of(3, 50_000)
    for end in np.unique(np.geomspace(1, 50_000, 60).astype(int)):
        insert(pa, 3, keys[:end])
        pa.field(3, 0)[:] = np.arange(end)
        assert np.array_equal(pa.keys(3), keys[:end])
    assert np.array_equal(insert(pa, 3, keys), np.arange(50_000))
    assert pa.field(3, 0)[-1] == 49_999
    assert np.all(pa.field(3, 1) == np.float32(0.5))


def test_keys_are_read_only() -> None:
    pa = table()
    insert(pa, 0, keys_of(0, 3))
    with pytest.raises(ValueError, match="read-only"):
        pa.keys(0)[0] = 5


@pytest.mark.parametrize("dim", [None, 40_000])
def test_a_loaded_partition_is_the_saved_one(dim: int | None) -> None:
    pa, copy = table(3, dim=dim), table(3, dim=dim)
    if dim is None:
        insert(pa, 1, keys_of(1, 9000))
        insert(copy, 1, keys_of(1, 20)[::-1].copy())
    pa.field(1, 0)[:] = np.random.default_rng(0).random(pa.field(1, 0).shape)
    generation = copy.generation(1)
    copy.load(1, pa.keys(1), [pa.field(1, i) for i in range(3)])
    assert all(np.array_equal(copy.field(1, i), pa.field(1, i)) for i in range(3))
    assert copy.generation(1) == generation + 1
    rows = np.empty(pa.rows(1), np.int32)
    assert index.find(copy, np.array([[1, len(rows)]], np.int32), pa.keys(1), rows) == 0
    assert np.array_equal(rows, np.arange(len(rows)))
    if dim is None:
        more = insert(copy, 1, keys_of(1, 9100))
        assert np.array_equal(more, np.arange(9100))


def test_a_bad_load_changes_nothing() -> None:
    pa = table()
    insert(pa, 1, keys_of(1, 5))
    fields: list[Array] = [np.ones(2, dtype) for dtype in ("float32", "float32", "int64")]
    good, foreign = keys_of(1, 2), keys_of(2, 2)
    for keys in (good[[0, 0]], foreign):
        with pytest.raises(ValueError, match="twice or does not belong"):
            pa.load(1, keys, fields)
    with pytest.raises(ValueError, match="field 1 holds"):
        pa.load(1, good, [fields[0], np.ones(3, np.float32), fields[2]])
    with pytest.raises(TypeError, match="field 2 must be int64"):
        pa.load(1, good, [fields[0], fields[1], np.ones(2, np.int32)])
    with pytest.raises(ValueError, match="with its keys"):
        pa.load(1, None, fields)
    assert np.array_equal(pa.keys(1), keys_of(1, 5))


def test_a_limit_refuses_growth_before_anything_has_changed() -> None:
    pa = table(limit=60_000)
    keys = keys_of(0, 10_000)
    insert(pa, 0, keys[:100])
    with pytest.raises(MemoryLimit) as caught:
        insert(pa, 0, keys)
    assert pa.rows(0) == 100
    assert caught.value.fields["limit"] == 60_000
    with pytest.raises(MemoryLimit):
        pa.reserve(0, 10_000)
    pa.limit = None
    assert insert(pa, 0, keys)[-1] == 9_999


def test_growth_bytes_bounds_what_reserve_adds() -> None:
    pa = table()
    for rows in (1, 100, 5_000, 80_000):
        predicted = pa.growth_bytes(2, rows - pa.rows(2))
        before = pa.nbytes
        pa.reserve(2, rows)
        assert 0 < pa.nbytes - before <= predicted
        assert pa.growth_bytes(2, rows) == 0


def test_an_ftrl_row_needs_less_than_forty_bytes_at_any_moment() -> None:
    pa = PartitionArray(16, 1, "float32", [VALUE] * 3)
    keys = np.random.default_rng(0).permutation(600_000)
    part_of = partition_of(keys, 16, None)
    for p in range(16):
        pa.open(p)
    worst = 0.0
    for begin in range(0, len(keys), 20_000):
        for p in range(16):
            insert(pa, p, keys[begin : begin + 20_000][part_of[begin : begin + 20_000] == p])
        if begin >= 100_000:
            worst = max(worst, pa.nbytes / pa.count())
    assert pa.count() == 600_000
    assert worst <= 40


def test_closing_gives_all_memory_back() -> None:
    pa = table()
    empty = pa.nbytes
    insert(pa, 0, keys_of(0, 20_000))
    assert pa.nbytes > empty + 20_000 * 28
    pa.close(0)
    assert pa.nbytes == empty


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((0, 1, "float32", [VALUE]), {}, "partitions must be positive"),
        ((4, 0, "float32", [VALUE]), {}, "width must be positive"),
        ((4, 1, "float32", [VALUE]), {"dim": 3}, "dim must be at least 4"),
        ((4, 1, "float32", []), {}, "1 to 32 fields"),
        ((4, 1, "float32", [VALUE] * 33), {}, "1 to 32 fields"),
        ((4, 1, "float64", [VALUE]), {}, "field 0 must be the value"),
        ((4, 1, "int64", [("int64", False, 0)]), {"init": ("normal", 0, 1)}, "whole number"),
        ((4, 1, "int64", [("int64", False, 0)]), {"init": ("constant", 0.5, 0)}, "whole number"),
        ((4, 1, "float32", [VALUE]), {"init": ("zipf", 0, 1)}, "constant, normal or uniform"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(
    arguments: Any, options: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        PartitionArray(*arguments, **options)


def test_a_field_of_another_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="float32, float64 or int64, not int32"):
        PartitionArray(4, 1, "int32", [("int32", False, 0)])


def test_partitions_and_fields_that_are_not_there_are_named() -> None:
    pa = table()
    pa.close(2)
    for name in ("rows", "keys", "log"):
        with pytest.raises(ValueError, match="partition 2 is not open"):
            getattr(pa, name)(2)
        with pytest.raises(ValueError, match="partition 4 does not exist; the table has 4"):
            getattr(pa, name)(4)
    for name in ("open", "close", "generation"):
        with pytest.raises(ValueError, match="partition -1 does not exist"):
            getattr(pa, name)(-1)
    with pytest.raises(ValueError, match="field 3 does not exist; the table has 3"):
        pa.field(0, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_a_constant_is_every_number(dtype: str, width: int) -> None:
    values = init_values(("constant", -2, 0), 0, np.arange(5), width, dtype)
    assert values.dtype == dtype
    assert values.shape == ((5,) if width == 1 else (5, width))
    assert np.all(values == -2)


def splitmix64(x: int) -> int:
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


@pytest.mark.parametrize("key", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_random_initial_numbers_are_the_documented_function_of_seed_key_and_column(
    key: int,
) -> None:
    def unit(word: int) -> float:
        state = splitmix64(splitmix64(5) ^ key % 2**64) + word * 0x9E3779B97F4A7C15
        return (splitmix64(state % 2**64) >> 11) / 2**53

    uniform = init_values(("uniform", -1, 3), 5, np.array([key]), 3, "float64")
    normal = init_values(("normal", 2, 0.5), 5, np.array([key]), 3, "float64")
    for column in range(3):
        u, v = unit(2 * column), unit(2 * column + 1)
        assert uniform[0, column] == -1 + 4 * u
        radius = math.sqrt(-2 * math.log(1 - u))
        assert normal[0, column] == pytest.approx(2 + 0.5 * radius * math.cos(2 * math.pi * v))


def test_random_initial_numbers_have_their_moments() -> None:
    keys = np.arange(20_000)
    normal = init_values(("normal", 1.0, 2.0), 1, keys, 2, "float64")
    uniform = init_values(("uniform", -1.0, 1.0), 1, keys, 2, "float64")
    assert normal.mean() == pytest.approx(1, abs=0.05)
    assert normal.std() == pytest.approx(2, abs=0.05)
    assert uniform.min() >= -1
    assert uniform.max() < 1
    assert uniform.std() == pytest.approx(1 / 3**0.5, abs=0.01)
    assert abs(np.corrcoef(normal.T)[0, 1]) < 0.03
