"""Clocks, barriers, epochs and the end of runs."""

from __future__ import annotations

import pytest

from sparkps.errors import from_wire
from sparkps.spec import SessionSpec
from sparkps.wire.messages import (
    Begin,
    CloseSession,
    Continue,
    Denied,
    Ended,
    EpochEnded,
    GetStatus,
    OpenSession,
    Progress,
    Released,
    RemoveSession,
    Seal,
    SealAll,
    Slowest,
    Tick,
    Warned,
)
from tests.coordinator.stage import DRIVER, Stage


def released(stage, rank):
    return [(m.clock, m.sums) for m in stage.got(f"w{rank}", Released)]


def row(message):
    return {
        name: value for name, value in message.metrics.items() if name not in ("epoch", "seconds")
    }


# -- begin -----------------------------------------------------------------------------------------


def test_all_begin_when_all_have_read_their_rows():
    stage = Stage()
    stage.open(2)
    stage.register(0)
    stage.register(1)
    stage.ready(0, 3, rows=25)
    assert stage.got("w0", Begin) == []
    stage.ready(1, 5, rows=50)
    (begin,) = stage.got("w0", Begin)
    assert (begin.clocks, begin.rows, begin.clock, begin.epoch) == (5, (25, 50), 0, 0)
    assert len(stage.got("w1", Begin)) == 1


def test_a_rank_taken_over_while_others_read_does_not_need_to_be_waited_for():
    stage = Stage()
    stage.open(2)
    stage.register(0)
    stage.register(1)
    stage.ready(0, 3)
    stage.leave("w0")
    stage.ready(1, 3)
    assert len(stage.got("w1", Begin)) == 1
    stage.register(0, "again")
    assert stage.got("again", Begin) == []
    stage.ready(0, 3, who="again")
    assert len(stage.got("again", Begin)) == 1


@pytest.mark.parametrize(
    ("again", "reason"),
    [
        ((3, 29, 5), "29 rows, 30 before"),
        ((3, 30, 6), "30 rows as before, but others or in another order"),
    ],
)
def test_an_attempt_that_read_other_rows_fails_the_run(again, reason):
    stage = Stage()
    stage.open(1)
    stage.register(0)
    stage.ready(0, 3, rows=30, mark=5)
    stage.leave("w0")
    stage.register(0, "again")
    batches, rows, mark = again
    stage.ready(0, batches, rows=rows, mark=mark, who="again")
    (ended,) = stage.got(DRIVER, Ended)
    assert ended.code == "NonDeterministicInput"
    assert f"rank 0: this attempt read other rows than the one before ({reason})" in str(
        from_wire(ended.code, ended.fields)
    )


# -- bsp -------------------------------------------------------------------------------------------


def test_bsp_releases_a_clock_when_all_are_there_with_the_sums_in_order_of_rank():
    stage = Stage()
    stage.start([2, 2, 2], consistency="bsp")
    stage.tick(2, 1, loss=1e100, rows=1)
    stage.tick(0, 1, loss=1.0, rows=1)
    assert released(stage, 0) == []
    stage.tick(1, 1, loss=-1e100, rows=1)
    # (1.0 + -1e100) + 1e100 in order of rank is 0.0; in order of arrival it would be 1.0 lost
    # elsewhere.
    assert (
        released(stage, 0)
        == released(stage, 1)
        == released(stage, 2)
        == [(1, {"loss": (1.0 + -1e100) + 1e100, "rows": 3})]
    )


def test_an_epoch_ends_after_every_server_has_sealed_it():
    stage = Stage()
    stage.start([1, 1], consistency="bsp", epochs=2)
    stage.held = {Seal}
    stage.tick(0, 1, loss=1.0)
    stage.tick(1, 1, loss=2.0)
    assert {(peer, m.clock) for peer, m in stage.commands} == {("s0", 1), ("s1", 1)}
    stage.done(Seal, who="s0")
    assert stage.got(DRIVER, EpochEnded) == []
    assert released(stage, 0) == []
    stage.done(Seal)
    (ended,) = stage.got(DRIVER, EpochEnded)
    assert (ended.epoch, ended.wait, ended.clock, row(ended)) == (0, False, 1, {"loss": 3.0})
    assert released(stage, 0) == released(stage, 1) == [(1, {"loss": 3.0})]


