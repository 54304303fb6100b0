"""Pushes and assigns: ledgers, tokens, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.optim import SGD
from sparkps.spec import SessionSpec
from sparkps.wire import messages as m
from sparkps.wire.frames import encode

KEYS = np.array([5, -3, 2**62, 0, 77, 12345], np.int64)


def test_a_push_adds_and_a_pull_sees_it(server):
    table = server.table()
    rank, *_ = server.session()
    assert rank.push(table, KEYS, np.arange(6)) == (m.Acked(1), [])
    assert rank.pull(table, KEYS).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("dim", [None, 50])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_every_kind_of_table_adds(server, width, dim, dtype):
    table = server.table(width=width, dim=dim, dtype=dtype)
    rank, *_ = server.session()
    keys = np.arange(49, -1, -7)
    values = np.arange(len(keys) * width).reshape((len(keys), width) if width > 1 else -1)
    rank.push(table, keys, values)
    rank.push(table, keys, values)
    assert np.array_equal(rank.pull(table, keys), 2 * values)


def test_the_optimizer_sees_a_push_as_one_gradient(server):
    table = server.table(optimizer=SGD(lr=0.5))
    rank, *_ = server.session()
    rank.push(table, [1, 2], [1.0, -4.0])
    assert server.pull(table, [1, 2, 3]).tolist() == [-0.5, 2.0, 0.0]


def test_an_assign_sets(server):
    table = server.table(optimizer=SGD(lr=0.5))
    rank, *_ = server.session()
    rank.push(table, [1], [1.0])
    rank.push(table, [1, 9], [7.0, 8.0], kind=m.ASSIGN)
    assert server.pull(table, [1, 9]).tolist() == [7.0, 8.0]


def test_what_comes_again_is_acknowledged_and_not_applied(server):
    table = server.table()
    rank, *_ = server.session()
    frames = rank.pushed(table, KEYS, np.ones(6))
    server.ask(frames)
    message, statuses = server.ask(frames)
    assert message.code == ""
    assert set(statuses) == {m.DUPLICATE}
    assert server.pull(table, KEYS).tolist() == [1] * 6


def test_a_gap_is_refused_until_what_was_lost_comes(server):
    table = server.table()
    rank, *_ = server.session()
    first, second = rank.pushed(table, [1], [1.0]), rank.pushed(table, [1], [10.0])
    assert server.ask(second)[1] == [m.GAP]
    assert server.pull(table, [1]).tolist() == [0.0]
    server.ask(first)
    server.ask(second)
    assert server.pull(table, [1]).tolist() == [11.0]


def test_a_new_attempt_repeats_positions_and_only_new_ones_apply(server):
    table = server.table()
    rank, *_ = server.session()
    rank.push(table, [1], [1.0])
    rank.last, rank.clock, rank.seq, rank.token = {}, 0, 0, 999
    server.command(m.SetToken(1, rank.session, rank.rank, 999))
    assert rank.push(table, [1], [1.0])[1] == [m.DUPLICATE]
    assert rank.push(table, [1], [2.0])[1] == []
    assert server.pull(table, [1]).tolist() == [3.0]


def test_an_old_token_and_a_closed_session_are_refused(server):
    table = server.table()
    rank, *_ = server.session()
    server.command(m.SetToken(1, rank.session, 0, 999))
    message, _ = rank.push(table, [1], [1.0])
    assert (message.code, message.fields["rank"]) == ("TokenLost", 0)
    server.command(m.RemoveSession(1, rank.session))
    assert rank.push(table, [1], [1.0])[0].code == "SessionEnded"
    assert server.pull(table, [1]).tolist() == [0.0]


def test_a_write_without_a_session_says_not_in_run(server):
    table = server.table()
    rank, *_ = server.session()
    rank.session = 0
    assert rank.push(table, [1], [1.0])[0].code == "NotInRun"


def test_one_message_may_hold_new_and_old_slices(server):
    table = server.table()
    rank, *_ = server.session()
    rank.push(table, [1], [1.0])
    rank.last, rank.seq = {}, 0
    _, statuses = rank.push(table, range(20), np.ones(20))
    assert sorted(statuses) == [m.APPLIED] * 3 + [m.DUPLICATE]
    assert rank.pull(table, [1]).tolist() == [1.0]


def test_a_partition_that_is_not_here_is_not_mine(server):
    table = server.table(dim=40)
    server.hosted(table).table.array.close(1)
    server.hosted(table).open[1] = False
    rank, *_ = server.session()
    _, statuses = rank.push(table, [0, 10, 20], np.ones(3))
    assert statuses == [m.APPLIED, m.NOT_MINE, m.APPLIED]
    assert server.pull(table, [0, 20]).tolist() == [1.0, 1.0]
    answer, _ = server.pull(table, [0, 10])
    assert answer == m.NotMine(answer.id, 1)


def test_an_outdated_view_is_not_mine(server):
    table = server.table()
    rank, *_ = server.session()
    frames = rank.pushed(table, [1], [1.0])
    server.command(m.SetView(1, server.view.__class__(9, (), (0,) * 64, (9,) * 64)))
    assert server.ask(frames)[1] == [m.NOT_MINE]


def test_a_write_that_does_not_fit_is_refused_and_stays_refused(make_server):
    server = make_server(limit=1 << 20)
    table = server.table()
    rank, *_ = server.session()
    frames = rank.pushed(table, np.arange(100_000), np.ones(100_000))
    message, statuses = server.ask(frames)
    assert message.code == "MemoryLimit"
    assert set(statuses) == {m.REFUSED}
    assert message.fields["limit"] == 1 << 20
    assert server.ask(frames)[0].code == "MemoryLimit"
    assert rank.push(table, [1], [1.0])[1] == [], "the chain goes on behind a refused write"
    assert server.pull(table, [1, 2]).tolist() == [1.0, 0.0]


def test_two_tables_share_the_memory(make_server):
    server = make_server(limit=4 << 20)
    one, two = server.table(1), server.table(2)
    rank, *_ = server.session()
    keys = np.arange(40_000)
    assert rank.push(one, keys, keys)[0].code == ""
    rank.last = {}
    assert rank.push(two, keys, keys)[0].code == ""
    used = server.core.state.budget.used
    assert used <= 4 << 20
    server.command(m.RemoveTable(1, one))
    assert server.core.state.budget.used < used


def test_a_broken_key_of_a_dense_table_changes_nothing(server):
    table = server.table(dim=10)
    rank, *_ = server.session()
    good = rank.pushed(table, [1, 2], [1.0, 1.0])
    bad = [*good[:2], np.array([1, 9], np.int64), good[3]]
    message, _ = server.ask(bad)
    assert message.code == "MalformedRequest"
    assert "keys[1] is 9" in message.fields["reason"]
    assert server.ask(good)[1] == []
    assert server.pull(table, [1, 2]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("lie", ["count", "values", "kind", "clock", "partition"])
def test_lengths_that_do_not_fit_change_nothing(server, lie):
    table = server.table()
    rank, *_ = server.session()
    good = rank.pushed(table, [1, 2], [1.0, 1.0])
    frames = list(good)
    slices = frames[1].copy()
    if lie == "count":
        slices[0, 2] += 1
    elif lie == "partition":
        slices[0, 0] = 2**32
    elif lie == "values":
        frames[3] = frames[3][:1]
    else:
        changed = {"kind": 9} if lie == "kind" else {"clock": 2**63}
        push = m.Push(table=table, seq=0, **{**rank.header(), **changed})
        frames[0] = encode(push)[0]
    frames[1] = slices
    assert server.ask(frames)[0].code == "MalformedRequest"
    assert server.ask(good)[1] == []


def test_unknown_and_dropped_tables_are_named(server):
    rank, *_ = server.session()
    server.table(3)
    frames = rank.pushed(3, [1], [1.0])
    unknown = encode(m.Push(table=4, seq=0, **rank.header()), *frames[1:])
    answer, _ = server.ask(unknown)
    assert (answer.code, answer.fields["known"]) == ("TableNotFound", ["t3"])
    server.command(m.RemoveTable(1, 3))
    answer, _ = server.ask(frames)
    assert (answer.code, answer.fields["table"]) == ("TableDropped", "t3")


def test_a_bsp_write_of_no_rows_takes_the_table_for_its_run(server):
    server.table(1)
    rank, *_ = server.session(5, consistency="bsp")
    other, *_ = server.session(6)
    assert rank.push(1, [], [])[1] == []
    assert server.hosted(1).owner == 5
    assert other.push(1, [1], [1.0])[0].code == "TableBusy"
    assert other.push(1, [], [])[0].code == "TableBusy"


def test_the_driver_session_writes_at_once(server):
    table = server.table()
    driver, _ = server.session(8, size=1, driver=True, consistency="bsp")
    driver.push(table, [4], [2.0])
    assert server.pull(table, [4]).tolist() == [2.0]
    assert server.command(m.AddSession(1, SessionSpec(8, 1))).code == ""
