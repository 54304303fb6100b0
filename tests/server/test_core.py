"""Connections and commands."""

from __future__ import annotations

import numpy as np

from sparkps.errors import SnapshotFailed
from sparkps.spec import SessionSpec, TableInfo, TableSpec, View
from sparkps.wire import messages as m
from sparkps.wire.effects import Exit, Log, TakeSnapshot, ToCoordinator
from sparkps.wire.frames import encode


def test_hello_is_answered_with_who_this_is(server):
    assert server.hello("new") == (m.Welcome(m.VERSION, 0, 7, 1 << 20), [])


def test_nothing_is_served_before_hello(server):
    answer, _ = server.ask(encode(m.Ping(3)), "stranger")
    assert (answer.id, answer.code) == (3, "MalformedRequest")
    assert "before Hello" in answer.fields["reason"]


def test_another_version_and_another_incarnation_are_refused(server):
    answer, _ = server.ask(encode(m.Hello(99, b"", 0, 7)), "new")
    assert answer.code == "VersionMismatch"
    answer, _ = server.ask(encode(m.Hello(m.VERSION, b"", 0, 6)), "new")
    assert "incarnation 7" in answer.fields["reason"]
    assert server.ask(encode(m.Ping(3)), "new")[0].code == "MalformedRequest"


def test_a_ping_is_answered(server):
    assert server.ask(encode(m.Ping(3))) == (m.Acked(3), [])


def test_a_broken_header_is_refused_under_id_0(server):
    answer, _ = server.ask([b"\xff\xfe"])
    assert (answer.id, answer.code) == (0, "MalformedRequest")


def test_a_peer_that_left_must_say_hello_again(server):
    server.core.disconnected("me")
    server.core.disconnected("me")
    assert server.ask(encode(m.Ping(3)))[0].code == "MalformedRequest"


def test_commands_that_come_again_are_done(server):
    info = TableInfo(4, TableSpec("t", partitions=2))
    for _ in range(2):
        assert server.command(m.AddTable(1, info)) == m.Done(1)
        assert server.command(m.AddSession(2, SessionSpec(9, 1))) == m.Done(2)
        assert server.command(m.SetToken(3, 9, 0, 5)) == m.Done(3)
    for _ in range(2):
        assert server.command(m.RemoveSession(4, 9)) == m.Done(4)
        assert server.command(m.RemoveTable(5, 4)) == m.Done(5)
    assert server.command(m.SetToken(6, 9, 0, 5)).code == "SessionEnded"


def test_a_table_that_cannot_be_made_says_why(make_server):
    server = make_server(limit=1 << 20)
    spec = TableSpec("t", dim=1 << 20, partitions=1)
    assert server.command(m.AddTable(1, TableInfo(4, spec))).code == "MemoryLimit"
    assert server.core.state.tables == {}
    server.core.state.view = View(1)
    done = server.command(m.AddTable(1, TableInfo(4, TableSpec("t"))))
    assert "no owners" in done.fields["reason"]


def test_an_older_view_does_not_replace_a_newer_one(server):
    server.command(m.SetView(1, View(5, (), (0,) * 64, (5,) * 64)))
    server.command(m.SetView(1, View(4, (), (1,) * 64, (4,) * 64)))
    assert server.core.state.view.number == 5


def test_joined_brings_the_view_and_other_messages_are_ignored(server):
    assert server.core.command(m.Joined(m.VERSION, View(3), 1.0), 0.0) == []
    assert server.core.state.view.number == 3
    (effect,) = server.core.command(m.GangComplete(1), 0.0)
    assert isinstance(effect, Log)


def test_leave_is_acknowledged_before_the_exit(server):
    done, leaving = server.core.command(m.Leave(8), 0.0)
    assert done == ToCoordinator(m.Done(8))
    assert isinstance(leaving, Exit)
    assert leaving.status == 0


def test_a_snapshot_is_taken_by_the_shell_and_reported_once(server):
    table = server.table(dim=10)
    command = m.Snapshot(8, table, "/somewhere")
    assert server.core.command(command, 0.0) == [TakeSnapshot(8, table, "/somewhere")]
    assert server.core.command(command, 0.0) == [], "it is under way"
    entries = [{"partition": 0}]
    assert server.core.snapshot_done(8, entries) == [ToCoordinator(m.Done(8, entries))]
    assert server.core.snapshot_done(8, entries) == []


def test_a_snapshot_that_failed_or_of_no_table_says_so(server):
    (effect,) = server.core.command(m.Snapshot(8, 99, "/somewhere"), 0.0)
    assert effect.message.code == "SnapshotFailed"
    server.core.command(m.Snapshot(9, server.table(dim=10), "/somewhere"), 0.0)
    (effect,) = server.core.snapshot_done(9, SnapshotFailed(table="t", path="/x", reason="full"))
    assert (effect.message.op, effect.message.code) == (9, "SnapshotFailed")


def test_the_figures_of_the_heartbeat_are_numbers(server):
    rank, *_ = server.session()
    rank.push(server.table(), [1], [1.0])
    load = server.core.load()
    assert load["tables"] == load["sessions"] == 1.0
    assert 0 < load["bytes"] < load["limit"]


def test_dropping_a_table_gives_its_memory_back(server):
    rank, *_ = server.session(consistency="bsp")
    table = server.table()
    rank.push(table, np.arange(1000), np.ones(1000))
    server.command(m.RemoveTable(1, table))
    assert server.core.state.budget.used == 0
