"""Staging and seals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sparkps.optim import SGD, AdaGrad, Adam
from sparkps.spec import InitSpec
from sparkps.wire import messages as m


def table_of(server, table):
    stored = server.hosted(table).table
    return [
        (stored.keys(p).tolist(), stored.field(p, 0).tolist()) for p in server.partitions(table)
    ]


def test_no_write_of_its_own_clock_is_seen(server):
    table = server.table()
    one, two, _ = server.session(consistency="bsp")
    one.push(table, [1], [1.0])
    two.push(table, [1], [2.0])
    assert one.pull(table, [1]).tolist() == [0.0]
    one.tick()
    assert one.pull(table, [1]).tolist() == [3.0]
    assert server.pull(table, [1]).tolist() == [3.0]


def test_requests_without_a_clock_see_the_last_sealed_state(server):
    table = server.table()
    one, _, driver = server.session(consistency="bsp")
    one.push(table, [1], [1.0])
    one.tick()
    driver.tick()
    assert server.pull(table, [1]).tolist() == [0.0]
    assert driver.pull(table, [1]).tolist() == [0.0]
    assert server.command(m.Seal(1, one.session, 1)).code == ""
    assert server.pull(table, [1]).tolist() == [1.0]


def test_the_optimizer_is_called_once_with_the_sum(server):
    table = server.table(optimizer=AdaGrad(lr=1.0, eps=1e-9))
    one, two, _ = server.session(consistency="bsp")
    one.push(table, [1], [3.0])
    two.push(table, [1], [1.0])
    one.tick()
    assert one.pull(table, [1]).tolist() == [-1.0]


@pytest.mark.parametrize("arrival", list(itertools.permutations(range(3))))
def test_the_order_of_arrival_does_not_matter(make_server, arrival):
    """Values, and the order of new rows."""
    outcomes = []
    for order in (range(3), arrival):
        server = make_server()
        table = server.table(optimizer=SGD(lr=0.1), partitions=3)
        ranks = server.session(size=3, consistency="bsp")[:3]
        random = np.random.default_rng(1)
        frames = [
            [
                rank.pushed(table, random.permutation(40)[:25], random.normal(size=25))
                for _ in range(2)
            ]
            for rank in ranks
        ]
        for number in order:
            for message in frames[number]:
                server.ask(message)
        server.command(m.Seal(1, ranks[0].session, 1))
        outcomes.append(table_of(server, table))
    assert outcomes[0] == outcomes[1]


def test_a_late_write_is_refused_and_a_late_duplicate_is_not(server):
    table = server.table()
    one, two, _ = server.session(consistency="bsp")
    frames = one.pushed(table, [1], [1.0])
    server.ask(frames)
    late = two.pushed(table, [1], [1.0])
    server.command(m.Seal(1, one.session, 1))
    assert server.ask(frames)[1] == [m.DUPLICATE]
    assert server.ask(late)[1] == [m.LATE]
    assert server.pull(table, [1]).tolist() == [1.0]


def test_staged_writes_that_come_again_are_staged_once(server):
    table = server.table()
    one, *_ = server.session(consistency="bsp")
    frames = one.pushed(table, [1], [1.0])
    server.ask(frames)
    assert server.ask(frames)[1] == [m.DUPLICATE]
    one.tick()
    assert one.pull(table, [1]).tolist() == [1.0]


def test_an_assign_takes_effect_at_its_place(server):
    table = server.table()
    one, two, _ = server.session(consistency="bsp")
    two.push(table, [1, 2], [10.0, 20.0])
    one.push(table, [1, 2], [1.0, 2.0])
    one.push(table, [1], [5.0], kind=m.ASSIGN)
    one.push(table, [1], [0.5])
    one.tick()
    assert one.pull(table, [1, 2]).tolist() == [15.5, 22.0]


def test_a_configure_takes_effect_at_its_place(server):
    table = server.table(optimizer=SGD(lr=1.0))
    one, two, _ = server.session(consistency="bsp")
    two.push(table, [1], [1.0])
    one.push(table, [1], [1.0])
    one.call(table, m.CONFIGURE, lr=10.0)
    one.tick()
    assert one.pull(table, [1]).tolist() == [-11.0]


def test_a_function_takes_effect_at_its_place(server):
    table = server.table()
    one, two, _ = server.session(consistency="bsp")
    two.push(table, [1], [1.0])
    one.push(table, [1], [2.0])
    one.call(table, m.APPLY, "scale", a=10.0)
    assert server.pull(table, [1]).tolist() == [0.0]
    one.tick()
    assert one.pull(table, [1]).tolist() == [21.0]


def test_the_driver_writes_at_once_in_on_epoch(server):
    table = server.table()
    one, _, driver = server.session(consistency="bsp")
    one.push(table, [1], [1.0])
    server.command(m.Seal(1, one.session, 1))
    driver.tick()
    driver.push(table, [1], [5.0])
    assert server.pull(table, [1]).tolist() == [6.0]


def test_a_bsp_table_is_busy_until_the_session_ends(server):
    table = server.table()
    one, *_ = server.session(5, consistency="bsp")
    other, *_ = server.session(6)
    one.push(table, [1], [1.0])
    message, statuses = other.push(table, [1], [1.0])
    assert (message.code, statuses) == ("TableBusy", [m.REFUSED])
    server.command(m.RemoveSession(1, 5))
    assert other.push(table, [1], [1.0])[1] == []
    assert server.pull(table, [1]).tolist() == [1.0], "staged writes of a closed session are gone"
    assert server.core.state.budget.taken == 0


def test_ledgers_keep_staged_and_applied_apart(server):
    table = server.table(partitions=1)
    one, *_ = server.session(consistency="bsp")
    one.push(table, [1], [1.0])
    ledger = server.hosted(table).ledger(one.session, 0)
    assert (ledger.accepted(0), ledger.applied(0)) == ((0, 0, 0), (-1, -1, -1))
    one.tick()
    one.push(table, [1], [1.0])
    assert (ledger.accepted(0), ledger.applied(0)) == ((1, 0, 0), (0, 0, 0))
    assert server.hosted(table).table.array.log(0) == 3, "two writes and a seal"
    assert server.core.ledgers(table, 0) == [
        {"session": 5, "rank": 0, "applied": [0, 0, 0], "log": 3}
    ]


def test_what_cannot_be_staged_is_refused(make_server):
    server = make_server(limit=1 << 20)
    table = server.table()
    one, *_ = server.session(consistency="bsp")
    message, statuses = one.push(table, np.arange(200_000), np.ones(200_000))
    assert message.code == "MemoryLimit"
    assert set(statuses) == {m.REFUSED}
    assert server.core.state.budget.taken == 0


def test_a_seal_that_fails_breaks_the_session(make_server):
    server = make_server(limit=4 << 20)
    table = server.table()
    one, *_ = server.session(consistency="bsp")
    for i in range(3):
        assert one.push(table, np.arange(i * 60_000, (i + 1) * 60_000), np.ones(60_000))[1] == []
    one.tick()
    assert one.pull(table, [1])[0].code == "MemoryLimit"
    assert one.push(table, [1], [1.0])[0].code == "MemoryLimit"
    assert server.command(m.Seal(1, one.session, 1)).code == "MemoryLimit"


def test_an_empty_push_counts(server):
    table = server.table()
    one, *_ = server.session(consistency="bsp")
    assert one.push(table, [], [])[1] == []
    one.tick()
    assert one.pull(table, []).tolist() == []


def part_of(server, frames):
    """The message with the slices of the partitions that are on a server, None if it has none."""
    head, slices, keys, values = frames
    mine = np.isin(slices[:, 0], server.mine)
    rows = np.repeat(mine, slices[:, 2])
    return [head, slices[mine].copy(), keys[rows], values[rows]] if mine.any() else None


@pytest.mark.parametrize("optimizer", [AdaGrad(lr=0.1), Adam(lr=0.1)])
@pytest.mark.parametrize("dim", [None, 60])
@pytest.mark.parametrize("width", [1, 8])
def test_the_number_of_servers_does_not_change_a_bit(make_server, optimizer, dim, width):
    outcomes = []
    for servers in (1, 2, 5):
        random, arrival = np.random.default_rng(1), np.random.default_rng(servers)
        cores = [make_server() for _ in range(servers)]
        tables = {}
        for number, server in enumerate(cores):
            init = InitSpec("normal", 0.0, 0.1)
            server.table(optimizer=optimizer, dim=dim, width=width, init=init, partitions=7)
            server.mine = [p for p in range(7) if p % servers == number]
        senders = cores[0].session(size=3, consistency="bsp")[:3]
        for server in cores[1:]:
            server.session(size=3, consistency="bsp")
        for clock in range(4):
            messages = []
            for rank in senders:
                for _ in range(2):
                    keys = random.permutation(60)[: random.integers(1, 30)]
                    shape = (len(keys), width) if width > 1 else len(keys)
                    messages.append((rank.rank, rank.pushed(1, keys, random.normal(size=shape))))
                rank.tick()
            arrival.shuffle(ranks := [0, 1, 2])
            for number in ranks:  # a rank's own messages come in order
                for server, (_, frames) in itertools.product(
                    cores, [message for message in messages if message[0] == number]
                ):
                    if (piece := part_of(server, frames)) is not None:
                        assert server.ask(piece)[0].code == ""
            if clock % 2:
                for server in cores:
                    server.command(m.Seal(1, 5, clock + 1))
        for server in cores:
            tables.update({p: server.hosted(1).table.image(p) for p in server.mine})
        outcomes.append(
            [(p, name, array.tobytes()) for p in range(7) for name, array in tables[p].items()]
        )
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_an_assign_closes_the_sums_of_its_own_partitions_only(server):
    """With more servers those of other partitions would not hear of it."""
    table = server.table(optimizer=AdaGrad(lr=1.0, eps=1e-9), dim=8, partitions=2)
    one, two, _ = server.session(consistency="bsp")
    one.push(table, [1, 7], [3.0, 3.0])
    one.push(table, [0], [9.0], kind=m.ASSIGN)
    two.push(table, [1, 7], [1.0, 1.0])
    one.tick()
    once, twice = -1.0, -2.0 + 1.0 - 1.0 / np.sqrt(10.0)
    np.testing.assert_allclose(one.pull(table, [0, 1, 7]), [9.0, twice, once], rtol=1e-6)