def test_a_rank_that_has_run_out_of_batches_holds_nobody_back():
    stage = Stage()
    stage.start([3, 1], consistency="bsp")
    stage.tick(1, 1)
    stage.tick(0, 1)
    stage.tick(0, 2)
    assert [clock for clock, _ in released(stage, 0)] == [1, 2]


def test_an_epoch_does_not_end_before_a_rank_that_has_run_out_says_so():
    stage = Stage()
    stage.start([3, 1], consistency="bsp")
    stage.tick(1, 1)
    for clock in (1, 2, 3):
        stage.tick(0, clock)
    assert stage.got(DRIVER, EpochEnded) == []
    stage.tick(1, 3)
    assert [m.epoch for m in stage.got(DRIVER, EpochEnded)] == [0]
    assert [clock for clock, _ in released(stage, 1)][-1] == 3


def test_ranks_without_rows_take_part_in_every_epoch():
    stage = Stage()
    stage.start([2, 0], consistency="bsp", epochs=2)
    for epoch in range(2):
        stage.tick(1, 2 * epoch + 2)
        stage.tick(0, 2 * epoch + 1)
        stage.tick(0, 2 * epoch + 2)
        assert [m.epoch for m in stage.got(DRIVER, EpochEnded)] == [epoch]
        assert [clock for clock, _ in released(stage, 1)] == [2 * epoch + 2]
    stage.finish(0)
    stage.finish(1)
    assert stage.got(DRIVER, Ended)[0].code == ""


def test_a_run_without_any_rows_fails_before_it_begins():
    stage = Stage()
    stage.start([0, 0], consistency="bsp", epochs=2)
    assert stage.got("w0", Begin) == []
    assert stage.got(DRIVER, EpochEnded) == []
    ended = stage.got(DRIVER, Ended)[0]
    assert str(from_wire(ended.code, ended.fields)) == "the training DataFrame: it has no rows"


def test_ticks_that_come_twice_count_once():
    stage = Stage()
    stage.start([2, 2], consistency="bsp")
    for _ in range(3):
        stage.tick(0, 1, loss=1.0)
    stage.tick(1, 1, loss=2.0)
    assert released(stage, 0) == [(1, {"loss": 3.0})]
    stage.tick(0, 1, loss=1.0)
    stage.tick(0, 2, loss=10.0)
    stage.tick(1, 2, loss=20.0)
    assert row(stage.got(DRIVER, EpochEnded)[0]) == {"loss": 33.0}


def test_a_run_is_complete_after_the_last_epoch_all_results_and_the_last_seal():
    stage = Stage()
    stage.start([1, 1], consistency="bsp")
    stage.tick(0, 1)
    stage.tick(1, 1)
    stage.held = {Seal}
    stage.finish(0)
    stage.finish(1)
    assert [m.epoch for m in stage.got(DRIVER, EpochEnded)] == [0]
    assert stage.got(DRIVER, Ended) == []
    assert {m.clock for _, m in stage.commands} == {2}
    stage.done(Seal)
    assert stage.got(DRIVER, Ended) == [Ended(stage.session)]
    assert stage.ask(lambda n: CloseSession(n, stage.session)) == "done"
    assert [m.session for m in stage.got("s0", RemoveSession)] == [stage.session]


# -- attempts --------------------------------------------------------------------------------------


def test_a_rank_taken_over_goes_on_at_its_acknowledged_clock_with_state_and_sums():
    stage = Stage()
    stage.start([3, 3], consistency="bsp")
    stage.tick(0, 1, state=b"s1", loss=1.0)
    stage.tick(1, 1, loss=2.0)
    stage.tick(0, 2, state=b"s2", loss=5.0)
    stage.leave("w0")
    granted = stage.register(0, "again")
    assert (granted.clock, granted.state, granted.attempt) == (2, b"s2", 1)
    stage.ready(0, 3, who="again")
    # Clock 2 is not open yet: rank 1 is still busy with clock 1.
    assert stage.got("again", Begin) == []
    stage.tick(1, 2, loss=6.0)
    (begin,) = stage.got("again", Begin)
    assert (begin.clock, begin.last) == (2, {"loss": 11.0})
    stage.tick(0, 3, who="again", loss=7.0)
    stage.tick(1, 3, loss=8.0)
    assert row(stage.got(DRIVER, EpochEnded)[0]) == {"loss": 1.0 + 5.0 + 7.0 + 2.0 + 6.0 + 8.0}


