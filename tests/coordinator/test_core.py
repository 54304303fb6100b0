"""Introductions, shutdown, and that nothing anybody sends brings the coordinator down."""

from __future__ import annotations

import logging
from typing import get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkps.coordinator.hub import COMPLAINTS
from sparkps.errors import MalformedRequest
from sparkps.spec import ServerInfo, SessionSpec, TableSpec
from sparkps.wire.effects import Cut, Effect, Exit, Log
from sparkps.wire.frames import encode_control
from sparkps.wire.messages import (
    VERSION,
    Answer,
    Beat,
    Control,
    Denied,
    Done,
    FindTable,
    Join,
    Leave,
    ServerDown,
    ServerUp,
    Shutdown,
)
from tests.coordinator.stage import DRIVER, Stage


def exits(stage):
    return [effect for effect in stage.effects if isinstance(effect, Exit)]


def test_nothing_is_taken_before_an_introduction():
    stage = Stage()
    stage.say("stranger", FindTable(3, "t"))
    (denied,) = stage.got("stranger", Denied)
    assert (denied.id, denied.fields["reason"]) == (3, "FindTable before Join")
    stage.say("stranger", Beat())
    assert stage.got("stranger", Denied) == []


def cuts(stage):
    return [effect.peer for effect in stage.effects if isinstance(effect, Cut)]


def test_who_begins_with_anything_else_is_answered_once_and_cut():
    stage = Stage()
    stage.say("one", FindTable(3, "t"))
    stage.say("two", Join(VERSION + 1, "worker"))
    stage.say("three", ServerUp(VERSION, ServerInfo(0, 1, "ipc:///s0")))
    stage.carry_out(stage.core.malformed("four", MalformedRequest(reason="junk"), stage.time()))
    assert cuts(stage) == ["one", "two", "three", "four"]
    assert [stage.got(who, Denied)[0].code for who in cuts(stage)] == [
        "MalformedRequest",
        "VersionMismatch",
        "MalformedRequest",
        "MalformedRequest",
    ]


def test_what_a_known_connection_gets_wrong_does_not_end_it():
    stage = Stage()
    stage.say(DRIVER, Answer(9))
    stage.carry_out(stage.core.malformed(DRIVER, MalformedRequest(reason="junk"), stage.time()))
    assert [m.fields["reason"] for m in stage.got(DRIVER, Denied)][1:] == ["junk"]
    assert cuts(stage) == []


def test_warnings_of_what_others_do_are_bounded_and_counted():
    stage = Stage()

    def warnings():
        found = [e.text for e in stage.effects if isinstance(e, Log) and e.level == logging.WARNING]
        stage.effects.clear()
        return found

    warnings()
    for _ in range(10 * COMPLAINTS):
        stage.say(DRIVER, Answer(9))
    assert len(warnings()) == COMPLAINTS
    stage.wait(60)
    stage.say(DRIVER, Answer(9))
    assert warnings() == [
        f"and {9 * COMPLAINTS} more warnings like these",
        "Answer is refused: malformed request: Answer is not for the coordinator",
    ]


def test_what_is_not_for_the_coordinator_is_refused():
    stage = Stage()
    stage.say(DRIVER, Answer(9))
    assert stage.got(DRIVER, Denied)[0].fields["reason"] == "Answer is not for the coordinator"
    stage.say("s0", FindTable(3, "t"))
    assert stage.got("s0", Denied)[0].fields["reason"] == "FindTable from a server"


def test_shutdown_stops_the_servers_first():
    stage = Stage()
    stage.held = {Leave}
    stopped = stage.request(Shutdown)
    assert exits(stage) == []
    stage.done(Leave, who="s0")
    stage.leave("s1")
    assert stage.answer(stopped) == "done"
    assert len(exits(stage)) == 1
    assert stage.got(DRIVER, ServerDown) == []


def test_shutdown_does_not_wait_for_a_server_that_hangs():
    stage = Stage()
    stage.held = {Leave}
    stage.carry_out(stage.core.shutdown(stage.time()))
    stage.wait(2.5)
    assert len(exits(stage)) == 1


