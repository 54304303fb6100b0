"""Keys to row numbers, against a Python dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparkps.errors import MemoryLimit
from sparkps.kernels.index import KeyIndex, find, find_or_insert
from sparkps.kernels.keys import partition_of
from sparkps.kernels.partitions import PartitionArray

Array = NDArray[Any]
P = 8
EDGES = [0, -1, 1, 2**63 - 1, -(2**63), 7, 7, 2**53 + 1, 0]
CASES = {
    "none": np.empty(0, np.int64),
    "one": np.array([-9]),
    "all equal": np.full(500, 5),
    "edges": np.array(EDGES),
    "descending": np.arange(1000, 0, -1) << 40,
    "repeated": np.random.default_rng(1).integers(-40, 40, 999),
    "random": np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 30_011),
}


def table(dim: int | None = None, **options: Any) -> PartitionArray:
    pa = PartitionArray(P, 1, "float32", [("float32", False, 0.0)], dim=dim, **options)
    for p in range(P):
        pa.open(p)
    return pa


def message(keys: Array, dim: int | None = None) -> tuple[Array, Array]:
    """The groups of `keys`, and the keys in their order."""
    part_of = partition_of(keys, P, dim)
    counts = np.bincount(part_of, minlength=P)
    parts = np.array([(p, n) for p, n in enumerate(counts) if n], np.int32).reshape(-1, 2)
    return parts, keys[np.argsort(part_of, kind="stable")]


def rows_of(function: Any, pa: PartitionArray, parts: Array, keys: Array) -> tuple[int, Array]:
    out = np.full(len(keys), -77, np.int32)
    return function(pa, parts, keys, out), out


def unaligned(array: Array) -> Array:
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)


class SlowIndex:
    """What the kernels must do: one dict per partition."""

    def __init__(self) -> None:
        self.rows: list[dict[int, int]] = [{} for _ in range(P)]

    def insert(self, keys: Array) -> list[int]:
        owners = partition_of(keys, P, None).tolist()
        dicts = [self.rows[p] for p in owners]
        pairs = zip(dicts, keys.tolist(), strict=True)
        return [rows.setdefault(key, len(rows)) for rows, key in pairs]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rows_are_created_in_order_of_appearance_and_found_again(case: Array) -> None:
    pa, slow = table(), SlowIndex()
    parts, keys = message(case)
    misses, rows = rows_of(find, pa, parts, keys)
    assert misses == len(keys)
    assert (rows == -1).all()
    created, rows = rows_of(find_or_insert, pa, parts, keys)
    assert rows.tolist() == slow.insert(keys)
    assert created == pa.count() == len(set(case.tolist()))
    misses, found = rows_of(find, pa, parts, keys)
    assert misses == 0
    assert np.array_equal(found, rows)
    for p in range(P):
        assert pa.keys(p).tolist() == list(slow.rows[p])


def test_an_index_stays_right_through_many_messages_of_old_and_new_keys() -> None:
    rng, pa, slow = np.random.default_rng(3), table(), SlowIndex()
    for bits in range(1, 62, 3):
        parts, keys = message(rng.integers(-(2**bits), 2**bits, 1 + 40 * bits))
        _, rows = rows_of(find_or_insert, pa, parts, keys)
        assert rows.tolist() == slow.insert(keys)
    assert pa.count() == sum(map(len, slow.rows))


@settings(deadline=None)  # a busy machine is no error
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), max_size=70)))
def test_any_messages_do_what_a_dict_does(messages: list[list[int]]) -> None:
    pa, slow, index, ordinals = table(), SlowIndex(), KeyIndex(), dict[int, int]()
    for case in messages:
        parts, keys = message(np.array(case, np.int64))
        assert rows_of(find_or_insert, pa, parts, keys)[1].tolist() == slow.insert(keys)
        want = [ordinals.setdefault(key, len(ordinals)) for key in case]
        assert index.add(np.array(case, np.int64)).tolist() == want


def test_doublings_that_were_put_off_lose_no_key() -> None:
    pa = table()
    keys = np.random.default_rng(4).permutation(1_600_000)
    messages = [message(part) for part in np.split(keys, 8)]
    rows = [rows_of(find_or_insert, pa, *each)[1] for each in messages]
    assert pa.count() == len(keys)
    for each, want in zip(messages, rows, strict=True):
        assert np.array_equal(rows_of(find, pa, *each)[1], want)


def test_keys_that_collide_in_the_index_are_told_apart() -> None:
    candidates = np.arange(2_000_000)
    low = (splitmix64(candidates) & np.uint64(1023)) == 0
    parts, keys = message(candidates[low])
    pa = table()
    created, rows = rows_of(find_or_insert, pa, parts, keys)
    assert created == len(keys)
    assert np.array_equal(rows_of(find, pa, parts, keys)[1], rows)
    absent = message(candidates[low] + 2**62)
    assert (rows_of(find, pa, *absent)[1] == -1).all()


def splitmix64(keys: Array) -> Array:
    x = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def test_one_partition_may_have_two_groups() -> None:
    pa = table()
    keys = np.flatnonzero(partition_of(np.arange(900), P, None) == 3)[:100]
    parts = np.array([[3, 60], [3, 0], [3, 100]], np.int32)
    created, rows = rows_of(find_or_insert, pa, parts, np.concatenate([keys[:60], keys]))
    assert created == 100
    assert rows.tolist() == [*range(60), *range(100)]


@pytest.mark.parametrize("dim", [8, 1000, 12_347])
def test_dense_rows_are_distances_from_the_first_key(dim: int) -> None:
    pa = table(dim)
    parts, keys = message(np.random.default_rng(0).integers(0, dim, 500), dim)
    want = keys - np.array([p * dim // P for p in range(P)])[partition_of(keys, P, dim)]
    for function in (find, find_or_insert):
        missing_or_created, rows = rows_of(function, pa, parts, keys)
        assert missing_or_created == 0
        assert np.array_equal(rows, want)


@pytest.mark.parametrize("key", [-1, 124, 2**63 - 1, -(2**63)])
def test_a_dense_key_outside_its_partition_is_named(key: int) -> None:
    pa = table(1000)
    with pytest.raises(ValueError, match=rf"keys\[1\] is {key}, which does not belong"):
        rows_of(find, pa, np.array([[1, 2]], np.int32), np.array([200, key]))


def test_a_key_in_the_wrong_partition_is_never_created() -> None:
    pa = table()
    parts, keys = message(np.arange(100))
    parts[:, 0] = np.roll(parts[:, 0], 1)
    assert rows_of(find, pa, parts, keys)[0] == 100
    with pytest.raises(ValueError, match="does not belong to the partition"):
        rows_of(find_or_insert, pa, parts, keys)
    assert pa.count() == 0


def test_a_message_that_does_not_fit_under_the_limit_creates_nothing() -> None:
    pa = table(limit=100_000)
    parts, keys = message(np.arange(20_000))
    with pytest.raises(MemoryLimit, match=r"needs \d+ more bytes"):
        rows_of(find_or_insert, pa, parts, keys)
    assert pa.count() == 0
    pa.limit = None
    assert rows_of(find_or_insert, pa, parts, keys)[0] == 20_000


def test_read_only_unaligned_and_raw_inputs_are_taken() -> None:
    pa = table()
    parts, keys = message(np.arange(50))
    _, want = rows_of(find_or_insert, pa, parts, keys)
    raw_out = np.empty(50, np.int32)
    for given_parts, given_keys in (
        (unaligned(parts), unaligned(keys)),
        (parts.tobytes(), keys.tobytes()),
        (parts.ravel(), keys.data),
        (memoryview(parts.tobytes()), bytearray(keys.tobytes())),
    ):
        raw_out[:] = -5
        assert find(pa, given_parts, given_keys, raw_out) == 0
        assert np.array_equal(raw_out, want)


def bad_calls() -> dict[str, tuple[type[Exception], str, Any, Any, Any]]:
    parts, keys = np.array([[0, 2]], np.int32), np.array([1, 2])
    three, eighth, seventh = (
        np.add(parts, more, dtype=np.int32) for more in ([0, 1], [8, 0], [7, 0])
    )
    out = np.empty(2, np.int32)
    negative = np.array([[0, 3], [0, -1]], np.int32)
    frozen = np.frombuffer(bytes(8), np.int32)
    odd = np.frombuffer(bytearray(9), np.int32, count=2, offset=1)
    return {
        "count": (ValueError, "make 3 rows, but the message has 2", three, keys, out),
        "negative": (ValueError, "negative count", negative, keys, out),
        "partition": (ValueError, "partition 8 does not exist", eighth, keys, out),
        "closed": (ValueError, "partition 7 is not open", seventh, keys, out),
        "shape": (ValueError, "parts holds 3 numbers", np.zeros(3, np.int32), keys, out),
        "scalar": (ValueError, "at least one dimension", np.array(3, np.int32), keys, out),
        "bytes": (ValueError, "not a whole number of int64", parts, bytes(15), out),
        "out size": (ValueError, "out_rows holds 3", parts, keys, np.empty(3, np.int32)),
        "frozen": (ValueError, "out_rows is read-only", parts, keys, frozen),
        "odd": (ValueError, "out_rows is not aligned", parts, keys, odd),
        "strided": (ValueError, "keys must be C-contiguous", parts, np.arange(4)[::2], out),
        "dtype": (TypeError, "keys must be int64, not float64", parts, np.ones(2), out),
        "uint8": (TypeError, "keys must be int64, not uint8", parts, np.ones(16, np.uint8), out),
        "uint64": (TypeError, "keys must be int64, not uint64", parts, keys.astype("u8"), out),
        "big": (TypeError, "keys must be int64, not >i8", parts, keys.astype(">i8"), out),
        "list": (TypeError, "parts must be an array or a buffer, not list", [[0, 2]], keys, out),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_a_bad_argument_is_refused_at_the_door(name: str) -> None:
    kind, sentence, parts, keys, out = bad_calls()[name]
    pa = table()
    pa.close(7)
    for function in (find, find_or_insert):
        with pytest.raises(kind, match=sentence):
            function(pa, parts, keys, out)


def test_a_key_index_numbers_keys_by_first_appearance() -> None:
    index = KeyIndex()
    assert len(index) == 0
    assert index.keys().tolist() == []
    assert index.add(np.array(EDGES)).tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 0]
    assert index.find(np.array([7, 8, -1])).tolist() == [5, -1, 1]
    assert index.keys().tolist() == list(dict.fromkeys(EDGES))
    assert len(index) == 7


def test_a_key_index_grows_and_its_key_views_stay() -> None:
    index = KeyIndex()
    keys = np.random.default_rng(5).permutation(200_000) - 100_000
    index.add(keys[:50_000])
    view = index.keys()
    for begin in range(0, 200_000, 17_000):
        index.add(keys[begin : begin + 17_000])
    assert np.array_equal(view, keys[:50_000])
    assert np.array_equal(index.keys(), keys)
    assert np.array_equal(index.find(keys), np.arange(200_000))
    assert index.nbytes <= 200_000 * (9 + 11.5)