def test_sums_are_kept_until_every_rank_has_passed_their_clock():
    stage = Stage()
    stage.start([5, 5], consistency="bsp")
    for rank in (0, 1):
        stage.tick(rank, 1, loss=float(rank))
    stage.tick(0, 2, loss=1.0)
    stage.leave("w1")
    stage.register(1, "again")
    stage.ready(1, 5, who="again")
    assert stage.got("again", Begin)[0].last == {"loss": 1.0}


def test_a_new_attempt_that_repeats_clocks_is_not_counted_twice():
    stage = Stage()
    stage.start([2, 2], consistency="asp")
    # The numbers of clocks 0 and 1 have come; only clock 0 is acknowledged.
    stage.say("w0", stage_tick(stage, 0, 1, [(0, {"n": 1}), (1, {"n": 1})]))
    stage.leave("w0")
    assert stage.register(0, "again").clock == 1
    stage.ready(0, 2, who="again")
    stage.tick(0, 2, who="again", n=1)
    stage.tick(1, 2, n=1)
    assert row(stage.got(DRIVER, EpochEnded)[0]) == {"n": 3}


def stage_tick(stage, rank, clock, numbers):
    return Tick(stage.session, rank, stage.token[f"w{rank}"], clock, numbers)


def test_a_workers_own_error_is_kept_and_another_attempt_may_come():
    stage = Stage()
    stage.start([2, 2], consistency="bsp")
    stage.fail(0, "ValueError: bad batch")
    assert stage.got(DRIVER, Ended) == []
    assert (
        stage.got(DRIVER, Warned)[0].text == "rank 0 on host (pid 10) failed: ValueError: bad batch"
    )
    assert stage.register(0, "again").attempt == 1
    stage.fail(0, "ValueError: bad batch, again", who="again")
    kept = stage.ask(lambda n: CloseSession(n, stage.session))
    assert (kept["rank"], kept["error"], kept["fatal"]) == (
        0,
        b"pickle:ValueError: bad batch, again",
        False,
    )
    (ended,) = stage.got("w1", Ended)
    assert ended.error == kept["error"]
    assert "rank 0 failed: ValueError: bad batch, again" in ended.fields["reason"]


def test_an_error_that_another_attempt_got_over_is_not_what_the_run_fails_of_later():
    stage = Stage()
    stage.start([2, 2], consistency="bsp")
    stage.fail(0, "ConnectionResetError: once")
    stage.register(0, "again")
    stage.ready(0, 2, who="again")
    assert stage.ask(lambda n: CloseSession(n, stage.session)) == "done"
    (ended,) = stage.got("w1", Ended)
    assert ended.error == b""
    assert "closed by the driver" in ended.fields["reason"]


def test_a_fatal_error_ends_the_run_for_everyone_at_once_and_for_retries():
    stage = Stage()
    stage.start([2, 2], consistency="bsp")
    stage.fail(1, "NotInRun: no", fatal=True)
    (ended,) = stage.got(DRIVER, Ended)
    assert ended.error == b"pickle:NotInRun: no"
    assert stage.got("w0", Ended) == [ended]
    stage.register(1, "again")
    assert stage.got("again", Ended) == [ended]
    assert [m.session for m in stage.got("s1", RemoveSession)] == [stage.session]
    assert stage.ask(lambda n: CloseSession(n, stage.session))["fatal"]


def test_a_message_with_an_old_token_changes_nothing():
    stage = Stage()
    stage.start([2], consistency="asp")
    old = stage.token["w0"]
    stage.leave("w0")
    stage.register(0, "again")
    stage.ready(0, 2, who="again")
    stage.token["again"] = old
    stage.tick(0, 2, who="again")
    assert stage.got(DRIVER, EpochEnded) == []


def test_a_lost_server_fails_the_run_with_its_status_and_last_lines():
    stage = Stage()
    stage.table("weights")
    stage.start([2, 2])
    stage.exited(1)
    (ended,) = stage.got(DRIVER, Ended)
    text = str(from_wire(ended.code, ended.fields))
    assert text.startswith("server 1 is lost (killed by signal 9, SIGKILL)")
    assert "the tables weights" in text
    assert "/log1 ends:\n  last line\n" in text
    assert stage.got("w0", Ended) == [ended]