def test_exits_after_a_shutdown_are_no_losses():
    stage = Stage()
    stage.carry_out(stage.core.shutdown(stage.time()))
    stage.exited(0)
    assert stage.got(DRIVER, ServerDown) == []


def test_an_answer_to_nothing_is_ignored():
    stage = Stage()
    stage.say("s0", Done(12345))
    stage.say("s0", Done(-1))


SMALL = st.integers(-2, 4) | st.integers(-(2**63), 2**63 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | SMALL | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
NUMBERS = st.dictionaries(st.sampled_from(["loss", "n"]), PLAIN, max_size=2)
CONSISTENCY = st.sampled_from(["bsp", "ssp:0", "ssp:2", "asp", "nonsense"])


SPECIAL = {
    SessionSpec: st.builds(
        SessionSpec,
        id=st.integers(0, 3),
        size=st.integers(-1, 3),
        consistency=CONSISTENCY,
        epochs=st.integers(0, 3),
        clock_every=st.sampled_from(["batch", "epoch", "manual"]),
        barrier_epochs=st.booleans(),
        driver=st.booleans(),
    ),
    TableSpec: st.builds(TableSpec, name=st.sampled_from(["t", "u", ""]), width=st.integers(-1, 2)),
    int: SMALL,
    str: st.sampled_from(["t", "u", ""]),
    bytes: st.binary(max_size=3),
    bool: st.booleans(),
    float: st.floats(),
}
#: Fields whose values are often those of sessions, ranks and clocks that exist.
LIKELY = {
    "numbers": st.lists(st.tuples(SMALL, NUMBERS), max_size=2),
    "session": st.integers(1, 3),
    **dict.fromkeys(
        ("rank", "clock", "epoch", "token", "batches", "rows"), st.integers(0, 4) | SMALL
    ),
}


def value_of(kind):
    if kind in SPECIAL:
        return SPECIAL[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return strategy_of(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return st.lists(value_of(inner[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(value_of(inner[0]), value_of(inner[1]), max_size=2)
    if origin is tuple:
        return (
            st.tuples(*map(value_of, inner))
            if inner[-1] is not Ellipsis
            else st.tuples(value_of(inner[0]))
        )
    if inner:
        return st.one_of(*map(value_of, inner))
    return st.none() if kind is type(None) else PLAIN


def strategy_of(kind):
    return st.builds(
        kind,
        **{
            field.name: LIKELY.get(field.name, value_of(field.type))
            if field.type is int or field.name == "numbers"
            else value_of(field.type)
            for field in msgspec.structs.fields(kind)
        },
    )


KINDS = [kind for kind in get_args(Control) if kind is not Shutdown]
PEOPLE = [DRIVER, "w0", "w1", "w2", "s0", "s1", "new"]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_sequence_of_messages_brings_the_coordinator_down(data):
    stage = Stage(gang_timeout=20, dead=5)
    for who in ("w0", "w1", "w2"):
        stage.join(who)
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.integers(0, 9))
        who = data.draw(st.sampled_from(PEOPLE))
        if what == 0:
            stage.wait(data.draw(st.sampled_from([0.1, 3.0, 30.0])))
        elif what == 1 and who != DRIVER:
            stage.leave(who)
        elif what == 2:
            stage.exited(data.draw(st.integers(0, 3)))
        else:
            message = data.draw(st.sampled_from(KINDS).flatmap(strategy_of))
            effects = stage.core.received(who, message, stage.time())
            assert all(isinstance(effect, Effect) for effect in effects)
            for effect in effects:
                if hasattr(effect, "message"):
                    encode_control(effect.message)
            stage.carry_out(effects)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_has_an_answer_or_a_meaning(kind):
    """A request (a message with an id) is always answered in the end."""
    names = [field.name for field in msgspec.structs.fields(kind)]
    if names[:1] != ["id"] or kind in (Answer, Denied):
        return
    stage = Stage()
    special = {"spec": TableSpec("t") if "replace" in names else SessionSpec(0, 1)}
    values = {
        field.name: special.get(field.name, 1 if field.type is int else "t")
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    stage.say(DRIVER, kind(**values))
    stage.wait(130)
    assert [m.id for m in stage.heard[DRIVER] if isinstance(m, (Answer, Denied))] == [1]
