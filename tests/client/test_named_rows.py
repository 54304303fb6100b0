"""Vocabularies and keysets give what plain keys give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sparkps.client.table import Table
from sparkps.errors import InvalidArgument
from tests.client.stage import Cluster, table, worker

Create = Callable[..., Table]


def keys_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count)


def test_ordinals_are_places_in_order_of_first_appearance(create: Create) -> None:
    vocabulary = create().vocabulary()
    assert vocabulary.add([7, -2, 7]).tolist() == [0, 1, 0]
    assert vocabulary.add([5, -2]).tolist() == [2, 1]
    assert len(vocabulary) == 3
    assert vocabulary.keys().tolist() == [7, -2, 5]
    assert vocabulary.keys([2, 2]).tolist() == [5, 5]


@pytest.mark.parametrize("width", [1, 3])
def test_pulls_and_pushes_by_ordinals_are_those_by_keys(create: Create, width: int) -> None:
    plain, named = create(width=width), create(width=width)
    vocabulary = named.vocabulary()
    random = np.random.default_rng(0)
    for seed in range(4):
        keys = random.choice(keys_of(500), 300)
        values = random.normal(size=300 if width == 1 else (300, width))
        ordinals = vocabulary.add(keys)
        assert (vocabulary.pull(ordinals) == plain.pull(keys)).all()
        vocabulary.push(ordinals, values)
        plain.push(keys, values)
        keys_of(seed)
    (keys, values), (same_keys, same_values) = plain.collect(), named.collect()
    assert (keys == same_keys).all()
    assert (values == same_values).all()


@pytest.mark.parametrize("made_of", ["keys", "ordinals"])
@pytest.mark.parametrize("width", [1, 3])
def test_pulls_and_pushes_of_a_keyset_are_those_by_keys(
    create: Create, made_of: str, width: int
) -> None:
    plain, named = create(width=width), create(width=width)
    keys = np.random.default_rng(1).choice(keys_of(500), 400)
    vocabulary = named.vocabulary()
    keyset = named.keyset(keys) if made_of == "keys" else vocabulary.keyset(vocabulary.add(keys))
    assert len(keyset) == 400
    for seed in range(3):
        values = np.random.default_rng(seed).normal(size=400 if width == 1 else (400, width))
        keyset.push(values)
        plain.push(keys, values)
        assert (keyset.pull() == plain.pull(keys)).all()
        assert (keyset.pull(wait=False).wait() == plain.pull(keys)).all()
    assert named.count() == plain.count()


def test_rows_that_come_later_are_found(create: Create) -> None:
    named = create()
    keys = keys_of(100)
    keyset = named.keyset(keys)
    assert not keyset.pull().any()
    named.push(keys, np.arange(100))
    assert (keyset.pull() == np.arange(100)).all()


def test_no_rows_are_no_operation(create: Create) -> None:
    vocabulary = create().vocabulary()
    keyset = vocabulary.keyset([])
    vocabulary.push([], [])
    keyset.push([])
    assert keyset.pull().tolist() == vocabulary.pull([]).tolist() == []
    assert keyset.pull(wait=False).wait().tolist() == []


@pytest.mark.parametrize("bad", [-1, 3, 100])
def test_an_ordinal_of_no_key_is_refused(create: Create, bad: int) -> None:
    vocabulary = create().vocabulary()
    vocabulary.add([4, 5, 6])
    ordinals = np.array([0, bad], np.int32)
    for call in (
        lambda: vocabulary.pull(ordinals),
        lambda: vocabulary.push(ordinals, 1),
        lambda: vocabulary.keyset(ordinals),
    ):
        with pytest.raises(
            InvalidArgument, match=rf"ordinals\[1\]={bad}: the vocabulary .* has 3 keys"
        ):
            call()


def test_keys_travel_once() -> None:
    cluster = Cluster(servers=1)
    cluster.session(1)
    info = cluster.create()
    client, seat = worker(cluster)
    handle = table(client, info, seat)
    keys = keys_of(1000)
    keyset = handle.keyset(keys)
    keyset.pull()
    vocabulary = handle.vocabulary()
    ordinals = vocabulary.add(keys)
    vocabulary.pull(ordinals)
    before = client.core.figures()["pull_bytes"]
    keyset.pull()
    assert client.core.figures()["pull_bytes"] - before == 4000
    vocabulary.pull(ordinals)
    assert client.core.figures()["pull_bytes"] - before == 4000 + 8000


def test_what_a_server_has_lost_is_sent_anew() -> None:
    cluster = Cluster(servers=2)
    cluster.session(1)
    info = cluster.create()
    client, seat = worker(cluster)
    handle = table(client, info, seat)
    keys = keys_of(100)
    handle.push(keys, np.arange(100)).wait()
    keyset, vocabulary = handle.keyset(keys), handle.vocabulary()
    ordinals = vocabulary.add(keys)
    for _ in range(3):
        assert (keyset.pull() == np.arange(100)).all()
        assert (vocabulary.pull(ordinals) == np.arange(100)).all()
        for core in cluster.cores:
            for refs in core.state.tables[info.id].refs.values():
                refs.drop()
    assert not keyset._refused
    keyset.push(1).wait()
    vocabulary.push(ordinals, 1).wait()
    assert (handle.pull(keys) == np.arange(100) + 2).all()


def test_a_growing_vocabulary_keeps_the_places_of_its_keys() -> None:
    cluster = Cluster(servers=2)
    cluster.session(1)
    info = cluster.create(dtype="int64")
    client, seat = worker(cluster)
    handle = table(client, info, seat)
    keys = keys_of(3000)
    handle.push(keys, np.arange(3000)).wait()
    vocabulary = handle.vocabulary()
    for end in (1, 10, 1000, 1500, 3000):
        ordinals = vocabulary.add(keys[:end])
        assert (vocabulary.pull(ordinals) == np.arange(end)).all()
    assert vocabulary.nbytes < 40 * 3000
