from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkps import csr
from sparkps.errors import InvalidArgument, InvalidInput, WrongType
from sparkps.spark.batches import CSR, column

VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())),
        pa.field("values", pa.list_(pa.float64())),
    ]
)


def sparse(size: int, entries: dict[int, float]) -> dict[str, Any]:
    return {"type": 0, "size": size, "indices": list(entries), "values": list(entries.values())}


def dense(*values: float) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def vectors(*rows: dict[str, Any] | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(rows, VECTOR)], names=["features"])


def rows_of(x: CSR) -> list[list[tuple[int, float]]]:
    """The rows as (key, value) pairs."""
    values = np.ones(x.nnz) if x.values is None else x.values
    pairs = list(zip(x.distinct[x.columns].tolist(), values.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(x.indptr[:-1], x.indptr[1:], strict=True)]


class Recorder:
    """A vocabulary that numbers keys as they come."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def add(self, keys: np.ndarray) -> np.ndarray:
        return np.array(
            [self.known.setdefault(k, len(self.known)) for k in keys.tolist()], np.int32
        )


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int16()), pa.list_(pa.uint32())],
)
def test_an_array_of_ids_has_values_of_one(kind: pa.DataType) -> None:
    x = csr(pa.record_batch([pa.array([[7, 3], [], [3]], kind)], names=["ids"]), "ids")
    assert rows_of(x) == [[(7, 1), (3, 1)], [], [(3, 1)]]
    assert x.values is None
    assert x.columns.dtype == np.int32
    assert x.keys is not None
    assert x.keys.dtype == np.int64


def test_b04_ids_of_64_bits_stay_apart() -> None:
    ids = [2, 2**32 + 2, 2**40 + 7, 2**63 - 1, -(2**63)]
    x = csr(pa.record_batch({"ids": [ids]}), "ids")
    assert x.keys is not None
    assert x.keys.tolist() == ids
    assert x.columns.tolist() == [0, 1, 2, 3, 4]


def test_lists_of_fixed_size_are_rows_too() -> None:
    ids = pa.array([[1, 2], [3, 4], [5, 1]], pa.list_(pa.int64(), 2))
    assert rows_of(csr(pa.record_batch([ids], names=["ids"]).slice(1), "ids")) == [
        [(3, 1), (4, 1)],
        [(5, 1), (1, 1)],
    ]


def test_values_come_from_their_own_column() -> None:
    batch = pa.record_batch({"ids": [[7, 3], [9]], "x": [[0.5, 2.0], [1.0]]})
    x = csr(batch, "ids", "x")
    assert rows_of(x) == [[(7, 0.5), (3, 2.0)], [(9, 1.0)]]
    assert x.values is not None
    assert x.values.dtype == np.float32


def test_a_struct_holds_ids_and_values_whatever_they_are_called() -> None:
    kind = pa.struct([("w", pa.list_(pa.float32())), ("i", pa.list_(pa.int64()))])
    rows = pa.array([{"w": [0.5], "i": [2**40]}, {"w": [], "i": []}], kind)
    assert rows_of(csr(pa.record_batch([rows], names=["f"]), "f")) == [[(2**40, 0.5)], []]


def test_sparse_and_dense_vectors_of_the_same_numbers_are_the_same_rows() -> None:
    x = csr(vectors(sparse(3, {2: 5.0, 0: 2.0}), dense(2, 0, 5), dense(0, 0, 0)), "features")
    assert [sorted(row) for row in rows_of(x)] == [[(0, 2.0), (2, 5.0)]] * 2 + [[]]
    assert x.size == 3


def test_only_sparse_vectors_come_through_as_they_are() -> None:
    x = csr(vectors(sparse(4, {1: 1.0}), sparse(4, {}), sparse(4, {3: 1.0, 1: 1.0})), "features")
    assert rows_of(x) == [[(1, 1)], [], [(3, 1), (1, 1)]]
    assert x.values is None


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_any_slice_of_a_batch_gives_its_own_rows(start: int) -> None:
    batch = pa.record_batch(
        {
            "ids": [[1, 2], [3], [], [4, 5, 6]],
            "x": [[0.1, 0.2], [0.3], [], [0.4, 0.5, 0.6]],
            "features": pa.array(
                [sparse(9, {1: 1.5}), dense(*[3.0] * 9), sparse(9, {}), sparse(9, {4: 2.0})], VECTOR
            ),
        }
    )
    for columns in (("ids",), ("ids", "x"), ("features",)):
        whole = rows_of(csr(batch, *columns))
        assert rows_of(csr(batch.slice(start), *columns)) == whole[start:]
        assert rows_of(csr(batch.slice(start, 1), *columns)) == whole[start : start + 1]


def test_an_empty_batch_has_no_rows() -> None:
    for batch in (
        vectors(),
        pa.record_batch([pa.array([], pa.list_(pa.int64()))], names=["features"]),
    ):
        x = csr(batch, "features")
        assert (x.rows, x.nnz, len(x.distinct)) == (0, 0, 0)


def test_a_vocabulary_turns_keys_into_ordinals() -> None:
    vocabulary = Recorder()
    vocabulary.add(np.array([3]))
    x = csr(pa.record_batch({"ids": [[7, 3], [7]]}), "ids", vocabulary=vocabulary)
    assert x.keys is None
    assert x.ordinals is not None
    assert x.ordinals.tolist() == [1, 0]
    assert x.columns.tolist() == [0, 1, 0]


def test_nothing_of_the_batch_stays_alive() -> None:
    before = pa.total_allocated_bytes()
    batch = pa.record_batch({"ids": [list(range(1000))] * 100, "x": [[0.5] * 1000] * 100})
    x = csr(batch, "ids", "x")
    del batch
    assert pa.total_allocated_bytes() == before
    assert x.nnz == 100_000


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_b06_b07_ids_of_a_row_may_be_unsorted_and_repeated_ones_add_up(order: list[int]) -> None:
    ids, values = np.array([3, 1, 3])[order], np.array([1.0, 1.0, 2.0])[order]
    batch = pa.record_batch({"ids": [ids.tolist()], "x": [values.tolist()]})
    x = csr(batch, "ids", "x")
    w = np.where(x.distinct == 3, 10.0, 1.0).astype(np.float32)
    assert x.dot(w).tolist() == [31.0]
    assert x.dot_t(np.array([2.0], np.float32))[x.distinct == 3].tolist() == [6.0]


def test_products_take_several_columns() -> None:
    x = csr(pa.record_batch({"ids": [[7, 3], [3]]}), "ids")
    w = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
    assert x.dot(w).tolist() == [[11, 22, 33], [10, 20, 30]]
    assert x.dot_t(np.array([[1, 0, 0], [0, 1, 0]], np.float32)).tolist() == [[1, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize(
    ("data", "names", "words"),
    [
        ({"ids": [[1], None, None]}, ("ids",), "row 1 of its batch: 2 of 3 rows have no value"),
        ({"ids": [[1], [2, None]]}, ("ids",), "row 1 of its batch: 1 of 2 rows have null ids"),
        ({"ids": [[1], [2]], "x": [[1.0], None]}, ("ids", "x"), "'x', row 1 of its batch"),
        ({"ids": [[1], [2]], "x": [[1.0], [None]]}, ("ids", "x"), "1 of 2 rows have null values"),
        (
            {"ids": [[1], [2]], "x": [[1.0], [np.nan]]},
            ("ids", "x"),
            "1 of 2 rows have NaN or infinite",
        ),
        (
            {"ids": [[1], [2]], "x": [[-np.inf], [1e300]]},
            ("ids", "x"),
            "2 of 2 rows have NaN or infinite",
        ),
        ({"ids": [[1], [2, 3]], "x": [[1.0], [1.0]]}, ("ids", "x"), "2 ids and 1 values"),
    ],
)
def test_b08_a_bad_row_is_refused_with_its_place(
    data: dict[str, Any], names: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        csr(pa.record_batch(data), *names)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((sparse(3, {1: 1.0}), sparse(4, {1: 1.0})), "several sizes: 4 here and 3 in row 0"),
        ((sparse(3, {1: 1.0}), dense(1, 2)), "several sizes: 2 here and 3"),
        ((sparse(3, {1: 1.0}), sparse(3, {3: 1.0})), "row 1 .* outside of their vectors' size 3"),
        ((sparse(3, {-1: 1.0}),), "outside"),
        ((sparse(3, {1: float("nan")}), dense(1, 2, float("inf"))), "2 of 2 rows have NaN"),
        ((sparse(3, {1: 1.0}), None), "row 1 .* no value"),
    ],
)
def test_b03_b08_a_bad_vector_is_refused_with_its_place(rows: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        csr(vectors(*rows), "features")


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (pa.array([[1.0]]), "ids of column 'ids' is float64"),
        (pa.array([["a"]]), "array of string; array of numbers .*xxhash64 makes ids"),
        (pa.array([1]), "int64"),
        (pa.array([[2**63]], pa.list_(pa.uint64())), "uint64 9223372036854775808"),
        (pa.array([{"a": [1]}]), "struct"),
    ],
)
def test_other_types_are_refused(array: pa.Array, got: str) -> None:
    with pytest.raises(WrongType, match=got):
        csr(pa.record_batch([array], names=["ids"]), "ids")


def test_a_column_must_be_there_once() -> None:
    batch = pa.record_batch([pa.array([[1]]), pa.array([[1]])], names=["特征 列", "特征 列"])
    with pytest.raises(InvalidArgument, match="2 of the columns 特征 列, 特征 列 are called so"):
        csr(batch, "特征 列")
    with pytest.raises(InvalidArgument, match="no such column; there are 特征 列, 特征 列"):
        csr(batch, "ids")


def test_a_number_column_is_cast_and_checked() -> None:
    batch = pa.record_batch(
        {"a": [1, 2], "b": [True, False], "c": [1.5, None], "d": [1.0, np.nan], "e": ["x", "y"]}
    )
    assert column(batch, "a").tolist() == [1.0, 2.0]
    assert column(batch, "b", "int64").tolist() == [1, 0]
    with pytest.raises(InvalidInput, match="row 1 of its batch: 1 of 2 rows have nulls"):
        column(batch, "c")
    with pytest.raises(InvalidInput, match="NaN"):
        column(batch, "d")
    with pytest.raises(WrongType, match="string"):
        column(batch, "e")
    with pytest.raises(WrongType, match="a number that fits int64"):
        column(batch, "d", "int64")


def test_the_repr_fits_a_line() -> None:
    x = csr(pa.record_batch({"ids": [[7, 3], [3]]}), "ids")
    assert repr(x) == "<CSR 2 rows, 3 non-zeros (all 1), 2 keys>"
