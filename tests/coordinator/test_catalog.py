"""Tables: made once, found, replaced, lost."""

from __future__ import annotations

import pytest

from sparkps.errors import from_wire
from sparkps.spec import OptimizerSpec, TableSpec
from sparkps.wire.messages import (
    AddTable,
    CreateTable,
    Denied,
    Done,
    DropTable,
    FindTable,
    ListTables,
    RemoveTable,
    SaveTable,
    ServerDown,
    Snapshot,
)
from tests.coordinator.stage import DRIVER, Stage


def names(stage):
    return [spec[0] for _, spec in stage.ask(ListTables)]


def find(stage, name="t"):
    return stage.ask(lambda n: FindTable(n, name))


def test_creating_the_same_table_twice_gives_the_same_table():
    stage = Stage()
    assert stage.table("t") == stage.table("t") == find(stage)
    assert stage.table("u")[0] == 2


def test_a_table_is_given_out_when_every_server_has_it():
    stage = Stage()
    stage.held = {AddTable}
    first, second = (stage.request(lambda n: CreateTable(n, TableSpec("t"))) for _ in range(2))
    looked_for = stage.request(lambda n: FindTable(n, "t"))
    assert stage.ask(ListTables) == []
    stage.done(AddTable, who="s0")
    assert stage.answer(first) is None
    stage.done(AddTable)
    assert stage.answer(first) == stage.answer(second) == stage.answer(looked_for)


def test_another_spec_under_a_name_is_an_error_that_names_the_difference():
    stage = Stage()
    stage.table("t", width=1)
    denied = stage.table("t", width=8)
    assert denied.code == "TableExists"
    assert "width 1 != 8" in str(from_wire(denied.code, denied.fields))


def test_a_replaced_table_has_a_new_id_and_the_old_one_is_dropped_first():
    stage = Stage()
    stage.table("t", width=1)
    assert stage.table("t", replace=True, width=8)[0] == 2
    kinds = [
        (type(m).__name__) for m in stage.heard["s0"] if isinstance(m, (AddTable, RemoveTable))
    ]
    assert kinds == ["AddTable", "RemoveTable", "AddTable"]


def test_what_a_server_refuses_is_dropped_by_the_others_and_told_to_all_who_waited():
    stage = Stage()
    stage.held = {AddTable}
    requests = [stage.request(lambda n: CreateTable(n, TableSpec("t"))) for _ in range(2)]
    stage.done(AddTable, error=("MemoryLimit", {"server": 1}), who="s1")
    stage.done(AddTable)
    assert [stage.answer(request).code for request in requests] == ["MemoryLimit"] * 2
    assert len(stage.got("s0", RemoveTable)) == 1
    assert find(stage).code == "TableNotFound"


def test_a_name_that_is_nearly_right_is_suggested():
    stage = Stage()
    stage.table("weights")
    denied = find(stage, "weight")
    assert "did you mean 'weights'?" in str(from_wire(denied.code, denied.fields))


def test_dropping_waits_for_all_servers_and_twice_is_no_error():
    stage = Stage()
    stage.table("t")
    stage.held = {RemoveTable}
    dropped = stage.request(lambda n: DropTable(n, 1))
    assert stage.answer(dropped) is None
    assert find(stage).code == "TableNotFound"
    stage.done(RemoveTable)
    assert stage.answer(dropped) == "done"
    assert stage.ask(lambda n: DropTable(n, 1)) == "done"


def test_a_table_dropped_while_it_is_made_answers_everyone():
    stage = Stage()
    stage.held = {AddTable}
    waiting = stage.request(lambda n: CreateTable(n, TableSpec("t")))
    stage.ask(lambda n: DropTable(n, 1))
    assert stage.answer(waiting).code == "TableNotFound"
    stage.done(AddTable)
    assert stage.ask(ListTables) == []