# -- ssp, asp, manual ------------------------------------------------------------------------------


def test_ssp_publishes_the_slowest_clock_whenever_it_moves_and_releases_nobody_by_name():
    stage = Stage()
    stage.start([9, 9], consistency="ssp:1")
    stage.got("w0", Slowest)
    stage.tick(0, 1, waiting=False)
    assert stage.got("w0", Slowest) == []
    stage.tick(0, 2)
    stage.tick(1, 1, waiting=False)
    assert [m.clock for m in stage.got("w0", Slowest)] == [1]
    stage.tick(1, 3, waiting=False)
    assert [m.clock for m in stage.got("w1", Slowest)] == [0, 1, 2]
    assert released(stage, 0) == []


def test_ssp_tells_a_rank_taken_over_the_slowest_clock():
    stage = Stage()
    stage.start([9, 9], consistency="ssp:1")
    stage.tick(0, 2, waiting=False)
    stage.tick(1, 2, waiting=False)
    stage.leave("w0")
    stage.register(0, "again")
    stage.ready(0, 9, who="again")
    assert [m.clock for m in stage.got("again", Slowest)] == [2]


def test_an_ssp_rank_taken_over_begins_no_further_ahead_than_its_bound():
    stage = Stage()
    stage.start([3, 3], consistency="ssp:1")
    stage.tick(1, 2)
    stage.leave("w1")
    stage.register(1, "again")
    stage.ready(1, 3, who="again")
    assert stage.got("again", Begin) == []
    stage.tick(0, 1, waiting=False)
    assert [m.clock for m in stage.got("again", Begin)] == [2]


@pytest.mark.parametrize("consistency", ["asp", "ssp:2"])
def test_without_a_barrier_a_row_comes_when_the_last_rank_has_ended_the_epoch(consistency):
    stage = Stage()
    stage.start([2, 2], consistency=consistency, epochs=2)
    for clock in (1, 2, 3, 4):
        stage.tick(0, clock, waiting=False, n=1)
    assert stage.got(DRIVER, EpochEnded) == []
    stage.tick(1, 1, waiting=False, n=10)
    stage.tick(1, 2, waiting=False, n=10)
    assert [row(m) for m in stage.got(DRIVER, EpochEnded)] == [{"n": 22}]
    stage.tick(1, 3, waiting=False, n=10)
    stage.tick(1, 4, waiting=False, n=10)
    stage.finish(0)
    stage.finish(1)
    assert [row(m) for m in stage.got(DRIVER, EpochEnded)] == [{"n": 22}]
    assert stage.got(DRIVER, Ended) == [Ended(stage.session)]
    assert stage.got("s0", Seal) == []


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1", "asp"])
def test_on_epoch_holds_all_until_the_driver_continues_and_hands_out_its_params(consistency):
    stage = Stage()
    stage.start([2, 1], consistency=consistency, epochs=2, barrier_epochs=True)
    stage.tick(1, 2)
    stage.tick(0, 1, waiting=consistency == "bsp")
    stage.tick(0, 2)
    (ended,) = stage.got(DRIVER, EpochEnded)
    assert (ended.epoch, ended.wait, ended.clock) == (0, True, 2)
    assert [m.clock for m in stage.got("w1", Released)] == []
    assert stage.ask(lambda n: Continue(n, stage.session, 0, {"lr": 0.5})) == "done"
    (release,) = stage.got("w1", Released)
    assert (release.clock, release.params, release.stop) == (2, {"lr": 0.5}, False)


def test_continue_for_another_epoch_is_refused():
    stage = Stage()
    stage.start([1], barrier_epochs=True)
    assert isinstance(stage.ask(lambda n: Continue(n, stage.session, 0)), Denied)
    stage.tick(0, 1)
    assert isinstance(stage.ask(lambda n: Continue(n, stage.session, 1)), Denied)
    assert stage.ask(lambda n: Continue(n, stage.session, 0)) == "done"


def test_continue_of_a_run_that_has_failed_meanwhile_is_no_second_error():
    stage = Stage()
    stage.table()
    stage.start([1], barrier_epochs=True)
    stage.tick(0, 1)
    stage.exited(0)
    assert stage.ask(lambda n: Continue(n, stage.session, 0)) == "done"
    assert [m.code for m in stage.got(DRIVER, Ended)] == ["ServerLost"]


