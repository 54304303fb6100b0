"""Connections and commands."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.errors import SnapshotFailed
from sparkps.server.core import Door, ServerCore
from sparkps.spec import SessionSpec, TableInfo, TableSpec, View
from sparkps.wire import messages as m
from sparkps.wire import userfn
from sparkps.wire.auth import TICKET_SECONDS, Admission, Secret, new_ticket
from sparkps.wire.effects import Cut, Exit, Log, Send, TakeSnapshot, ToCoordinator
from sparkps.wire.frames import decode_from_server, encode


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


# -- who is admitted -------------------------------------------------------------------------------

KEY = Secret("3c" * 32).derive("ticket")
#: The coordinator's time when the server's is 0.
NOW = 5000.0


class Port:
    """A core's listener that asks for tickets."""

    def __init__(self, *, admission: bool = True) -> None:
        self.core = ServerCore(
            0,
            7,
            limit=1 << 30,
            max_bytes=1 << 20,
            keysets_max_bytes=1 << 20,
            loads=userfn.loads,
            admission=Admission(KEY, 0, 7) if admission else None,
        )
        self.core.command(m.Joined(m.VERSION, View(0), 1.0, NOW), 0.0)

    def hello(self, *, key: bytes = KEY, now: float = NOW, server: int = 0) -> list[bytes]:
        ticket = new_ticket(key, b"me", server, 7, now)
        return encode(m.Hello(m.VERSION, b"me", 0, 7, ticket))

    def say(self, peer: str, frames: list[bytes], *, door: Door = Door.TICKET, now: float = 0.0):
        """The answer, and whether the connection is cut after it."""
        send, *cut = self.core.received(peer, door, frames, now)
        assert isinstance(send, Send)
        assert send.peer == peer
        assert cut in ([], [Cut(peer)])
        return decode_from_server(send.frames)[0], bool(cut)


def test_a_ticket_admits_a_connection_for_as_long_as_it_lasts():
    port = Port()
    assert port.say("new", port.hello()) == (m.Welcome(m.VERSION, 0, 7, 1 << 20), False)
    assert port.say("new", encode(m.Ping(3)), now=1e6) == (m.Acked(3), False)
    assert port.say("new", port.hello())[0] == m.Welcome(m.VERSION, 0, 7, 1 << 20)


@pytest.mark.parametrize(
    "frames",
    [
        encode(m.Hello(m.VERSION, b"me", 0, 7)),
        encode(m.Hello(m.VERSION, b"me", 0, 7, bytes(56))),
        Port().hello(key=Secret("3d" * 32).derive("ticket")),
        Port().hello(server=1),
        Port().hello(now=NOW - TICKET_SECONDS - 1),
    ],
    ids=["none", "zeros", "another key", "another server", "expired"],
)
def test_without_a_good_ticket_a_connection_ends(frames):
    port = Port()
    answer, cut = port.say("new", frames)
    assert (answer.id, answer.code, cut) == (0, "NotAdmitted", True)
    answer, cut = port.say("new", encode(m.Ping(3)))
    assert ("before Hello" in answer.fields["reason"], cut) == (True, True)


def test_a_ticket_that_was_seen_on_the_way_is_of_no_use():
    port = Port()
    hello = port.hello()
    port.say("new", hello)
    answer, cut = port.say("thief", hello)
    assert (answer.fields["reason"], cut) == ("the ticket was used before", True)
    port.core.disconnected("new")
    assert port.say("thief", hello)[0].code == "NotAdmitted"
    assert port.say("new", encode(m.Ping(3)))[0].code == "MalformedRequest"


def test_tickets_expire_by_the_coordinator_s_time():
    port = Port()
    assert port.say("new", port.hello(now=NOW + 100), now=100.0)[1] is False
    assert port.say("late", port.hello(now=NOW), now=100.0)[0].code == "NotAdmitted"


def test_a_stranger_is_answered_once_whatever_he_says():
    port = Port()
    for frames in ([b""], [b"\xff" * 100], encode(m.Ping(1)), encode(m.Welcome(1, 0, 7, 1))):
        assert port.say("stranger", frames)[1] is True
    assert port.core.received("stranger", Door.OPEN, [b"junk"], 0.0)[-1] == Cut("stranger")


def test_what_a_known_connection_gets_wrong_does_not_end_it():
    port = Port()
    port.say("new", port.hello())
    for frames in ([b"junk"], encode(m.Hello(99, b"", 0, 7)), encode(m.Welcome(1, 0, 7, 1))):
        answer, cut = port.say("new", frames)
        assert (type(answer), cut) == (m.Refused, False)


def test_other_listeners_ask_for_no_ticket_and_one_without_a_key_admits_nobody():
    hello = encode(m.Hello(m.VERSION, b"me", 0, 7))
    assert Port().say("new", hello, door=Door.OPEN)[1] is False
    answer, cut = Port(admission=False).say("new", hello)
    assert (answer.fields["reason"], cut) == ("it admits nobody here", True)


def test_a_connection_with_a_ticket_may_not_send_functions():
    port = Port()
    port.core.command(m.SetView(1, View(1, (), (0,) * 64, (1,) * 64)), 0.0)
    port.core.command(m.AddTable(2, TableInfo(1, TableSpec("t", partitions=1))), 0.0)
    port.say("new", port.hello())
    slices = np.array([[0, 0, 0, -1, -1, -1]], np.int64)
    pickle = userfn.dumps((lambda part: 1 / 0, ()))
    function = encode(m.Function(3, 1, 0, 0, 0, 0, 1, 0), slices, pickle)
    answer, cut = port.say("new", function)
    assert (answer.code, cut) == ("FunctionRefused", False)
    named = encode(m.Function(4, 1, 0, 0, 0, 0, 1, 0, name="sum"), slices)
    assert isinstance(port.say("new", named)[0], m.Results)
