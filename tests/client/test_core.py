"""The client's core against a server that is played by the test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkps.client.calls import PullCall, Request, WriteCall
from sparkps.client.core import AGAIN, NEWS, TICKETS, ClientCore
from sparkps.client.seat import Seat
from sparkps.errors import (
    MalformedRequest,
    MemoryLimit,
    NotAdmitted,
    RequestTimeout,
    ServerLost,
    SessionEnded,
    TableBusy,
    VersionMismatch,
)
from sparkps.routing.placement import make_view
from sparkps.spec import ServerInfo
from sparkps.wire.effects import Connect, Disconnect, SendTo
from sparkps.wire.frames import as_array, decode_to_server, encode
from sparkps.wire.messages import (
    APPLIED,
    DUPLICATE,
    GAP,
    LATE,
    NOT_MINE,
    PLAIN,
    REFUSED,
    VERSION,
    Acked,
    Hello,
    NotMine,
    Pull,
    Push,
    Refused,
    Rows,
    ServerDown,
    UnknownRef,
    Welcome,
)


class Play:
    """A core, the messages it has sent to server 0, and the time."""

    def __init__(self, **options: Any) -> None:
        self.core = ClientCore(b"me", timeout=10.0, **options)
        self.core.view_changed(make_view(1, [ServerInfo(0, 7, "ipc:///s0", log="/logs/s0")]))
        self.now = 0.0
        self.sent: list[Any] = []
        self.slices: dict[int, list[list[int]]] = {}
        self.connections = 0
        self.seat = Seat(5, 0, 1, clock=3, synchronous=False)

    def do(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                self.connections += 1
            elif isinstance(effect, SendTo):
                message, buffers = decode_to_server(effect.frames)
                self.sent.append(message)
                if isinstance(message, Push):
                    self.slices[message.id] = as_array(buffers[0], np.int64, 6).tolist()
            else:
                assert isinstance(effect, Disconnect)

    def pull(self, cost: int = 1) -> PullCall:
        call = PullCall(np.zeros(2, np.float32), np.array([1, 0], np.int32), "t")
        buffers = [np.array([[0, 2]], np.int32), np.array([4, 5])]
        message = Pull(0, 1, 5, 0, 1, 3, 1)
        self.do(self.core.submit([Request(call, 0, message, buffers, cost, 0, 2)], self.now))
        return call

    def push(
        self, partitions: tuple[int, ...] = (0,), ref: bytes = b"", *, claims: bool = False
    ) -> WriteCall:
        chain = self.seat.chain(1, 4)
        call = WriteCall(self.seat, chain, "t")
        slices = np.array([(p, 0, 1, -1, -1, -1) for p in partitions], np.int64)
        seq = chain.add(slices, call.clock)
        message = Push(0, 1, 5, 0, 1, 3, 1, seq, 2 if ref else PLAIN, ref)
        n = len(partitions)
        keys, values = np.arange(n), np.ones(n, np.float32)
        buffers = [slices, values] if ref else [slices, keys, values]
        request = Request(call, 0, message, buffers, 1, 0, n)
        if ref:
            request.plain = lambda: [request.buffers[0], keys, values]
        requests = [request]
        if claims:
            nothing = [slices[:0], keys[:0], values[:0]]
            requests.append(Request(call, 0, Push(0, 1, 5, 0, 1, 3, 1, seq, PLAIN), nothing, 0))
        self.do(self.core.submit(requests, self.now))
        return call

    def push_in_parts(self, *partitions: int) -> WriteCall:
        """A write with a request for each of its slices."""
        chain = self.seat.chain(1, 4)
        call = WriteCall(self.seat, chain, "t")
        slices = np.array([(p, i, 1, -1, -1, -1) for i, p in enumerate(partitions)], np.int64)
        seq = chain.add(slices, call.clock)
        requests = []
        for i in range(len(partitions)):
            message = Push(0, 1, 5, 0, 1, 3, 1, seq, PLAIN, b"")
            buffers = [slices[i : i + 1], np.array([i]), np.ones(1, np.float32)]
            requests.append(Request(call, 0, message, buffers, 1, 0, 1))
        self.do(self.core.submit(requests, self.now))
        return call

    def reply(self, message: Any, *buffers: Any) -> None:
        self.do(self.core.received(0, encode(message, *buffers), self.now))

    def ack(self, number: int, *statuses: int, **error: Any) -> None:
        buffers = [np.array(statuses, np.uint8)] if statuses else []
        self.reply(Acked(number, **error), *buffers)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.core.tick(self.now))

    @property
    def ids(self) -> list[int]:
        """Ids of what was sent since the last look, without Hello."""
        found = [message.id for message in self.sent if not isinstance(message, Hello)]
        self.sent.clear()
        return found


@pytest.fixture
def play() -> Play:
    return Play()


def rows(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_hello_comes_first_and_nothing_waits_for_its_answer(play: Play) -> None:
    play.pull()
    assert play.sent[0] == Hello(VERSION, b"me", 0, 7)
    assert isinstance(play.sent[1], Pull)


def test_a_reply_is_put_in_the_caller_s_order(play: Play) -> None:
    call = play.pull()
    assert not call.done
    play.reply(Rows(play.ids[0]), rows(1, 2))
    assert call.done
    assert call.result().tolist() == [2, 1]


def test_replies_are_matched_by_id(play: Play) -> None:
    first, second = play.pull(), play.pull()
    one, two = play.ids
    play.reply(Rows(two), rows(3, 4))
    assert (first.done, second.done) == (False, True)
    play.reply(Rows(one), rows(1, 2))
    assert first.result().tolist() == [2, 1]


@pytest.mark.parametrize(
    "reply", [Rows(99), Acked(99), Refused(99, "MemoryLimit", {}), Welcome(1, 0, 7, 1)]
)
def test_a_reply_to_nothing_is_dropped(play: Play, reply: Any) -> None:
    call = play.pull()
    play.reply(reply, *([rows(1, 2)] if isinstance(reply, Rows) else []))
    assert not call.done


def test_beyond_the_window_requests_wait_for_room() -> None:
    play = Play(window=10)
    calls = [play.pull(cost=6) for _ in range(3)]
    assert play.core.backlog == 2
    for call in calls:
        (number,) = play.ids
        play.reply(Rows(number), rows(1, 2))
        assert call.done
    assert play.core.backlog == 0


def test_a_request_larger_than_the_window_goes_alone() -> None:
    play = Play(window=10)
    play.pull(cost=50)
    assert len(play.ids) == 1


def test_after_a_lost_connection_everything_unanswered_is_sent_again_in_order(play: Play) -> None:
    writes = [play.push(), play.push()]
    read = play.pull()
    before = play.ids
    play.do(play.core.lost(0, "cut", play.now))
    play.wait(0.1)
    assert play.connections == 2
    assert isinstance(play.sent[0], Hello)
    again = play.sent[1:]
    assert [type(message) for message in again] == [Push, Push, Pull]
    assert not {message.id for message in again} & set(before)
    play.ack(before[0])  # nobody's any more
    assert not writes[0].done
    for message in again[:2]:
        play.ack(message.id, DUPLICATE)
    play.reply(Rows(again[2].id), rows(1, 2))
    assert all(call.done and call.error is None for call in (*writes, read))


def test_a_lost_idle_connection_is_opened_when_it_is_needed(play: Play) -> None:
    play.pull()
    play.reply(Rows(play.ids[0]), rows(1, 2))
    play.do(play.core.lost(0, "cut", play.now))
    play.wait(5)
    assert play.connections == 1
    play.pull()
    assert play.connections == 2


def test_new_requests_go_behind_those_that_are_sent_again(play: Play) -> None:
    play.push()
    play.do(play.core.lost(0, "cut", play.now))
    play.push()
    play.sent.clear()
    play.wait(0.1)
    first, second = [play.slices[number] for number in play.ids]
    assert first[0][3:] == [-1, -1, -1]
    assert second[0][3:] == [3, 0, 0]


def test_a_gap_sends_all_unacknowledged_writes_again_oldest_first(play: Play) -> None:
    play.push(), play.push(), play.push()
    one, two, three = play.ids
    play.ack(two, GAP)
    again = play.ids
    assert [play.slices[number] for number in again] == [play.slices[n] for n in (one, two, three)]
    play.ack(three, GAP)  # to the first sending
    assert play.ids == []


def test_a_gap_before_the_oldest_write_ends_it(play: Play) -> None:
    call = play.push()
    play.ack(play.ids[0], GAP)
    with pytest.raises(
        MalformedRequest, match="server 0 has forgotten writes that it acknowledged"
    ):
        call.result()


def test_the_acknowledged_clock_waits_for_every_write(play: Play) -> None:
    play.push(), play.push()
    play.seat.clock = 4
    one, two = play.ids
    play.ack(one, APPLIED)
    assert play.seat.acknowledged == 3
    play.ack(two)
    assert play.seat.acknowledged == 4


def test_after_a_refused_write_the_later_ones_go_on_without_it(play: Play) -> None:
    play.seat.synchronous = True
    refused, later = play.push(), play.push()
    one, two = play.ids
    play.reply(Refused(one, *TableBusy(table="t", session="5").to_wire()))
    with pytest.raises(TableBusy, match="in a write of table 't'"):
        refused.result()
    play.ack(two, GAP)  # nobody's: it was sent again
    (again,) = play.ids
    assert play.slices[again][0][3:] == [-1, -1, -1]
    play.ack(again)
    assert later.error is None


def test_parts_of_a_refused_write_that_were_not_sent_are_not_sent(play: Play) -> None:
    play.core.window = 2
    busy = TableBusy(table="t", session="5").to_wire()
    call, later = play.push_in_parts(0, 0, 1, 0, 1), play.push((0, 1))
    one, _ = play.ids
    play.reply(Refused(one, *busy))
    with pytest.raises(TableBusy):
        call.result()
    again, last = play.ids
    assert play.slices[again] == [[0, 1, 1, -1, -1, -1]]
    assert [row[3:] for row in play.slices[last]] == [[3, 0, 1], [-1, -1, -1]]
    assert play.core.backlog == 0
    play.reply(Refused(again, *busy))
    (last,) = play.ids
    assert [row[3:] for row in play.slices[last]] == [[-1, -1, -1]] * 2
    assert play.seat.outstanding == {3: 1}
    play.ack(last)
    assert later.error is None
    assert not play.seat.outstanding


def test_parts_of_a_write_that_has_timed_out_are_not_sent_once_one_is_refused() -> None:
    play = Play(window=1)
    call = play.push_in_parts(0, 0, 1)
    play.wait(11)
    with pytest.raises(RequestTimeout):
        call.result()
    assert play.core.backlog == 2
    play.reply(Refused(play.ids[-1], *TableBusy(table="t", session="5").to_wire()))
    assert play.core.backlog == 0
    assert not play.seat.outstanding


def test_an_error_says_what_became_of_the_other_parts(play: Play) -> None:
    code, fields = MemoryLimit(server=0, table="t", needed=1, used=2, limit=3).to_wire()

    def told(answered: int, sent: int) -> str:
        play.core.window = sent
        call = play.push_in_parts(0, 1, 2, 3)
        numbers = play.ids
        for number in numbers[:answered]:
            play.ack(number)
        play.ack(numbers[answered], REFUSED, code=code, fields=fields)
        for number in play.ids[-(sent - answered - 1) :]:
            play.ack(number)
        assert not play.seat.outstanding
        with pytest.raises(MemoryLimit) as error:
            call.result()
        return str(error.value).partition("write of table 't'")[2]

    assert told(answered=0, sent=1) == ")"
    assert told(answered=0, sent=2) == "; a part of it may be applied)"
    assert told(answered=1, sent=4) == "; a part of it was applied)"


def test_a_part_that_is_asked_again_may_be_applied(play: Play) -> None:
    code, fields = MemoryLimit(server=0, table="t", needed=1, used=2, limit=3).to_wire()
    call = play.push_in_parts(0, 1)
    one, two = play.ids
    play.ack(one, NOT_MINE)
    play.ack(two, REFUSED, code=code, fields=fields)
    with pytest.raises(MemoryLimit, match="a part of it may be applied"):
        call.result()


@pytest.mark.parametrize("taken", [True, False])
def test_a_claim_is_no_part_of_a_write(play: Play, taken: bool) -> None:
    code, fields = MemoryLimit(server=0, table="t", needed=1, used=2, limit=3).to_wire()
    call = play.push((0,), claims=True)
    write, claim = play.ids
    if taken:
        play.ack(claim)
    play.ack(write, REFUSED, code=code, fields=fields)
    with pytest.raises(MemoryLimit, match=r"in a write of table 't'\)"):
        call.result()


def test_a_write_that_was_sent_twice_may_be_applied_when_it_is_refused_as_a_whole(
    play: Play,
) -> None:
    call = play.push()
    play.do(play.core.lost(0, "cut", play.now))
    play.wait(0.1)
    play.reply(Refused(play.ids[-1], *TableBusy(table="t", session="5").to_wire()))
    with pytest.raises(TableBusy, match="a part of it may be applied"):
        call.result()


def test_writes_that_wait_behind_a_read_go_on_when_it_has_timed_out() -> None:
    play = Play(window=10)
    read, write = play.pull(cost=10), play.push()
    (number,) = play.ids
    play.wait(11)
    with pytest.raises(RequestTimeout):
        read.result()
    play.reply(Rows(number), rows(1, 2))
    play.ack(*play.ids)
    assert not play.core.backlog
    assert not play.seat.outstanding
    assert isinstance(write.error, RequestTimeout)
    later = play.pull(cost=10)
    play.reply(Rows(*play.ids), rows(1, 2))
    assert later.result().tolist() == [2, 1]


def test_what_came_too_early_is_given_up_with_a_refused_slice(play: Play) -> None:
    first, second = play.push((0,)), play.push((0, 1))
    one, two = play.ids
    code, fields = MemoryLimit(server=0, table="t", needed=1, used=2, limit=3).to_wire()
    play.ack(two, GAP, REFUSED, code=code, fields=fields)
    play.ack(one)
    with pytest.raises(MemoryLimit):
        second.result()
    assert first.error is None
    play.push((0, 1))
    assert [row[3:] for row in play.slices[play.ids[-1]]] == [[3, 0, 0], [-1, -1, -1]]


def test_a_partly_refused_write_says_so(play: Play) -> None:
    call = play.push((0, 1))
    code, fields = MemoryLimit(server=0, table="t", needed=1, used=2, limit=3).to_wire()
    play.ack(play.ids[0], APPLIED, REFUSED, code=code, fields=fields)
    with pytest.raises(MemoryLimit, match="a part of it was applied"):
        call.result()
    play.push((0, 1))
    assert [row[3:] for row in play.slices[play.ids[0]]] == [[3, 0, 0], [-1, -1, -1]]


def test_a_late_write_ends_the_session_s_work(play: Play) -> None:
    call = play.push()
    play.ack(play.ids[0], LATE)
    with pytest.raises(SessionEnded, match="a write of clock 3 came after its seal"):
        call.result()


def test_an_error_nobody_waits_for_is_kept_for_the_next_tick(play: Play) -> None:
    play.push()
    play.ack(play.ids[0], LATE)
    with pytest.raises(SessionEnded):
        play.seat.raise_error()


def test_what_a_server_does_not_serve_is_asked_again(play: Play) -> None:
    read, write, later = play.pull(), play.push(), play.push()
    one, two, three = play.ids
    play.reply(NotMine(one, 1))
    play.ack(two, NOT_MINE)
    play.ack(three, GAP)
    assert not read.done
    play.sent.clear()
    play.wait(AGAIN)
    assert [type(message) for message in play.sent] == [Pull, Push, Push]
    read_id, *writes = play.ids
    play.reply(Rows(read_id), rows(1, 2))
    for number in writes:
        play.ack(number)
    assert all(call.done and call.error is None for call in (read, write, later))


def test_rows_of_an_unknown_keyset_are_named_by_their_keys(play: Play) -> None:
    play.push(ref=b"k")
    play.push()
    play.reply(UnknownRef(play.ids[0], b"k"))
    first, second = play.sent
    assert (first.mode, first.ref) == (PLAIN, b"")
    assert play.slices[first.id][0][3:] == [-1, -1, -1]
    assert play.slices[second.id][0][3:] == [3, 0, 0]


def test_a_server_without_progress_fails_its_calls(play: Play) -> None:
    read, write = play.pull(), play.push()
    play.wait(9)
    play.reply(Welcome(VERSION, 0, 7, 1))
    play.wait(9)
    assert not read.done
    play.wait(2)
    with pytest.raises(RequestTimeout, match=r"no answer from server 0 for 10.0 s.*See /logs/s0"):
        read.result()
    with pytest.raises(RequestTimeout):
        write.result()
    assert play.core.deadline() is not None  # the write must still be acknowledged


def test_a_lost_server_fails_its_calls_and_every_later_one(play: Play) -> None:
    call = play.pull()
    play.do(
        play.core.server_down(
            ServerDown(0, "killed by signal 9", "  the end", "/logs/s0", ["t"], [1])
        )
    )
    with pytest.raises(ServerLost, match="killed by signal 9"):
        call.result()
    with pytest.raises(ServerLost, match=r"(?s)tables t, which.*Its log /logs/s0 ends:\n  the end"):
        play.core.check(1, [5])
    with pytest.raises(ServerLost):
        play.core.check(2, [0])
    play.core.check(2, [5])
    with pytest.raises(ServerLost):
        play.pull()


def test_a_server_that_left_the_view_and_cannot_be_reached_is_lost(play: Play) -> None:
    call = play.pull()
    play.core.view_changed(make_view(2, [ServerInfo(1, 7, "ipc:///s1")]))
    play.do(play.core.lost(0, "cut", play.now))
    play.wait(NEWS + 1)
    with pytest.raises(ServerLost, match="it left"):
        call.result()


def test_an_older_view_changes_nothing(play: Play) -> None:
    play.core.view_changed(make_view(3, [ServerInfo(1, 7, "ipc:///s1")]))
    play.core.view_changed(make_view(2, [ServerInfo(2, 7, "ipc:///s2")]))
    assert play.core.view.number == 3


def test_a_server_of_another_version_fails_everything_at_once(play: Play) -> None:
    calls = [play.pull(), play.push()]
    play.reply(Refused(0, *VersionMismatch(peer="server 0", theirs=2, ours=1).to_wire()))
    for call in calls:
        with pytest.raises(VersionMismatch, match="speaks protocol version 2"):
            call.result()
    assert play.seat.outstanding == {}


@pytest.mark.parametrize("frames", [[b""], [b"\xc1"], [b"\x90"], []])
def test_a_broken_reply_fails_the_calls_of_its_connection(play: Play, frames: list[bytes]) -> None:
    call = play.pull()
    play.do(play.core.received(0, frames, play.now))
    with pytest.raises(MalformedRequest):
        call.result()


@pytest.mark.parametrize("reply", [Acked(1), Rows(1)])
def test_a_reply_of_the_wrong_kind_or_size_is_an_error(play: Play, reply: Any) -> None:
    call = play.pull()
    play.reply(reply, *([rows(1)] if isinstance(reply, Rows) else []))
    with pytest.raises(MalformedRequest):
        call.result()
    assert not play.core.lanes[0].busy


def test_closing_fails_what_is_under_way(play: Play) -> None:
    calls = [play.pull(), play.push()]
    play.do(play.core.fail_all(ServerLost(server=0)))
    assert all(call.done for call in calls)
    assert play.core.deadline() is None


# -- connections that are changed, and tickets -----------------------------------------------------


def test_a_lane_that_moves_takes_what_is_under_way_with_it(play: Play) -> None:
    calls = [play.push(), play.pull(), play.push()]
    first, pull, second = play.ids
    play.do(play.core.moved(0))
    assert play.connections == 2
    assert [type(message) for message in play.sent] == [Hello, Push, Pull, Push]
    new = play.ids
    assert len({first, pull, second, *new}) == 6
    assert [play.slices[n] for n in (new[0], new[2])] == [play.slices[n] for n in (first, second)]
    # Of the old connection's replies one more was on its way: it is nobody's.
    play.ack(first)
    assert not any(call.done for call in calls)
    play.ack(new[0], DUPLICATE)  # the server had it from the old connection
    play.reply(Rows(new[1]), rows(1, 2))
    play.ack(new[2], APPLIED)
    assert all(call.done for call in calls)
    assert not play.seat.outstanding
    assert play.core.lanes[0].size == 0


def test_what_waits_for_room_goes_behind_what_moves() -> None:
    play = Play(window=10)
    for _ in range(3):
        play.pull(cost=10)
    (first,) = play.ids
    play.do(play.core.moved(0))
    (again,) = play.ids
    play.reply(Rows(again), rows(1, 2))
    assert len(play.ids) == 1
    assert play.core.backlog == 1
    assert first != again


def test_a_lane_that_is_not_up_does_not_move(play: Play) -> None:
    assert play.core.moved(0) == []
    play.pull()
    play.do(play.core.lost(0, "cut", play.now))
    assert play.core.moved(0) == []
    play.wait(0.02)
    assert play.connections == 2


def test_requests_that_wait_to_be_asked_again_survive_a_move(play: Play) -> None:
    call = play.pull()
    play.reply(NotMine(play.ids[0], 1))
    play.do(play.core.moved(0))
    assert play.ids == []
    play.wait(AGAIN)
    play.reply(Rows(play.ids[0]), rows(1, 2))
    assert call.result().tolist() == [2, 1]


def test_every_connection_has_a_ticket_of_its_own() -> None:
    made = iter(range(100))
    play = Play(ticket=lambda info: b"%d.%d" % (info.id, next(made)))
    play.pull()
    play.do(play.core.moved(0))
    play.do(play.core.lost(0, "cut", play.now))
    play.wait(0.02)
    tickets = [message.ticket for message in play.sent if isinstance(message, Hello)]
    assert tickets == [b"0.0", b"0.1", b"0.2"]


def refused(play: Play) -> None:
    error = NotAdmitted(peer="server 0", reason="the ticket has expired")
    play.reply(Refused(0, *error.to_wire()))


def test_a_ticket_that_waited_too_long_is_followed_by_another(play: Play) -> None:
    call = play.pull()
    refused(play)
    play.sent.clear()
    play.wait(0.02)
    assert play.connections == 2
    assert isinstance(play.sent[0], Hello)
    play.reply(Welcome(VERSION, 0, 7, 1))
    play.reply(Rows(play.ids[0]), rows(1, 2))
    assert call.result().tolist() == [2, 1]


def test_who_is_not_admitted_is_told_so_after_a_few_tickets(play: Play) -> None:
    call = play.pull()
    for _ in range(TICKETS):
        refused(play)
        assert not call.done
        play.wait(1.0)
    refused(play)
    with pytest.raises(NotAdmitted, match="server 0 does not admit this connection"):
        call.result()
    assert play.connections == TICKETS + 1
    assert play.now < 10
