"""Servers that come and go, and the view."""

from __future__ import annotations

from sparkps.coordinator.membership import GRACE
from sparkps.errors import LaunchFailed
from sparkps.spec import ServerInfo, TableSpec
from sparkps.wire.messages import (
    VERSION,
    AddSession,
    AddTable,
    Beat,
    CloseSession,
    CreateTable,
    Denied,
    DropTable,
    Gather,
    GetStatus,
    GetView,
    Join,
    Joined,
    NewView,
    ServerDown,
    ServerExited,
    ServerUp,
    SetToken,
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


# -- servers that executors bring ------------------------------------------------------------------


def owners(answer) -> set[int]:
    """The servers of an answered view, if there is one."""
    return set(answer[2]) if answer else set()


def gathered(stage, servers, who=DRIVER):
    return owners(stage.ask(lambda n: Gather(n, servers), who))


def test_the_first_view_waits_for_as_many_servers_as_a_driver_gathers():
    stage = bare(0)
    stage.server_up(4)
    waiting = stage.request(lambda n: Gather(n, 2))
    assert stage.got(DRIVER, NewView) == []
    stage.server_up(7)
    assert owners(stage.answer(waiting)) == {4, 7}
    assert len(stage.got(DRIVER, NewView)) == 1
    assert gathered(stage, 1) == {4, 7}


def test_a_gathered_view_is_answered_when_every_server_has_it():
    stage = bare(0)
    stage.held = {SetView}
    waiting = stage.request(lambda n: Gather(n, 1))
    stage.server_up(0)
    assert stage.answer(waiting) is None
    stage.done(SetView)
    assert owners(stage.answer(waiting)) == {0}


def test_servers_that_come_before_any_table_are_in_the_view_at_once():
    stage = Stage(servers=1)
    waiting = stage.request(lambda n: Gather(n, 3))
    stage.server_up(1)
    stage.server_up(2)
    assert owners(stage.answer(waiting)) == {0, 1, 2}


def test_servers_that_come_after_a_table_get_no_partition_while_it_has_rows():
    stage = Stage()
    table = stage.table("t")[0]
    stage.got(DRIVER, NewView)
    stage.server_up(2)
    waiting = stage.request(lambda n: Gather(n, 3))
    assert stage.got(DRIVER, NewView) == []
    assert stage.answer(waiting) is None
    assert gathered(stage, 2) == {0, 1}
    stage.ask(lambda n: DropTable(n, table))
    assert stage.got(DRIVER, NewView) == []  # whoever needs it finds it
    stage.table("u")
    (view,) = (m.view for m in stage.got(DRIVER, NewView))
    assert set(view.owners) == {0, 1, 2}
    assert owners(stage.answer(waiting)) == {0, 1, 2}


def test_a_table_that_finds_newcomers_is_made_when_their_view_is_everywhere():
    stage = Stage(servers=1)
    stage.ask(lambda n: DropTable(n, stage.table("t")[0]))
    stage.table("t")
    stage.server_up(1)
    (old,) = (m.info.id for m in stage.got("s1", AddTable))
    stage.ask(lambda n: DropTable(n, old))
    stage.held = {SetView}
    made = stage.request(lambda n: CreateTable(n, TableSpec("t"), False))
    assert stage.got("s1", AddTable) == []
    stage.done(SetView)
    assert [m.info.id for m in stage.got("s1", AddTable)] == [stage.answer(made)[0]]


def test_a_server_that_comes_late_hears_of_the_sessions_and_tables_that_there_are():
    stage = Stage()
    lost = stage.table("lost")[0]
    stage.exited(1)
    kept = stage.table("kept")[0]
    dropped = stage.table("dropped")[0]
    stage.ask(lambda n: DropTable(n, dropped))
    closed = stage.open(1)
    stage.ask(lambda n: CloseSession(n, closed))
    session = stage.open(2)
    stage.server_up(2)
    tables = [m.info.id for m in stage.got("s2", AddTable)]
    assert tables == [kept]
    assert lost not in tables
    assert [m.spec.id for m in stage.got("s2", AddSession)] == [session]
    (token,) = stage.got("s2", SetToken)
    assert (token.session, token.rank, token.token) == (session, 2, stage.token[DRIVER])


def test_while_a_run_goes_on_newcomers_wait_though_there_is_no_table():
    stage = Stage(servers=1)
    session = stage.open(1)
    stage.got(DRIVER, NewView)
    stage.server_up(1)
    assert stage.got(DRIVER, NewView) == []
    stage.ask(lambda n: CloseSession(n, session))
    assert gathered(stage, 2) == {0, 1}


def test_with_rows_on_the_others_no_loss_moves_a_group_of_a_living_server():
    stage = Stage(servers=4)
    before = None
    for number in range(8):  # one of them has its partition on a server that lives to the end
        stage.table(f"t{number}", partitions=1)
    for lost in (0, 1, 2):
        before = stage.ask(lambda n: GetView(n))[2]
        stage.server_up(10 + lost)
        stage.exited(lost)
        after = stage.ask(lambda n: GetView(n))[2]
        assert all(a == b for b, a in zip(before, after, strict=True) if b != lost)
        assert lost not in after
    assert [table["lost"] for table in stage.ask(GetStatus)["tables"]].count("") > 0


def test_where_every_table_is_lost_the_replacement_takes_its_share():
    stage = Stage(servers=2)
    stage.table("t")
    stage.exited(1)
    assert gathered(stage, 1) == {0}
    stage.server_up(2)
    assert gathered(stage, 2) == {0, 2}
    assert stage.table("t", replace=True)[0] == 2


def failure() -> LaunchFailed:
    return LaunchFailed(what="server 1", reason="no such python", log="/log1", tail="  why")


def test_whoever_gathers_servers_that_do_not_start_is_told_why():
    stage = bare(0)
    stage.server_up(0)
    waiting = stage.request(lambda n: Gather(n, 2))
    stage.carry_out(stage.core.failed(failure(), stage.time()))
    denied = stage.answer(waiting)
    assert (denied.code, denied.fields) == ("LaunchFailed", failure().fields)
    assert stage.ask(lambda n: Gather(n, 2)).code == "LaunchFailed"
    assert gathered(stage, 1) == {0}


def test_where_executors_come_and_go_only_new_failures_count():
    stage = bare(0)
    stage.carry_out(stage.core.failed(failure(), stage.time()))
    stage.time.advance(10.0)
    waiting = stage.request(lambda n: Gather(n, 1, since=9.0))
    assert stage.answer(waiting) is None
    stage.server_up(0)
    assert owners(stage.answer(waiting)) == {0}
    waiting = stage.request(lambda n: Gather(n, 2, since=0.0))
    stage.carry_out(stage.core.failed(failure(), stage.time()))
    assert stage.answer(waiting).code == "LaunchFailed"


def test_a_failure_is_none_of_those_who_have_enough_servers():
    stage = Stage(servers=2)
    stage.carry_out(stage.core.failed(failure(), stage.time()))
    assert gathered(stage, 2) == {0, 1}


def test_a_gatherer_that_has_left_waits_no_more():
    stage = bare(0)
    stage.join("other")
    stage.request(lambda n: Gather(n, 2), "other")
    stage.leave("other")
    stage.server_up(0)
    stage.server_up(1)
    assert stage.core._members._gathering == []
    assert stage.got("other", Denied) == []


def test_figures_are_sums_over_the_servers_that_are_up():
    stage = Stage(servers=2)
    load = {"partitions": 3.0, "rows": 100.0, "bytes": 800.0, "requests": 7.0, "other": 1.0}
    for server in ("s0", "s1"):
        stage.say(server, Beat(load))
    figures = stage.core.figures()
    assert (figures["servers"], figures["rows"], figures["partitions"]) == (2.0, 200.0, 6.0)
    stage.exited(0)
    assert stage.core.figures()["rows"] == 100.0
