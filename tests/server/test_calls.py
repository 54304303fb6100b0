"""Server functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sparkps.errors import InvalidArgument, from_wire
from sparkps.optim import SGD
from sparkps.optim.base import Optimizer
from sparkps.server.core import Door
from sparkps.spec import TableInfo, TableSpec
from sparkps.wire import arrays, userfn
from sparkps.wire import messages as m
from sparkps.wire.frames import encode


@pytest.fixture
def filled(server):
    table = server.table(dim=12, partitions=3)
    rank, *_ = server.session()
    rank.push(table, range(12), np.arange(12))
    return table, rank


def partials(answer):
    message, buffers = answer
    assert len(buffers[0]) == 0
    if message.shapes:
        return arrays.unpack(message.shapes, buffers[1:])
    return userfn.loads(bytes(buffers[1]))


def test_a_reduction_answers_one_partial_per_partition(filled):
    table, rank = filled
    found = partials(rank.call(table, m.REDUCE, "sum"))
    assert [(p, float(array[0][0])) for p, array in found] == [(0, 6.0), (1, 22.0), (2, 38.0)]


def test_a_function_of_the_users_runs_on_every_partition(filled):
    table, rank = filled

    def largest(part, base):
        return part.number, base + float(part["value"].max())

    found = partials(rank.call(table, m.REDUCE, pickle=(largest, (100,))))
    assert found == [(0, (0, 103.0)), (1, (1, 107.0)), (2, (2, 111.0))]


def test_a_reduction_may_not_write(filled):
    table, rank = filled

    def bad(part):
        part["value"][:] = 0

    answer, _ = rank.call(table, m.REDUCE, pickle=(bad, ()))
    assert answer.code == "FunctionFailed"
    words = str(from_wire(answer.code, answer.fields))
    assert "bad raised on server 0, table 't1', partition 0" in words
    assert "read-only" in answer.fields["traceback"]


def test_an_apply_changes_rows_once_however_often_it_comes(server, filled):
    table, rank = filled
    frames = rank.called(table, m.APPLY, "scale", a=2.0)
    assert server.ask(frames)[1] == []
    assert server.ask(frames)[1] == [m.DUPLICATE] * 3
    assert server.pull(table, range(12)).tolist() == (2.0 * np.arange(12)).tolist()


def test_a_users_apply_may_draw_random_numbers_that_repeat(make_server):
    def noise(part):
        part["value"] += part.rng.normal(size=len(part))

    outcomes = []
    for _ in range(2):
        server = make_server()
        table = server.table(dim=12, partitions=3, seed=4)
        rank, *_ = server.session()
        for _ in range(2):
            rank.call(table, m.APPLY, pickle=(noise, ()))
        outcomes.append(server.pull(table, range(12)))
    assert np.array_equal(*outcomes)
    assert len(set(outcomes[0].tolist())) == 12


def test_an_apply_that_raises_is_refused_now_and_again(server, filled):
    table, rank = filled

    def fails(part):
        if part.number == 1:
            raise KeyError("no such thing")

    frames = rank.called(table, m.APPLY, pickle=(fails, ()))
    for _ in range(2):
        answer, statuses = server.ask(frames)
        assert statuses == [m.REFUSED] * 3
        assert (answer.code, answer.fields["partition"]) == ("FunctionFailed", 1)
        assert "no such thing" in answer.fields["traceback"]
    assert rank.call(table, m.APPLY, "fill", x=1.0)[1] == []


def test_an_error_of_ours_with_fields_that_do_not_travel_is_told_in_words(filled):
    table, rank = filled

    def fails(part):
        raise InvalidArgument(name="x", value=object(), reason="no good")

    answer, statuses = rank.call(table, m.APPLY, pickle=(fails, ()))
    assert (answer.code, statuses) == ("FunctionFailed", [m.REFUSED] * 3)
    assert "no good" in answer.fields["traceback"]


def test_an_untrusted_listener_takes_built_ins_only(server, filled):
    table, rank = filled
    server.door = Door.TICKET
    answer, _ = rank.call(table, m.REDUCE, pickle=(len, ()))
    assert answer.code == "FunctionRefused"
    answer, statuses = rank.call(table, m.APPLY, pickle=(len, ()))
    assert (answer.code, statuses) == ("FunctionRefused", [m.REFUSED] * 3)
    assert partials(rank.call(table, m.REDUCE, "count"))


@pytest.mark.parametrize(
    ("kind", "name", "numbers"),
    [
        (m.REDUCE, "nonsense", {}),
        (m.REDUCE, "fill", {"x": 1.0}),
        (m.APPLY, "sum", {}),
        (m.APPLY, "fill", {"y": 1.0}),
    ],
)
def test_wrong_built_ins_are_refused(filled, kind, name, numbers):
    table, rank = filled
    answer, _ = rank.call(table, kind, name, **numbers)
    assert answer.code == "MalformedRequest"


@pytest.mark.parametrize("pickle", [17, (1, 2), (len,), (len, 3)])
def test_a_pickle_that_is_no_call_is_refused(filled, pickle):
    table, rank = filled
    answer, _ = rank.call(table, m.REDUCE, pickle=pickle)
    assert answer.code in ("MalformedRequest", "FunctionFailed")


def test_bytes_that_are_no_pickle_are_refused(server, filled):
    table, rank = filled
    frames = rank.called(table, m.REDUCE, pickle=(len, ()))
    answer, _ = server.ask([*frames[:2], b"nonsense"])
    assert answer.code == "FunctionFailed"
    assert "unpickling the function" in str(from_wire(answer.code, answer.fields))


def test_configure_changes_the_optimizer_once(server):
    table = server.table(optimizer=SGD(lr=1.0))
    rank, *_ = server.session()
    rank.call(table, m.CONFIGURE, lr=0.25)
    rank.push(table, [1], [1.0])
    assert server.pull(table, [1]).tolist() == [-0.25]


def test_a_wrong_configure_is_refused_and_changes_nothing(server):
    table = server.table(optimizer=SGD(lr=1.0))
    plain = server.table(2)
    rank, *_ = server.session(consistency="bsp")
    answer, statuses = rank.call(table, m.CONFIGURE, speed=2.0)
    assert (answer.code, set(statuses)) == ("InvalidArgument", {m.REFUSED})
    rank.last = {}
    assert rank.call(plain, m.CONFIGURE, lr=2.0)[0].code == "InvalidArgument"
    rank.tick()
    assert rank.pull(table, [1]).tolist() == [0.0]


def test_a_reduction_of_partitions_that_are_elsewhere_is_not_mine(server, filled):
    table, rank = filled
    server.hosted(table).open[1] = False
    frames = encode(
        m.Function(table=table, seq=0, name="sum", **rank.header()),
        np.array([[1, 0, 0, -1, -1, -1]], np.int64),
    )
    assert isinstance(server.ask(frames)[0], m.NotMine)


@dataclass(frozen=True)
class Brittle(Optimizer):
    """Raises on negative gradients."""

    def update(self, fields, grads):
        if (grads < 0).any():
            raise ZeroDivisionError("negative")
        fields["value"] += grads


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_function_that_wants_the_process_to_end_is_only_refused(server, filled, kind):
    table, rank = filled

    def leaves(part):
        raise kind("enough")

    answer, _ = server.ask(rank.called(table, m.APPLY, pickle=(leaves, ())))
    assert (answer.code, answer.fields["partition"]) == ("FunctionFailed", 0)
    assert rank.call(table, m.APPLY, "fill", x=1.0)[1] == []


def test_a_users_optimizer_that_raises_names_itself(server):
    table = server.table(optimizer=Brittle())
    rank, *_ = server.session()
    assert rank.push(table, [1], [2.0])[1] == []
    answer, statuses = rank.push(table, [1], [-2.0])
    assert (answer.code, statuses) == ("FunctionFailed", [m.REFUSED])
    assert "ZeroDivisionError: negative" in answer.fields["traceback"]
    assert server.pull(table, [1]).tolist() == [2.0]


@dataclass(frozen=True)
class Fieldless(Optimizer):
    """Cannot say its fields on a server, as one whose module differs there."""

    def fields(self):
        raise LookupError("no fields")


def test_a_users_optimizer_that_cannot_say_its_fields_is_named_by_its_table(server):
    spec = TableSpec("brittle", optimizer=Fieldless().spec())
    _, effect = server.core.command(m.AddTable(9, TableInfo(9, spec)), 0.0)
    done = effect.message
    assert (done.code, done.fields["table"]) == ("FunctionFailed", "brittle")
    assert "LookupError: no fields" in done.fields["traceback"]


def test_a_users_optimizer_that_raises_in_a_seal_breaks_the_session(server):
    table = server.table(optimizer=Brittle())
    rank, *_ = server.session(consistency="bsp")
    rank.push(table, [1], [-2.0])
    rank.tick()
    assert rank.pull(table, [1])[0].code == "FunctionFailed"
    assert server.command(m.Seal(1, rank.session, 1)).code == "FunctionFailed"
