from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sparkps.spark.rows import HASH, RowStream, resliced


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
    def batches() -> object:
        for i in range(20):
            yield pa.record_batch({"x": np.full(100_000, i)})

    before, most = pa.total_allocated_bytes(), 0
    for _ in resliced(batches(), 30_000):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most <= 3 * 800_000


def hashed(hashes: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"x": list(range(len(hashes))), HASH: pa.array(hashes, pa.int64())})


def test_the_hash_column_is_cut_off_and_folded_into_the_fingerprint() -> None:
    stream = RowStream([hashed([5, -7]), hashed([9])], 2)
    assert [batch.schema.names for batch in stream] == [["x"], ["x"]]
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
