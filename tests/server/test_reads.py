"""Pulls and scans."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.kernels.partitions import init_values
from sparkps.optim import Adam
from sparkps.spec import InitSpec
from sparkps.wire import messages as m
from sparkps.wire.frames import as_array, encode


def scanned(server, table, partitions, **options):
    """Keys and fields of a scan, and the number of chunks."""
    scan = m.Scan(id=1, table=table, view=1, **options)
    answers = server.answers(encode(scan, np.array(partitions, np.int32)))
    assert [chunk.more for chunk, _ in answers] == [True] * (len(answers) - 1) + [False]
    return answers


@pytest.mark.parametrize("width", [1, 5])
def test_an_absent_row_reads_as_its_initial_value_and_is_not_created(server, width):
    table = server.table(width=width, init=InitSpec("normal", 0.0, 0.5), seed=3)
    keys = np.array([2**63 - 1, -(2**63), 0, 17], np.int64)
    expected = init_values(("normal", 0.0, 0.5), 3, keys, width, "float32")
    assert np.array_equal(server.pull(table, keys), expected)
    assert server.hosted(table).table.array.count() == 0


def test_a_pull_of_a_key_twice_gives_it_twice(server):
    table = server.table()
    rank, *_ = server.session()
    rank.push(table, [5, 3], [1.0, 2.0])
    assert rank.pull(table, [5, 3, 5]).tolist() == [1.0, 2.0, 1.0]


def test_a_pull_of_nothing_gives_nothing(server):
    assert server.pull(server.table(width=4), []).shape == (0, 4)


def test_a_key_outside_a_dense_table_is_refused_and_others_are_served(server):
    table = server.table(dim=10)
    head = {"id": 1, "session": 0, "rank": 0, "token": 0, "clock": 0, "view": 1}
    parts = np.array([[0, 1]], np.int32)
    message, _ = server.ask(encode(m.Pull(table=table, **head), parts, np.array([-1], np.int64)))
    assert message.code == "MalformedRequest"
    assert "keys[0] is -1" in message.fields["reason"]
    assert server.pull(table, [9]).tolist() == [0.0]


def test_a_worker_must_hold_its_token_to_read(server):
    table = server.table()
    rank, *_ = server.session()
    rank.token = 1
    answer, _ = rank.pull(table, [1])
    assert answer.code == "TokenLost"


def test_a_scan_shows_partitions_in_order_and_rows_in_row_order(make_server):
    server = make_server(max_bytes=1000)
    table = server.table(optimizer=Adam(), width=2)
    rank, *_ = server.session()
    keys = np.random.default_rng(0).permutation(300)
    rank.push(table, keys, np.ones((300, 2)))
    answers = scanned(server, table, [2, 0, 3], fields=(0, 3))
    assert len(answers) > 3
    stored = server.hosted(table).table
    rows = [pair for chunk, _ in answers for pair in chunk.rows]
    assert [p for p, _ in rows] == sorted(p for p, _ in rows)
    for chunk, buffers in answers:
        assert sum(n for _, n in chunk.rows) == len(as_array(buffers[0], "int64"))
    joined = [
        np.concatenate([as_array(buffers[i], dtype) for _, buffers in answers])
        for i, dtype in enumerate(("int64", "float32", "int64"))
    ]
    order = (0, 2, 3)
    assert joined[0].tolist() == np.concatenate([stored.keys(p) for p in order]).tolist()
    values = np.concatenate([stored.field(p, 0) for p in order])
    assert joined[1].tolist() == values.ravel().tolist()
    assert joined[2].tolist() == np.concatenate([stored.field(p, 3) for p in order]).tolist()


def test_a_scan_may_count_only_or_leave_the_fields_out(server):
    table = server.table(dim=10, partitions=3)
    (chunk, buffers), *_ = scanned(server, table, [0, 1, 2], count_only=True)
    assert (chunk.rows, len(buffers)) == ([(0, 3), (1, 3), (2, 4)], 0)
    (_, buffers), *_ = scanned(server, table, [0, 2], fields=())
    assert as_array(buffers[0], "int64").tolist() == [0, 1, 2, 6, 7, 8, 9]


def test_a_scan_of_an_empty_table_is_one_empty_chunk(server):
    ((chunk, buffers),) = scanned(server, server.table(), [])
    assert (chunk.rows, [len(b) for b in buffers]) == ([], [0, 0])


def test_a_scan_that_would_not_fit_in_memory_is_refused(make_server):
    server = make_server(limit=3 << 20)
    table = server.table(dim=200_000)
    server.core.state.budget.take(server.hosted(table).table, server.core.state.budget.free - 1000)
    scan = encode(m.Scan(id=1, table=table, view=1), np.arange(4, dtype=np.int32))
    assert server.ask(scan)[0].code == "MemoryLimit"


def test_an_unknown_field_is_refused(server):
    scan = m.Scan(id=1, table=server.table(), view=1, fields=(1,))
    message, _ = server.ask(encode(scan, np.array([0], np.int32)))
    assert message.code == "MalformedRequest"