def test_stop_ends_the_run_after_this_epoch_even_for_a_rank_taken_over():
    stage = Stage()
    stage.start([1, 1], consistency="bsp", epochs=9, barrier_epochs=True)
    stage.tick(0, 1)
    stage.tick(1, 1)
    stage.leave("w1")
    stage.register(1, "again")
    stage.ready(1, 1, who="again")
    assert stage.got("again", Begin) == []
    stage.ask(lambda n: Continue(n, stage.session, 0, stop=True))
    assert stage.got("w0", Released)[0].stop
    assert stage.got("again", Begin)[0].stop
    stage.finish(0)
    stage.finish(1, who="again")
    assert [m.epoch for m in stage.got(DRIVER, EpochEnded)] == [0]
    assert stage.got(DRIVER, Ended) == [Ended(stage.session)]


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1", "asp"])
def test_manual_clocks_meet_at_the_largest_clock_at_the_end_of_an_epoch(consistency):
    stage = Stage()
    stage.start([4, 4], consistency=consistency, epochs=2, clock_every="manual")
    assert stage.got("w0", Begin)[0].clocks == 0
    stage.tick(0, 0, end=True)
    for clock in (1, 2, 3):
        stage.tick(1, clock, waiting=consistency == "bsp", n=clock)
    assert stage.got(DRIVER, EpochEnded) == []
    stage.tick(1, 3, end=True)
    (ended,) = stage.got(DRIVER, EpochEnded)
    assert (ended.clock, row(ended)) == (3, {"n": 6})
    assert [m.clock for m in stage.got("w0", Released)] == [3]
    stage.tick(0, 4, waiting=False, end=True)
    stage.tick(1, 3, end=True)
    assert [m.epoch for m in stage.got(DRIVER, EpochEnded)] == [1]
    stage.finish(0)
    stage.finish(1)
    assert stage.got(DRIVER, Ended) == [Ended(stage.session)]


def test_clocks_per_epoch_are_one_when_the_clock_is_the_epoch():
    stage = Stage()
    stage.start([4, 0], consistency="bsp", epochs=2, clock_every="epoch")
    assert stage.got("w0", Begin)[0].clocks == 1
    stage.tick(0, 1, n=4)
    stage.tick(1, 1)
    assert [row(m) for m in stage.got(DRIVER, EpochEnded)] == [{"n": 4}]


# -- stalls ----------------------------------------------------------------------------------------


def test_a_stalled_rank_is_named_then_fatal():
    stage = Stage(stall_warn=30, stall_fatal=300)
    stage.start([2, 2], consistency="bsp")
    stage.tick(0, 1)
    stage.wait(29)
    assert stage.got(DRIVER, Warned) == []
    stage.wait(2)
    (warned,) = stage.got(DRIVER, Warned)
    assert (
        warned.text
        == "rank 1 on host (pid 11) has been at clock 0 for 30 s and holds the others back"
    )
    stage.wait(260)
    assert stage.got(DRIVER, Warned) == []
    stage.wait(12)
    (ended,) = stage.got(DRIVER, Ended)
    assert str(from_wire(ended.code, ended.fields)).startswith(
        "rank 1 on host (pid 11) has been at clock 0 for 300"
    )


def test_a_rank_without_a_task_is_named_as_such():
    stage = Stage(stall_warn=30)
    stage.start([2, 2], consistency="bsp")
    stage.tick(0, 1)
    stage.leave("w1")
    stage.got(DRIVER, Warned)
    stage.wait(31)
    assert (
        "rank 1 on host (pid 11) at clock 0 has had no task for 30 s"
        in stage.got(DRIVER, Warned)[0].text
    )


def test_reading_rows_for_long_is_named_and_not_fatal():
    stage = Stage(stall_warn=30, stall_fatal=300)
    stage.open(2)
    stage.register(0)
    stage.register(1)
    stage.ready(0, 3)
    stage.wait(400)
    assert [m.text for m in stage.got(DRIVER, Warned)] == [
        "rank 1 on host (pid 11) has been reading its rows for 30 s and holds the others back"
    ]
    assert stage.got(DRIVER, Ended) == []


