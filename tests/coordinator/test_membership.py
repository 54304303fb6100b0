"""Servers that come and go, and the view."""

from __future__ import annotations

from sparkps.coordinator.membership import GRACE
from sparkps.spec import ServerInfo, TableSpec
from sparkps.wire.messages import (
    VERSION,
    CreateTable,
    Denied,
    GetStatus,
    GetView,
    Join,
    Joined,
    NewView,
    ServerDown,
    ServerExited,
    ServerUp,
    SetView,
)
from tests.coordinator.stage import DRIVER, Stage


def bare(servers=2, **settings):
    stage = Stage(servers=0, **settings)
    stage.core._members._expected = servers
    return stage


def test_the_first_view_comes_when_all_servers_have():
    stage = bare(2)
    stage.server_up(0)
    assert stage.got(DRIVER, NewView) == []
    stage.server_up(1)
    (view,) = (m.view for m in stage.got(DRIVER, NewView))
    assert (view.number, [server.id for server in view.servers], set(view.owners)) == (
        1,
        [0, 1],
        {0, 1},
    )


def test_a_view_is_published_when_every_server_has_it():
    stage = bare(2)
    stage.held = {SetView}
    stage.server_up(0)
    stage.server_up(1)
    stage.done(SetView, who="s0")
    assert stage.got(DRIVER, NewView) == []
    stage.done(SetView)
    assert len(stage.got(DRIVER, NewView)) == 1
    stage.join("late")
    assert stage.got("late", Joined)[0].view.number == 1


def test_requests_for_tables_and_views_wait_for_the_first_view():
    stage = bare(1)
    table = stage.request(lambda n: CreateTable(n, TableSpec("t")))
    view = stage.request(lambda n: GetView(n, 1))
    assert stage.ask(GetView)[0] == 0
    assert (stage.answer(table), stage.answer(view)) == (None, None)
    stage.server_up(0)
    assert stage.answer(table)[0] == 1
    assert stage.answer(view)[0] == 1


def test_a_certified_exit_is_told_to_everyone_before_the_view_without_the_server():
    stage = Stage()
    stage.join("w")
    stage.got("w", NewView)
    stage.exited(0)
    kinds = [type(m).__name__ for m in stage.heard["w"] if isinstance(m, (ServerDown, NewView))]
    assert kinds == ["ServerDown", "NewView"]
    (view,) = (m.view for m in stage.got("w", NewView))
    assert (view.number, [server.id for server in view.servers], set(view.owners)) == (2, [1], {1})


def test_a_connection_that_ends_waits_a_moment_for_the_exit_status():
    stage = Stage()
    stage.leave("s1")
    stage.wait(GRACE / 2)
    assert stage.got(DRIVER, ServerDown) == []
    stage.exited(1, "exit status 3")
    assert [m.status for m in stage.got(DRIVER, ServerDown)] == ["exit status 3"]
    stage.wait(GRACE * 2)
    assert stage.got(DRIVER, ServerDown) == []


def test_without_a_certificate_the_end_of_the_connection_is_the_loss():
    stage = Stage()
    stage.leave("s1")
    stage.wait(GRACE + 0.5)
    assert [m.status for m in stage.got(DRIVER, ServerDown)] == [
        "its connection to the coordinator ended"
    ]


def test_silence_loses_no_server():
    stage = Stage()
    stage.silent = {"s0", "s1"}
    stage.wait(600)
    assert stage.got(DRIVER, ServerDown) == []


def test_the_exit_of_another_incarnation_is_none_of_this_one():
    stage = Stage()
    stage.carry_out(stage.core.exited(ServerExited(0, 7, "exit status 0"), stage.time()))
    assert stage.got(DRIVER, ServerDown) == []


def test_a_server_id_is_never_taken_again():
    stage = Stage()
    stage.exited(0)
    stage.say("again", ServerUp(VERSION, ServerInfo(0, 2, "ipc:///s0")))
    assert stage.got("again", Denied)[0].fields["reason"] == "server 0 has been here already"


def test_a_loss_during_the_start_is_told_too():
    stage = bare(2)
    stage.server_up(0)
    stage.exited(1, "exit status 1")
    assert [m.server for m in stage.got(DRIVER, ServerDown)] == [1]


def test_another_version_is_refused_by_both_sides_of_the_sentence():
    stage = Stage()
    stage.say("old", Join(VERSION + 1, "worker"))
    (denied,) = stage.got("old", Denied)
    assert (denied.id, denied.code, denied.fields) == (
        0,
        "VersionMismatch",
        {"peer": "worker", "theirs": VERSION + 1, "ours": VERSION},
    )


def test_status_names_servers_and_tables():
    stage = Stage()
    stage.table("t", width=3)
    stage.exited(1)
    status = stage.ask(GetStatus)
    assert [(s["id"], s["state"]) for s in status["servers"]] == [(0, "up"), (1, "lost")]
    assert (status["view"], status["tables"][0]["name"], status["tables"][0]["width"]) == (
        2,
        "t",
        3,
    )
    assert status["tables"][0]["lost"].startswith("server 1 is lost")