def test_saving_gathers_the_entries_of_all_servers_in_order_of_partition():
    stage = Stage()
    stage.table("t")
    stage.held = {Snapshot}
    saved = stage.request(lambda n: SaveTable(n, 1, "/model"))
    stage.held = set()
    stage.results[Snapshot] = [{"partition": 5}, {"partition": 2}]
    for peer, message in stage.commands:
        stage.heard[peer].append(message)
    commands, stage.commands = stage.commands, []
    for number, (peer, message) in enumerate(commands):
        stage.say(peer, Done(message.op, [{"partition": 3 - number}, {"partition": 9 - number}]))
    assert [part["partition"] for part in stage.answer(saved)] == [2, 3, 8, 9]


def test_saving_what_is_not_there_is_an_error():
    assert Stage().ask(lambda n: SaveTable(n, 7, "/model")).code == "TableNotFound"


def test_a_spec_that_makes_no_sense_is_refused():
    stage = Stage()
    assert stage.table("t", width=0).code == "InvalidArgument"
    assert stage.table("t", dtype="int64", optimizer=OptimizerSpec("SGD")).code == "InvalidArgument"


# -- losses ----------------------------------------------------------------------------------------


def lost(stage, server=1):
    stage.exited(server)
    (down,) = stage.got(DRIVER, ServerDown)
    return down


def test_tables_of_a_lost_server_stay_lost_until_they_are_replaced():
    stage = Stage()
    stage.table("t")
    down = lost(stage)
    assert (down.server, down.tables, down.ids, down.tail) == (1, ["t"], [1], "  last line")
    for answer in (find(stage), stage.table("t"), stage.ask(lambda n: SaveTable(n, 1, "/m"))):
        text = str(from_wire(answer.code, answer.fields))
        assert text.startswith(
            "server 1 is lost (killed by signal 9, SIGKILL), and with it a part of the tables t"
        )
    assert stage.table("t", replace=True)[0] == 2
    assert find(stage)[0] == 2


def test_a_table_without_a_partition_on_the_lost_server_is_not_lost():
    stage = Stage()
    stage.table("a", dim=1, partitions=1)
    stage.table("b", dim=1, partitions=1)
    # Two tables of one partition each, on consecutive groups: ask the view where they are.
    owners = stage.core._members.view.owners
    down = lost(stage, server=owners[1])
    expected = [name for name, group in (("a", 1), ("b", 2)) if owners[group] == owners[1]]
    assert down.tables == expected
    assert find(stage, "b")[0] == 2 or "b" in expected


def test_a_server_lost_while_a_table_is_made_fails_the_making():
    stage = Stage()
    stage.held = {AddTable}
    waiting = stage.request(lambda n: CreateTable(n, TableSpec("t")))
    stage.done(AddTable, who="s0")
    stage.exited(1)
    assert stage.answer(waiting).code == "ServerLost"
    assert find(stage).code == "TableNotFound"


def test_without_servers_a_new_table_is_refused_with_the_loss():
    stage = Stage(servers=1)
    lost(stage, server=0)
    refused = stage.table("t")
    assert refused.code == "ServerLost"
    assert "no server is left" in refused.fields["context"]


def test_whoever_comes_later_is_told_of_losses():
    stage = Stage()
    stage.table("t")
    lost(stage)
    stage.join("late")
    assert [m.ids for m in stage.got("late", ServerDown)] == [[1]]


@pytest.mark.parametrize("kind", [AddTable, RemoveTable])
def test_a_server_that_does_not_answer_is_named(kind):
    stage = Stage(request_timeout=60)
    stage.table("t")
    stage.held = {kind}
    request = stage.request(
        lambda n: CreateTable(n, TableSpec("u")) if kind is AddTable else DropTable(n, 1)
    )
    stage.done(kind, who="s0")
    stage.wait(55)
    answer = stage.answer(request)
    if kind is AddTable:
        assert isinstance(answer, Denied)
        assert "creating table 'u': no answer from server 1 for 54 s" in str(
            from_wire(answer.code, answer.fields)
        )
    else:
        assert answer == "done"
