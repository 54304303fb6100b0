"""Keys, repeated keys and moved values against plain numpy and Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from sparkps.kernels import arrays, keys, sums

Array = NDArray[Any]

EDGES = np.array([0, -1, 1, 2**63 - 1, -(2**63), 7, 7, 2**53 + 1, 0], np.int64)
ADVERSARIAL = {
    "none": EDGES[:0],
    "one": EDGES[3:4],
    "all equal": np.full(500, -5, np.int64),
    "edges": EDGES,
    "descending": np.arange(1000, 0, -1, dtype=np.int64) << 40,
    "repeated": np.random.default_rng(1).integers(-40, 40, 999),
    "random": np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 5003),
}
adversarial = pytest.mark.parametrize("case", ADVERSARIAL.values(), ids=ADVERSARIAL)
int64s = hnp.arrays(np.int64, st.integers(0, 200), elements=st.integers(-(2**63), 2**63 - 1))


def splitmix64(x: int) -> int:
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def unaligned(array: Array) -> Array:
    """The same numbers in read-only memory that begins at an odd address, as in a frame."""
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)


def slow_unique(case: Array) -> tuple[list[int], list[int]]:
    place: dict[int, int] = {}
    inverse = [place.setdefault(key, len(place)) for key in case.tolist()]
    return list(place), inverse


# ---- partitions


@adversarial
def test_a_hashed_partition_is_the_top_of_the_hash(case: Array) -> None:
    want = [splitmix64(key % 2**64) * 48 >> 64 for key in case.tolist()]
    got = keys.partition_of(case, 48)
    assert got.dtype == np.int32
    assert got.tolist() == want


@given(st.integers(1, 2**63 - 1), st.integers(1, 65536), st.data())
def test_a_dense_partition_is_exact_for_every_dim(
    dim: int, count: int, data: st.DataObject
) -> None:
    count = min(count, dim)
    p = data.draw(st.integers(0, count - 1))
    first, last = p * dim // count, (p + 1) * dim // count - 1
    got = keys.partition_of(np.array([first, last, 0, dim - 1], np.int64), count, dim)
    assert got.tolist() == [p, p, 0, count - 1]


@pytest.mark.parametrize("partitions", [1, 3, 64, 65536])
@adversarial
def test_the_sort_is_stable_and_server_major(case: Array, partitions: int) -> None:
    slot = np.random.default_rng(0).permutation(partitions).astype(np.int32)
    order, sorted_keys, counts = keys.partition_sort(case, partitions, None, slot)
    position = slot[keys.partition_of(case, partitions)]
    assert order.tolist() == np.argsort(position, kind="stable").tolist()
    assert sorted_keys.tolist() == case[order].tolist()
    assert counts.tolist() == np.bincount(position, minlength=partitions).tolist()


def test_the_sort_of_a_dense_table_leaves_sorted_keys_alone() -> None:
    dense = np.arange(1001)
    order, sorted_keys, counts = keys.partition_sort(dense, 7, 1001, np.arange(7, dtype=np.int32))
    assert (order == dense).all()
    assert (sorted_keys == dense).all()
    assert counts.tolist() == [143] * 7


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_ordinals_sort_as_their_keys_do(dtype: Any) -> None:
    vocabulary = ADVERSARIAL["random"]
    slot = np.random.default_rng(0).permutation(64).astype(np.int32)
    ordinals = np.random.default_rng(3).integers(0, len(vocabulary), 999).astype(np.int32)
    part_of = keys.partition_of(vocabulary, 64).astype(dtype)
    order, counts = keys.partition_sort_by(part_of, ordinals, slot)
    want_order, _, want_counts = keys.partition_sort(vocabulary[ordinals], 64, None, slot)
    assert (order == want_order).all()
    assert (counts == want_counts).all()


@pytest.mark.parametrize("bad", [-1, 100, 2**62])
def test_a_key_outside_a_dense_table_is_named(bad: int) -> None:
    dense = np.array([0, 99, 5, bad, bad], np.int64)
    sentence = rf"keys\[3\] is {bad}; a table of dim 100 has the keys 0..99"
    with pytest.raises(ValueError, match=sentence):
        keys.partition_sort(dense, 4, 100, np.arange(4, dtype=np.int32))
    with pytest.raises(ValueError, match=sentence):
        keys.partition_of(dense, 4, 100)


@pytest.mark.parametrize("slot", [[0, 0, 1], [0, 1, 3], [-1, 0, 1], [0, 1]])
def test_a_slot_must_be_a_permutation(slot: list[int]) -> None:
    with pytest.raises(ValueError, match="slot"):
        keys.partition_sort(EDGES, 3, None, np.array(slot, np.int32))


def test_ordinals_and_their_partitions_are_checked() -> None:
    slot = np.arange(2, dtype=np.int32)
    with pytest.raises(ValueError, match=r"ordinals\[1\] is 3, outside 0..2"):
        keys.partition_sort_by(np.zeros(3, np.int32), np.array([0, 3], np.int32), slot)
    with pytest.raises(ValueError, match=r"part_of\[1\] is 2, outside 0..1"):
        keys.partition_sort_by(np.array([0, 2], np.int32), np.array([0, 1], np.int32), slot)


@pytest.mark.parametrize(("partitions", "dim"), [(0, None), (65537, None), (-1, None), (9, 8)])
def test_a_number_of_partitions_that_cannot_be_is_refused(partitions: int, dim: int | None) -> None:
    with pytest.raises(ValueError, match="partitions"):
        keys.partition_of(EDGES, partitions, dim)


# ---- slices


def test_slices_are_numbered_in_each_partition() -> None:
    table = keys.cut(np.array([5, 2, 9], np.int32), np.array([7, 0, 3]), 3)
    none = [-1, -1, -1]
    assert table.tolist() == [
        [5, 0, 3, *none], [5, 1, 3, *none], [5, 2, 1, *none], [9, 0, 3, *none],
    ]  # fmt: skip


def test_each_slice_is_chained_to_the_one_before_it_in_its_partition() -> None:
    last = np.full((10, 3), -1, np.int64)
    for seq in (0, 1):
        table = keys.cut(np.array([5, 9], np.int32), np.array([4, 1]), 2)
        keys.fill_prev(table, last, 8, seq)
    assert table[:, 3:].tolist() == [[8, 0, 1], [8, 1, 0], [8, 0, 0]]
    assert last[[5, 9]].tolist() == [[8, 1, 1], [8, 1, 0]]
    assert (np.delete(last, [5, 9], axis=0) == -1).all()


def test_bad_groups_are_refused() -> None:
    two = np.array([1, 1], np.int32)
    with pytest.raises(ValueError, match="partition 1 has more than one group"):
        keys.cut(two, np.array([1, 1]), 1)
    with pytest.raises(ValueError, match=r"counts\[1\] is -1"):
        keys.cut(two, np.array([1, -1]), 1)
    with pytest.raises(ValueError, match="rows_per_slice"):
        keys.cut(two, np.array([1, 1]), 0)
    with pytest.raises(ValueError, match="partitions has 2 rows but counts has 1"):
        keys.cut(two, np.array([1]), 1)


def test_a_slice_of_a_partition_that_is_not_there_changes_nothing() -> None:
    last = np.full((5, 3), -1, np.int64)
    table = keys.cut(np.array([4, 5], np.int32), np.array([1, 1]), 1)
    with pytest.raises(ValueError, match=r"slices\[1\] is of partition 5, outside 0..4"):
        keys.fill_prev(table, last, 0, 0)
    assert (last == -1).all()


# ---- distinct keys and sums


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@adversarial
def test_unique_keeps_the_order_of_appearance(case: Array, dtype: Any) -> None:
    case = case.astype(dtype)
    distinct, inverse = sums.unique(case)
    assert distinct.dtype == dtype
    assert inverse.dtype == np.int32
    assert (distinct.tolist(), inverse.tolist()) == slow_unique(case)


@given(int64s)
def test_unique_equals_a_dictionary(case: Array) -> None:
    distinct, inverse = sums.unique(case)
    assert (distinct.tolist(), inverse.tolist()) == slow_unique(case)


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("key_dtype", [np.int64, np.int32])
def test_sums_stay_in_their_group_and_in_order(key_dtype: Any, dtype: Any, width: int) -> None:
    rng = np.random.default_rng(4)
    counts = np.array([0, 300, 1, 0, 200])
    grouped = rng.integers(-60, 60, 501).astype(key_dtype)
    values = (rng.standard_normal((501, width)) * 1000).astype(dtype)
    if width == 1:
        values = values[:, 0]
    got_counts, got_keys, got_sums = sums.sum_by_key(counts, grouped, values)
    want_counts, want_keys, want_sums = [], [], []
    for part, rows in zip(
        np.split(grouped, np.cumsum(counts)[:-1]), np.split(values, np.cumsum(counts)[:-1]),
        strict=True,
    ):  # fmt: skip
        distinct, inverse = slow_unique(part)
        total = np.zeros((len(distinct), *values.shape[1:]), dtype)
        np.add.at(total, inverse, rows)
        want_counts.append(len(distinct))
        want_keys += distinct
        want_sums.append(total)
    assert got_counts.tolist() == want_counts
    assert got_keys.tolist() == want_keys
    assert got_keys.dtype == key_dtype
    np.testing.assert_array_equal(got_sums, np.concatenate(want_sums))


def test_nothing_is_copied_when_no_key_repeats_in_a_group() -> None:
    arguments = np.array([2, 1]), np.array([4, 5, 4]), np.ones(3, np.float32)
    for got, given_ in zip(sums.sum_by_key(*arguments), arguments, strict=True):
        assert got is given_


@pytest.mark.parametrize(
    "ordinals",
    [
        [5, 0, 3, 64, 63, 127],
        [5, 0, 3, 64, 63, 5],
        [7, 7],
        [0],
        [2**31 - 1, 0, 2**31 - 1],
        [2**31 - 1, 0],
        [-1, 4, -1],
        [-3, 4],
    ],
)
def test_ordinals_are_summed_as_keys_are(ordinals: list[int]) -> None:
    counts, values = np.array([len(ordinals)]), np.arange(len(ordinals), dtype=np.float32)
    got = sums.sum_by_key(counts, np.array(ordinals, np.int32), values)
    want = sums.sum_by_key(counts, np.array(ordinals, np.int64), values)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (got[2] is values) == (len(set(ordinals)) == len(ordinals))


def test_a_single_negative_zero_survives_beside_repeated_keys() -> None:
    _, _, total = sums.sum_by_key(np.array([3]), np.array([1, 2, 2]), np.array([-0.0, 1.0, 2.0]))
    assert np.signbit(total).tolist() == [True, False]


@pytest.mark.parametrize("counts", [[2], [4], [-1, 4], [2**62, 2**62], []])
def test_counts_must_add_up_to_the_keys(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="counts"):
        sums.sum_by_key(np.array(counts, np.int64), np.arange(3), np.ones(3))


# ---- moves


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("order_dtype", [np.int32, np.int64])
def test_take_and_put_are_numpy_indexing(order_dtype: Any, dtype: Any, width: int) -> None:
    rng = np.random.default_rng(5)
    shape = (50,) if width == 1 else (50, width)
    values = (rng.standard_normal(shape) * 1000).astype(dtype)
    order = rng.permutation(50).astype(order_dtype)
    out = np.zeros_like(values)
    arrays.take(values, order, out)
    assert (out == values[order]).all()
    arrays.put(out.copy(), order, out)
    assert (out == values).all()
    arrays.put(unaligned(values)[:2], np.array([7, 7], order_dtype), out)
    assert (out[7] == values[1]).all()


def test_an_index_out_of_range_is_named_and_nothing_is_written() -> None:
    out = np.zeros(3)
    order = np.array([0, 3, -1], np.int32)
    with pytest.raises(ValueError, match=r"order\[1\] is 3, outside 0..2"):
        arrays.take(np.ones(3), order, out)
    with pytest.raises(ValueError, match=r"order\[0\] is -1, outside 0..2"):
        arrays.put(np.ones(1), order[2:], out)
    assert (out == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_number_that_is_not_finite_is_found(dtype: Any, bad: float) -> None:
    values = np.full((700, 3), np.finfo(dtype).max, dtype)
    assert arrays.any_nonfinite(values) == -1
    values[500, 2] = values[600, 0] = bad
    assert arrays.any_nonfinite(values) == 1502
    assert arrays.any_nonfinite(unaligned(values)) == 1502


def test_integers_are_finite() -> None:
    assert arrays.any_nonfinite(np.full(9, -1)) == -1
    assert arrays.any_nonfinite(np.full(9, 0x7F800000, np.int32)) == -1


# ---- fingerprints


@given(int64s, st.integers(0, 200), st.integers(0, 2**64 - 1))
def test_a_fingerprint_does_not_depend_on_the_pieces(case: Array, at: int, state: int) -> None:
    pieces = keys.fingerprint(case[at:], keys.fingerprint(case[:at], state))
    assert pieces == keys.fingerprint(case, state)


def test_a_fingerprint_depends_on_order_length_and_seed() -> None:
    cases = [[1, 2, 3], [1, 3, 2], [3, 2, 1], [1, 2], [1, 2, 3, 0], [0], [0, 0], []]
    found = {keys.fingerprint(np.array(case, np.int64), seed) for case in cases for seed in (0, 1)}
    assert len(found) == 2 * len(cases)


def test_a_fingerprint_is_the_same_on_every_machine() -> None:
    assert keys.fingerprint(np.array([1, 2, 3])) == 0x10C5FDB9D1630E80


# ---- doors


def test_unaligned_and_read_only_memory_is_welcome() -> None:
    case = ADVERSARIAL["repeated"]
    slot = np.arange(8, dtype=np.int32)
    for got, want in zip(
        keys.partition_sort(unaligned(case), 8, None, unaligned(slot)),
        keys.partition_sort(case, 8, None, slot),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)
    assert (sums.unique(unaligned(case))[0] == sums.unique(case)[0]).all()
    assert keys.fingerprint(unaligned(case)) == keys.fingerprint(case)
    with pytest.raises(ValueError, match="out must be writable"):
        arrays.take(np.ones(3), slot[:3], unaligned(np.ones(3)))


def test_an_output_must_be_aligned() -> None:
    memory = bytearray(33)
    with pytest.raises(ValueError, match="out must be aligned"):
        arrays.take(np.ones(3), np.arange(3), np.frombuffer(memory, np.float64, 3, offset=1))


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        (EDGES.astype(float), TypeError, "keys must be int64, not float64"),
        (EDGES.astype(np.uint64), TypeError, "keys must be int64, not uint64"),
        (EDGES.astype(">i8"), TypeError, "keys must be int64, not >i8"),
        (EDGES.tolist(), TypeError, "keys must be an array, not list"),
        (EDGES[::2], ValueError, "keys must be C-contiguous"),
        (EDGES.reshape(3, 3), ValueError, "keys must have 1 dimensions, not 2"),
        (np.array(5), ValueError, "keys must have 1 dimensions, not 0"),
    ],
)
def test_a_wrong_array_is_refused(wrong: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        keys.partition_of(wrong, 4)


def test_shapes_and_dtypes_must_agree() -> None:
    order = np.arange(3)
    with pytest.raises(TypeError, match="out must have the dtype of values, float64, not float32"):
        arrays.take(np.ones(3), order, np.ones(3, np.float32))
    with pytest.raises(ValueError, match="rows of one shape"):
        arrays.take(np.ones((3, 2)), order, np.ones((3, 4)))
    with pytest.raises(ValueError, match="order has 3 rows but out has 4"):
        arrays.take(np.ones(3), order, np.ones(4))
    with pytest.raises(ValueError, match="keys has 3 rows but values has 4"):
        sums.sum_by_key(np.array([3]), order, np.ones(4))
