"""Registration, tokens, stand-bys: who holds a rank."""

from __future__ import annotations

from sparkps.errors import from_wire
from sparkps.spec import SessionSpec
from sparkps.wire.messages import (
    CloseSession,
    Ended,
    GangComplete,
    OpenSession,
    RegisterRank,
    SetToken,
    TokenGone,
    Warned,
)
from tests.coordinator.stage import DRIVER, Stage


def test_the_gang_is_complete_when_every_rank_has_a_granted_holder():
    stage = Stage()
    stage.open(2)
    assert stage.register(0).attempt == 0
    assert stage.got("w0", GangComplete) == []
    stage.register(1)
    assert len(stage.got("w0", GangComplete)) == len(stage.got("w1", GangComplete)) == 1


def test_a_gang_that_does_not_come_together_says_how_many_came_and_are_needed():
    stage = Stage(gang_timeout=120)
    stage.open(16)
    for rank in range(12):
        stage.register(rank)
        stage.wait(1)
    stage.wait(107)
    assert stage.got(DRIVER, Ended) == []
    stage.wait(2)
    (ended,) = stage.got(DRIVER, Ended)
    assert str(from_wire(ended.code, ended.fields)).startswith(
        "12 of 16 workers came within 120.0 s; 16 free slots are needed at the same time"
    )
    assert stage.got("w3", Ended) == [ended]
    stage.register(12)
    assert stage.got("w12", Ended) == [ended]


def test_the_gang_deadline_counts_from_the_first_registration():
    stage = Stage(gang_timeout=10)
    stage.open(1)
    stage.wait(60)
    assert stage.register(0) is not None
    assert stage.got(DRIVER, Ended) == []


def test_a_token_is_granted_only_after_every_server_has_confirmed_it():
    stage = Stage()
    stage.open(1)
    stage.held = {SetToken}
    assert stage.register(0) is None
    stage.done(SetToken, who="s0")
    assert stage.granted("w0") is None
    stage.done(SetToken, who="s1")
    assert stage.granted("w0") is not None


def test_a_server_that_does_not_confirm_a_token_fails_the_run_by_name():
    stage = Stage(request_timeout=60)
    stage.open(1)
    stage.held = {SetToken}
    stage.register(0)
    stage.done(SetToken, who="s0")
    stage.wait(61)
    (ended,) = stage.got(DRIVER, Ended)
    assert str(from_wire(ended.code, ended.fields)).startswith(
        "confirming a token of rank 0: no answer from server 1 for 54 s"
    )


def test_a_second_task_of_a_rank_stands_by_and_does_not_fence():
    stage = Stage()
    stage.open(1)
    first = stage.register(0)
    assert stage.register(0, "copy") is None
    assert stage.got("w0", TokenGone) == []
    stage.leave("w0")
    granted = stage.granted("copy")
    assert (granted.attempt, granted.token > first.token) == (1, True)
    (warned,) = stage.got(DRIVER, Warned)
    assert warned.text == (
        "rank 0 lost its task on host (pid 10) at clock 0; another attempt goes on from there"
    )


def test_a_silent_holder_is_passed_over_when_somebody_stands_by_and_stands_by_itself():
    stage = Stage(dead=10)
    stage.open(1)
    stage.register(0)
    stage.silent.add("w0")
    stage.wait(30)
    assert stage.got("w0", TokenGone) == []
    assert stage.register(0, "copy") is None
    stage.wait(0.5)
    assert stage.granted("copy") is not None
    assert len(stage.got("w0", TokenGone)) == 1
    stage.silent.clear()
    stage.ready(0, 3)
    assert len(stage.got("w0", TokenGone)) == 1
    stage.leave("copy")
    assert stage.granted("w0").attempt == 2


