from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from sparkps.errors import InvalidInput, WrongType
from sparkps.spark.rows import HASH, Cutter, RowStream


def resliced(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    cutter = Cutter(rows)
    for batch in batches:
        yield from cutter.put(batch)
    yield from cutter.rest()


def numbered(*sizes: int) -> list[pa.RecordBatch]:
    start, batches = 0, []
    for size in sizes:
        batches.append(pa.record_batch({"x": np.arange(start, start + size)}))
        start += size
    return batches


@pytest.mark.parametrize(
    "sizes", [(), (0,), (1,), (10,), (3, 0, 7, 1), (4, 4, 4), (1,) * 9, (100, 3)]
)
@pytest.mark.parametrize("rows", [1, 2, 4, 1000])
def test_batches_have_the_asked_size_and_the_same_rows(sizes: tuple[int, ...], rows: int) -> None:
    batches = list(resliced(numbered(*sizes), rows))
    values = [value for batch in batches for value in batch.column("x").to_pylist()]
    assert values == list(range(sum(sizes)))
    assert all(batch.num_rows == rows for batch in batches[:-1])
    assert all(0 < batch.num_rows <= rows for batch in batches)


def test_only_a_batch_across_a_boundary_is_copied() -> None:
    first, second = numbered(6, 6)
    got = list(resliced([first, second], 4))
    addresses = [batch.column("x").buffers()[1].address for batch in got]
    inside = [
        range(b.column("x").buffers()[1].address, b.column("x").buffers()[1].address + 48)
        for b in (first, second)
    ]
    assert [any(address in span for span in inside) for address in addresses] == [True, False, True]


def test_an_arrow_batch_is_let_go_once_its_rows_are_out() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(20):
            yield pa.record_batch({"x": np.full(100_000, i)})

    before, most = pa.total_allocated_bytes(), 0
    for _ in resliced(batches(), 30_000):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most <= 3 * 800_000


@pytest.mark.parametrize("validation", [None, "held"])
def test_a_stream_keeps_no_batch_while_the_next_is_read(validation: str | None) -> None:
    alive = []

    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(5):
            alive.append(pa.total_allocated_bytes() - before)
            held = pa.array(np.arange(100_000) % 4 == 0)
            hashes = np.full(100_000, i)
            yield pa.record_batch({"x": np.full(100_000, i), "held": held, HASH: hashes})

    before = pa.total_allocated_bytes()
    for rows in RowStream(batches(), 25_000, validation):
        del rows
    assert max(alive) <= 100_000  # at most an unfinished batch for validation


def hashed(hashes: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"x": list(range(len(hashes))), HASH: pa.array(hashes, pa.int64())})


def test_the_hash_column_is_cut_off_and_folded_into_the_fingerprint() -> None:
    stream = RowStream([hashed([5, -7]), hashed([9])], 2)
    assert [rows.batch.schema.names for rows in stream] == [["x"], ["x"]]
    assert stream.rows == 3
    assert stream.fingerprint == _fingerprint([[5, -7, 9]])


def _fingerprint(batches: list[list[int]]) -> int:
    stream = RowStream([hashed(hashes) for hashes in batches], 100)
    assert len(list(stream)) <= 1
    return stream.fingerprint


def test_the_fingerprint_depends_on_rows_and_order_and_not_on_batches() -> None:
    assert _fingerprint([[1, 2], [3]]) == _fingerprint([[1], [], [2, 3]])
    assert _fingerprint([[1, 2, 3]]) != _fingerprint([[1, 3, 2]])
    assert _fingerprint([[1, 2, 3]]) != _fingerprint([[1, 2]])


def marked(*held_out: bool | None) -> pa.RecordBatch:
    values = list(range(len(held_out)))
    hashes = pa.array(values, pa.int64())
    return pa.record_batch({"x": values, "held": pa.array(held_out, pa.bool_()), HASH: hashes})


def test_rows_for_validation_come_in_batches_of_their_own() -> None:
    stream = RowStream([marked(True, False, False), marked(False, True, True)], 2, "held")
    got = [(rows.validating, rows.batch.column("x").to_pylist()) for rows in stream]
    assert got == [(False, [1, 2]), (True, [0, 1]), (False, [0]), (True, [2])]
    assert stream.rows == 3
    assert stream.fingerprint == _fingerprint([[0, 1, 2, 0, 1, 2]])


def test_an_indicator_is_a_boolean_without_nulls() -> None:
    with pytest.raises(InvalidInput, match="'held': 1 of 2 rows of a batch are null"):
        list(RowStream([marked(True, None)], 2, "held"))
    with pytest.raises(WrongType, match=r"'x'.*int64.*boolean"):
        list(RowStream([marked(True)], 2, "x"))