def test_a_rank_that_has_run_out_but_does_not_end_the_epoch_is_named():
    stage = Stage()
    stage.start([3, 1], consistency="bsp")
    stage.tick(1, 1)
    for clock in (1, 2, 3):
        stage.tick(0, clock)
    stage.wait(31)
    assert [m.text[:6] for m in stage.got(DRIVER, Warned)] == ["rank 1"]


def test_nobody_stalls_while_nobody_waits():
    stage = Stage()
    stage.start([2, 2], consistency="asp")
    stage.wait(400)
    assert stage.got(DRIVER, Warned) == []


def test_a_rank_that_never_finishes_is_named_when_the_others_have():
    stage = Stage()
    stage.start([1, 1], consistency="asp")
    stage.tick(0, 1, waiting=False)
    stage.finish(0)
    stage.wait(31)
    assert "rank 1" in stage.got(DRIVER, Warned)[0].text


def test_an_on_epoch_that_takes_its_time_stalls_nobody():
    stage = Stage()
    stage.start([1, 1], consistency="bsp", barrier_epochs=True)
    stage.tick(0, 1)
    stage.tick(1, 1)
    stage.wait(1000)
    assert stage.got(DRIVER, Warned) == []
    assert stage.got(DRIVER, Ended) == []


def test_only_whoever_holds_an_ssp_run_back_is_named():
    stage = Stage()
    stage.start([9, 9, 9], consistency="ssp:1")
    stage.tick(0, 2)
    stage.tick(1, 1, waiting=False)
    stage.wait(31)
    assert [m.text[:6] for m in stage.got(DRIVER, Warned)] == ["rank 2"]


def test_a_coordinator_that_slept_starts_its_time_limits_anew():
    stage = Stage(stall_warn=30, stall_fatal=300)
    stage.start([2, 2], consistency="bsp")
    stage.tick(0, 1)
    stage.wait(10)
    stage.time.advance(5000)
    stage.carry_out(stage.core.tick(stage.time()))
    stage.wait(25)
    assert stage.got(DRIVER, Ended) == []
    assert stage.got(DRIVER, Warned) == []


# -- other -----------------------------------------------------------------------------------------


def test_numbers_that_cannot_be_added_fail_the_run_by_name():
    stage = Stage()
    stage.start([1], consistency="bsp")
    stage.tick(0, 1, loss="high")
    (ended,) = stage.got(DRIVER, Ended)
    assert str(from_wire(ended.code, ended.fields)).startswith("loss='high': ticks carry numbers")


def test_progress_is_told_at_most_four_times_a_second():
    stage = Stage()
    stage.start([1000, 1000], consistency="asp")
    for clock in range(1, 41):
        stage.tick(0, clock, waiting=False)
        stage.time.advance(0.05)
        stage.carry_out(stage.core.tick(stage.time()))
    told = stage.got(DRIVER, Progress)
    assert 6 <= len(told) <= 9
    assert (told[-1].slowest, told[-1].slowest_rank) == (0, 1)


def test_the_driver_can_seal_a_run_itself():
    stage = Stage()
    stage.start([2], consistency="bsp")
    stage.held = {Seal}
    request = stage.request(lambda n: SealAll(n, stage.session, 1))
    assert stage.answer(request) is None
    stage.done(Seal)
    assert stage.answer(request) == "done"


def test_status_shows_runs():
    stage = Stage()
    stage.start([2, 2], consistency="ssp:1")
    stage.tick(0, 1, waiting=False)
    (run,) = stage.ask(GetStatus)["sessions"]
    assert (run["clocks"], run["held"], run["consistency"]) == ([1, 0], 2, "ssp:1")


def test_a_driver_session_gets_a_token_and_outlives_lost_servers():
    stage = Stage()
    session, token = stage.ask(lambda n: OpenSession(n, SessionSpec(0, 1, driver=True)))
    assert session > 0
    assert token > 0
    stage.exited(0)
    assert stage.ask(lambda n: CloseSession(n, session)) == "done"


@pytest.mark.parametrize(
    "spec", [SessionSpec(0, 0), SessionSpec(0, 1, "bsp:2"), SessionSpec(0, 1, epochs=0)]
)
def test_a_run_that_makes_no_sense_is_refused(spec):
    stage = Stage()
    assert stage.ask(lambda n: OpenSession(n, spec)).code == "InvalidArgument"