def test_the_first_task_of_a_later_attempt_of_the_stage_takes_the_rank_over():
    stage = Stage()
    stage.open(1)
    stage.register(0, "old", task=3, first=True)
    assert stage.register(0, "its copy", task=4) is None
    assert stage.register(0, "new", task=6, first=True).attempt == 1
    for who in ("old", "its copy"):
        (ended,) = stage.got(who, Ended)
        assert ended.fields["reason"] == "Spark has started the stage anew, and rank 0 with it"
    assert stage.register(0, "late", task=5) is None
    assert len(stage.got("late", Ended)) == 1
    for who in ("old", "its copy", "late"):
        stage.leave(who)
    assert stage.register(0, "copy of new", task=7) is None
    stage.ready(0, 3, who="new")
    assert stage.got("new", TokenGone) == stage.got("new", Ended) == stage.got(DRIVER, Warned) == []
    stage.leave("new")
    assert stage.granted("copy of new").attempt == 2


def test_a_first_task_that_registers_after_its_copy_stands_by():
    stage = Stage()
    stage.open(1)
    stage.register(0, "copy", task=4)
    assert stage.register(0, "original", task=3, first=True) is None
    assert stage.got("copy", Ended) == []
    stage.leave("copy")
    assert stage.granted("original").attempt == 1


def test_a_stand_by_of_a_finished_rank_gets_the_recorded_result():
    stage = Stage()
    stage.start([1, 1])
    stage.register(0, "copy")
    stage.tick(0, 1)
    stage.finish(0, b"result")
    granted = stage.granted("copy")
    assert (granted.finished, granted.result) == (True, b"result")
    assert stage.register(0, "late").finished


def test_a_holder_that_leaves_while_its_token_is_confirmed_gets_nothing():
    stage = Stage()
    stage.open(1)
    stage.held = {SetToken}
    stage.register(0)
    stage.register(0, "copy")
    stage.leave("w0")
    # The first command is done, the one for the copy is not yet.
    commands = list(stage.commands)
    stage.commands = [command for command in commands if command[1].op == commands[0][1].op]
    stage.done(SetToken)
    assert stage.granted("copy") is None
    stage.commands = [command for command in commands if command[1].op != commands[0][1].op]
    stage.done(SetToken)
    assert stage.granted("w0") is None
    assert stage.granted("copy").attempt == 1


def test_registering_twice_changes_nothing():
    stage = Stage()
    stage.open(2)
    stage.register(0)
    assert stage.register(0) is None
    stage.leave("w0")
    assert stage.register(0, "next").attempt == 1


def test_one_gang_at_a_time_is_admitted():
    stage = Stage()
    stage.open(2)
    stage.register(0)
    second = stage.request(lambda n: OpenSession(n, SessionSpec(0, 2)))
    assert stage.answer(second) is None
    stage.register(1)
    stage.wait(0.5)
    assert stage.answer(second) is not None


def test_a_run_whose_job_never_starts_does_not_hold_others_up_for_ever():
    stage = Stage(gang_timeout=30)
    stage.open(2)
    second = stage.request(lambda n: OpenSession(n, SessionSpec(0, 2)))
    stage.wait(29)
    assert stage.answer(second) is None
    stage.wait(2)
    assert stage.answer(second) is not None


def test_a_task_of_an_unknown_run_is_told_so():
    stage = Stage()
    stage.join("w")
    stage.say("w", RegisterRank(99, 0, "host", 1, 0))
    (ended,) = stage.got("w", Ended)
    assert (ended.code, ended.fields["reason"]) == (
        "SessionEnded",
        "the coordinator knows no such run",
    )


def test_tasks_that_come_after_the_end_are_told_its_reason():
    stage = Stage()
    stage.open(1)
    stage.register(0)
    assert stage.ask(lambda n: CloseSession(n, stage.session)) == "done"
    assert stage.got("w0", Ended)[0].fields["reason"] == "it was closed by the driver"
    stage.register(0, "late")
    assert stage.got("late", Ended)[0].fields["reason"] == "it was closed by the driver"


def test_a_driver_that_goes_away_closes_its_runs():
    stage = Stage()
    stage.open(1)
    stage.register(0)
    stage.leave(DRIVER)
    assert stage.got("w0", Ended)[0].fields["reason"] == "the driver is gone"
