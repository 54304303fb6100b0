"""Every acknowledged write is applied exactly once, whatever the network loses.

Three ranks with four writes under way each, on the cores of real servers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from sparkps.client.table import Table
from sparkps.errors import MemoryLimit
from sparkps.server import writes
from tests.client.stage import SESSION, Cluster, error_of, table, worker

SEEDS = range(12)


def refuse(patch: pytest.MonkeyPatch, name: str, random: np.random.Generator, share: float) -> None:
    """Let servers refuse a share of the messages of writes, at random."""
    usual = getattr(writes, name)

    def maybe(*arguments: Any) -> None:
        if random.random() < share:
            raise MemoryLimit(server=0, table="t", needed=1, used=2, limit=3)
        usual(*arguments)

    patch.setattr(writes, name, maybe)


class Rank:
    """A rank that pushes ones to random keys, by all three ways of naming rows."""

    def __init__(self, cluster: Cluster, number: int, info: Any, *, bsp: bool = False) -> None:
        self.random = np.random.default_rng(number)
        self.client, self.seat = worker(cluster, number, bsp=bsp)
        self.table: Table = table(self.client, info, self.seat)
        self.vocabulary = self.table.vocabulary()
        self.keysets = [self.table.keyset(self.keys()) for _ in range(3)]
        self.pending: list[Any] = []
        self.expected: Counter[int] = Counter()

    def keys(self) -> np.ndarray:
        return self.random.integers(-20, 20, self.random.integers(1, 30))

    def push(self) -> None:
        how = self.random.integers(3)
        if how == 0:
            keys = self.keys()
            self.pending.append(self.table.push(keys, 1))
        elif how == 1:
            keys = self.keys()
            self.pending.append(self.vocabulary.push(self.vocabulary.add(keys), 1))
        else:
            keyset = self.keysets[self.random.integers(3)]
            self.pending.append(keyset.push(1))
            keys = self._keys_of(keyset)
        self.expected.update(keys.tolist())
        while len(self.pending) > 4:
            self.pending.pop(0).wait()

    def _keys_of(self, keyset: Any) -> np.ndarray:
        distinct = np.empty_like(keyset._grouped)
        distinct[keyset._order] = keyset._grouped
        return distinct if keyset._inverse is None else distinct[keyset._inverse]

    def settle(self) -> None:
        for pending in self.pending:
            pending.wait()
        self.pending.clear()
        assert self.seat.acknowledged == self.seat.clock


@pytest.mark.parametrize("seed", SEEDS)
def test_writes_are_applied_once_when_connections_are_cut(seed: int) -> None:
    cluster = Cluster(servers=2, seed=seed, cut_rate=0.05)
    cluster.session(3)
    info = cluster.create(dtype="int64", partitions=8)
    ranks = [Rank(cluster, number, info) for number in range(3)]
    for clock in range(6):
        for rank in ranks:
            rank.seat.clock = clock
            for _ in range(3):
                rank.push()
    for rank in ranks:
        rank.settle()
    expected = sum((rank.expected for rank in ranks), Counter())
    cluster.network.cut_rate = 0
    assert cluster.values(info) == dict(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_seen_by_the_next_pull(seed: int) -> None:
    cluster = Cluster(servers=3, seed=seed, cut_rate=0.05)
    cluster.session(1)
    info = cluster.create(dtype="int64", partitions=8)
    rank = Rank(cluster, 0, info)
    for _ in range(10):
        rank.push()
        rank.settle()
        keys = rank.keys()
        assert rank.table.pull(keys).tolist() == [rank.expected[key] for key in keys.tolist()]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sealed_clock_holds_every_rank_s_writes_once(seed: int) -> None:
    cluster = Cluster(servers=2, seed=seed, cut_rate=0.04)
    cluster.session(3, "bsp")
    info = cluster.create(dtype="int64", partitions=8)
    ranks = [Rank(cluster, number, info, bsp=True) for number in range(3)]
    sealed: Counter[int] = Counter()
    for clock in range(4):
        for rank in ranks:
            rank.seat.clock = clock
            keys = rank.keys()
            assert rank.table.pull(keys).tolist() == [sealed[key] for key in keys.tolist()]
            for _ in range(3):
                rank.push()
        for rank in ranks:
            rank.settle()
        sealed = sum((rank.expected for rank in ranks), Counter())


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_refused_write_a_part_is_applied_once_or_not_at_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "_apply", np.random.default_rng(seed), 0.2)
    cluster = Cluster(servers=3, seed=seed, cut_rate=0.03)
    cluster.session(1)
    info = cluster.create(dtype="int64", width=1024, partitions=8)
    client, seat = worker(cluster, window=200_000)
    handle = table(client, info, seat)
    words: list[str] = []
    for number in range(10):
        pending = handle.push(np.arange(number * 100, number * 100 + 100), 1)
        error = error_of(pending.wait)
        words.append("" if error is None else str(error))
        assert client.core.backlog == 0
    client.settle(seat)
    cluster.network.cut_rate = 0
    found = {key: set(row) for key, row in cluster.values(info).items()}
    assert all(row in ({0}, {1}) for row in found.values())
    assert any(words)
    for number, said in enumerate(words):
        rows = [found.get(key, {0}) == {1} for key in range(number * 100, number * 100 + 100)]
        if not said:
            assert all(rows)
        elif "a part of it was applied" in said:
            assert any(rows)
        elif "a part of it may be applied" not in said:
            assert not any(rows)


def test_a_refused_first_write_makes_the_table_its_run_s_on_all_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(servers=2)
    cluster.session(1, "bsp")
    client, seat = worker(cluster, bsp=True, window=100_000)

    def rows_on(server: int, info: Any) -> np.ndarray:
        partitions = np.arange(4000) // 500
        return np.flatnonzero(client.routes(info).owners[partitions] == server)

    wide = cluster.create(dim=4000, width=1024, partitions=8)
    info = cluster.create(dim=4000, partitions=8)
    far = table(client, wide, seat).push(rows_on(1, wide)[:200], 1)  # what the claim waits behind
    refuse(monkeypatch, "_stage", np.random.default_rng(seed=0), 1.0)
    refused = table(client, info, seat).push(rows_on(0, info)[:1], 1)
    assert isinstance(error_of(refused.wait), MemoryLimit)
    assert client.core.backlog
    error_of(far.wait)
    client.network.run(lambda: not seat.outstanding)
    assert [core.state.hosted(info.id).owner for core in cluster.cores] == [SESSION, SESSION]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_that_has_no_room_for_lists_is_asked_by_keys(seed: int) -> None:
    cluster = Cluster(servers=2, seed=seed, keysets=150, cut_rate=0.03)
    cluster.session(1)
    info = cluster.create(dtype="int64", partitions=8)
    rank = Rank(cluster, 0, info)
    for _ in range(20):
        rank.push()
    rank.settle()
    assert rank.vocabulary._full or any(keyset._refused for keyset in rank.keysets)
    keys = np.arange(-20, 20)
    ordinals = rank.vocabulary.add(keys)
    expected = [rank.expected[key] for key in keys.tolist()]
    assert rank.vocabulary.pull(ordinals).tolist() == expected
    assert rank.vocabulary.keyset(ordinals).pull().tolist() == expected


def test_the_same_writes_in_one_message_and_in_many_give_the_same_bits() -> None:
    found = []
    for servers, message in ((1, 1 << 20), (3, 1 << 16)):
        cluster = Cluster(servers=servers, seed=servers)
        cluster.session(1)
        info = cluster.create(width=8, partitions=16)
        client, seat = worker(cluster, message_max=message)
        handle = table(client, info, seat)
        random = np.random.default_rng(0)
        for _ in range(3):
            handle.push(random.integers(0, 9000, 20_000), random.normal(size=(20_000, 8)))
        client.settle(seat)
        keys, values = handle.collect()
        found.append((keys.tobytes(), values.tobytes()))
        # Pieces of a pull and of a keyset come back in their places.
        asked = random.permutation(keys)[:5000]
        at = np.searchsorted(keys, asked)
        assert (handle.pull(asked) == values[at]).all()
        assert (handle.keyset(asked).pull() == values[at]).all()
    assert found[0] == found[1]
