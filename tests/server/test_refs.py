"""Vocabularies and keysets."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.spec import InitSpec
from sparkps.wire import messages as m
from sparkps.wire.frames import as_array, encode

KEYS = np.random.default_rng(5).integers(-(2**63), 2**63, 50)


class Words:
    """A vocabulary of one rank, and keysets in it."""

    def __init__(self, server, rank, table):
        self.server, self.rank, self.table = server, rank, table
        self.keys = np.empty(0, np.int64)
        self.ref = b"v" * 16

    def head(self, **more):
        return self.rank.header() | more | {"table": self.table}

    def registration(self, keys, start=None):
        order, counts = self.server.grouped(self.table, keys)
        parts = np.array(list(counts.items()), np.int32)
        head = self.head(ref=self.ref, start=len(self.keys) if start is None else start)
        del head["clock"]
        return encode(m.Register(**head), parts, keys[order]), keys[order]

    def add(self, keys):
        frames, ordered = self.registration(np.asarray(keys, np.int64))
        answer = self.server.ask(frames)
        self.keys = np.concatenate((self.keys, ordered))
        return answer[0]

    def parts(self, ordinals):
        """Ordinals grouped by partition, and the groups."""
        order, counts = self.server.grouped(self.table, self.keys[ordinals])
        return np.asarray(ordinals, np.int32)[order], np.array(list(counts.items()), np.int32)

    def pull(self, ordinals):
        ordinals, parts = self.parts(ordinals)
        head = self.head(mode=m.ORDINALS, ref=self.ref)
        answer = self.server.ask(encode(m.Pull(**head), parts, ordinals))
        return self.keys[ordinals], self.rows(answer)

    def rows(self, answer):
        return answer if isinstance(answer, tuple) else as_array(answer, "float32").tolist()

    def push(self, ordinals, values):
        ordinals, parts = self.parts(ordinals)
        seq = self.rank.seq
        slices = self.rank.slices(dict(parts.tolist()))
        head = self.head(mode=m.ORDINALS, ref=self.ref, seq=seq)
        values = np.full(len(ordinals), values, np.float32)
        return self.server.ask(encode(m.Push(**head), slices, ordinals, values))

    def keyset(self, ordinals, ref=b"k" * 16, start=0, total=None, use=slice(None)):
        ordinals, parts = self.parts(ordinals)
        total = len(ordinals) if total is None else total
        head = self.head(ref=ref, start=start, total=total, vocabulary=self.ref)
        del head["clock"]
        return self.server.ask(encode(m.MakeKeyset(**head), parts[use], ordinals))[0], parts

    def pull_keyset(self, first, count, ref=b"k" * 16):
        head = self.head(mode=m.KEYSET, ref=ref, first=first, count=count)
        return self.rows(self.server.ask(encode(m.Pull(**head))))

    def push_keyset(self, parts, values, ref=b"k" * 16):
        seq = self.rank.seq
        head = self.head(mode=m.KEYSET, ref=ref, seq=seq)
        slices = self.rank.slices(dict(parts.tolist()))
        return self.server.ask(encode(m.Push(**head), slices, np.asarray(values, np.float32)))


@pytest.fixture
def words(server):
    rank, *_ = server.session()
    words = Words(server, rank, server.table())
    assert words.add(KEYS[:30]).code == ""
    return words


def test_ordinals_name_what_keys_name(server, words):
    words.rank.push(words.table, KEYS, np.arange(50))
    keys, values = words.pull(range(30))
    assert values == server.pull(words.table, keys).tolist()
    words.add(KEYS[30:])
    keys, values = words.pull([40, 3, 45, 3])
    assert values == server.pull(words.table, keys).tolist()


def test_a_push_by_ordinals_creates_rows_that_are_found_by_key(server, words):
    assert words.push(range(10), 2.0)[1] == []
    assert server.pull(words.table, words.keys[:12]).tolist() == [2.0] * 10 + [0.0] * 2
    words.push(range(12), 1.0)
    assert server.pull(words.table, words.keys[:12]).tolist() == [3.0] * 10 + [1.0] * 2


def test_rows_that_others_create_are_found(server, words):
    assert set(words.pull(range(30))[1]) == {0.0}
    words.rank.push(words.table, words.keys[:5], np.ones(5))
    keys, values = words.pull(range(7))
    assert dict(zip(keys.tolist(), values, strict=True)) == dict(
        zip(words.keys[:7].tolist(), [1.0] * 5 + [0.0] * 2, strict=True)
    )


def test_keys_of_missing_rows_are_kept_only_while_they_are_missing(server, words):
    refs = server.hosted(words.table).refs[words.rank.session]
    found = refs.vocabulary(words.ref, 0).list
    assert found.missing == 30
    words.push(range(30), 1.0)
    assert found.missing == 0
    assert found.nbytes < 30 * 8


def test_missing_rows_of_a_random_table_read_as_their_keys_say(server):
    rank, *_ = server.session()
    words = Words(server, rank, server.table(2, init=InitSpec("uniform", -1.0, 1.0)))
    words.add(KEYS)
    words.rank.push(2, KEYS[:10], np.ones(10))
    keys, values = words.pull(range(50))
    assert values == server.pull(2, keys).tolist()
    words.keyset(range(50))
    assert words.pull_keyset(0, 50) == values


def test_a_registration_that_comes_again_changes_nothing(server, words):
    frames, _ = words.registration(words.keys[:30], start=0)
    assert server.ask(frames)[0].code == ""
    assert server.hosted(1).refs[5].vocabulary(words.ref, 0).list.size == 30


def test_a_registration_after_a_lost_one_is_unknown(server, words):
    frames, _ = words.registration(KEYS[30:], start=40)
    assert isinstance(server.ask(frames)[0], m.UnknownRef)


@pytest.mark.parametrize("create_first", [True, False])
def test_a_keyset_pulls_and_pushes(server, words, create_first):
    if create_first:
        words.push(range(30), 1.0)
    answer, parts = words.keyset(range(20))
    assert answer.code == ""
    before = words.pull_keyset(0, 20)
    assert before == [float(create_first)] * 20
    assert words.push_keyset(parts, np.arange(20))[1] == []
    ordinals, _ = words.parts(range(20))
    expected = server.pull(words.table, words.keys[ordinals]).tolist()
    assert words.pull_keyset(0, 20) == expected == (np.array(before) + np.arange(20)).tolist()
    assert words.pull_keyset(3, 9) == expected[3:12]
    assert words.push_keyset(parts, np.ones(20))[1] == []
    assert words.pull_keyset(19, 1) == [expected[19] + 1]
    assert words.pull_keyset(20, 0) == []


def test_a_keyset_may_come_in_pieces_and_is_unknown_before(server, words):
    ordinals, parts = words.parts(range(20))
    half = int(parts[0, 1]) - 1
    head = words.head(ref=b"p" * 16, total=20, vocabulary=words.ref)
    del head["clock"]
    first = encode(
        m.MakeKeyset(start=0, **head), np.array([[parts[0, 0], half]], np.int32), ordinals[:half]
    )
    rest_parts = parts.copy()
    rest_parts[0, 1] = 1
    rest = encode(m.MakeKeyset(start=half, **head), rest_parts, ordinals[half:])
    assert isinstance(server.ask(rest)[0], m.UnknownRef), "its beginning is missing"
    server.ask(first)
    server.ask(first)
    assert isinstance(words.pull_keyset(0, half, ref=b"p" * 16)[0], m.UnknownRef)
    assert server.ask(rest)[0].code == ""
    server.ask(rest)
    words.push(range(20), 1.0)
    assert words.pull_keyset(0, 20, ref=b"p" * 16) == [1.0] * 20


def test_a_keyset_of_keys_needs_no_vocabulary(server):
    table = server.table()
    rank, *_ = server.session()
    order, counts = server.grouped(table, KEYS)
    head = rank.header() | {"table": table, "ref": b"x", "start": 0, "total": 50}
    del head["clock"]
    frames = encode(m.MakeKeyset(**head), np.array(list(counts.items()), np.int32), KEYS[order])
    assert server.ask(frames)[0].code == ""
    rank.push(table, KEYS, np.arange(50))
    words = Words(server, rank, table)
    assert words.pull_keyset(0, 50, ref=b"x") == np.arange(50)[order].tolist()


@pytest.mark.parametrize(("first", "count"), [(-1, 3), (18, 3), (0, 21), (2**62, 2**62)])
def test_rows_outside_a_keyset_are_refused(words, first, count):
    words.keyset(range(20))
    assert words.pull_keyset(first, count)[0].code == "MalformedRequest"


def test_slices_outside_a_keyset_are_refused(server, words):
    _, parts = words.keyset(range(20))
    wrong = parts.copy()
    wrong[0, 1] += 1
    answer, _ = words.push_keyset(wrong, np.ones(21))
    assert answer.code == "MalformedRequest"
    words.rank.last, words.rank.seq = {}, 0
    answer, _ = words.push_keyset(parts[::2], np.ones(int(parts[::2, 1].sum())))
    assert "must follow one another" in answer.fields["reason"]


def test_an_ordinal_outside_is_refused_and_changes_nothing(server, words):
    parts = np.array([[0, 1]], np.int32)
    for ordinal in (-1, 30):
        head = words.head(mode=m.ORDINALS, ref=words.ref)
        answer, _ = server.ask(encode(m.Pull(**head), parts, np.array([ordinal], np.int32)))
        assert answer.code == "MalformedRequest"


def test_an_ordinal_of_another_partition_never_writes_outside(server, words):
    """The row number may not exist there; if it does, the sender has written where it said."""
    words.push(range(30), 1.0)
    stored = server.hosted(words.table).table
    p, most = max(((p, stored.array.rows(p)) for p in range(4)), key=lambda pair: pair[1])
    q = min(range(4), key=stored.array.rows)
    key = stored.keys(p)[most - 1]
    ordinal = words.keys.tolist().index(key)
    slices = np.array([[q, 0, 1, *words.rank.last[q]]], np.int64)
    head = words.head(mode=m.ORDINALS, ref=words.ref, seq=9)
    answer, statuses = server.ask(
        encode(m.Push(**head), slices, np.array([ordinal], np.int32), np.ones(1, np.float32))
    )
    assert (answer.code, statuses) == ("MalformedRequest", [m.REFUSED])


def test_what_is_over_the_limit_is_unknown(make_server):
    server = make_server(keysets=400)
    rank, *_ = server.session()
    words = Words(server, rank, server.table())
    assert words.add(KEYS[:10]).code == ""
    assert isinstance(words.add(KEYS[10:]), m.UnknownRef)
    assert words.keyset(range(10))[0].code == ""
    huge = words.keyset(range(10), ref=b"z", total=2**40)[0]
    assert isinstance(huge, m.UnknownRef)


def test_what_finds_no_memory_takes_none(make_server):
    """A keyset whose rows and whose missing keys fit, but not both together."""
    server = make_server()
    rank, *_ = server.session()
    words = Words(server, rank, server.table())
    words.add(KEYS[:30])
    budget = server.core.state.budget
    before = budget.taken
    budget.limit = budget.used + 200
    assert isinstance(words.keyset(range(15))[0], m.UnknownRef)
    assert budget.taken == before
    server.command(m.RemoveSession(1, rank.session))
    assert budget.taken == 0


def test_another_generation_is_unknown_and_can_be_made_again(server, words):
    words.keyset(range(20))
    server.hosted(words.table).generation += 1
    assert isinstance(words.pull_keyset(0, 20)[0], m.UnknownRef)
    assert isinstance(words.pull(range(3))[1][0], m.UnknownRef)
    again = words.keys
    words.keys = np.empty(0, np.int64)
    words.add(again)
    words.keyset(range(20))
    assert words.pull_keyset(0, 20) == [0.0] * 20


def test_all_of_it_ends_with_the_session(server, words):
    words.keyset(range(20))
    budget = server.core.state.budget
    assert budget.taken > 0
    server.command(m.RemoveSession(1, words.rank.session))
    assert budget.taken == 0


def test_outside_of_sessions_it_ends_with_the_connection(server):
    rank, *_ = server.session()
    words = Words(server, rank, server.table())
    rank.session = 0
    words.add(KEYS)
    words.keyset(range(20))
    assert words.pull_keyset(0, 20) == [0.0] * 20
    server.hello("other")
    head = words.head(mode=m.KEYSET, ref=b"k" * 16, first=0, count=20)
    assert isinstance(server.ask(encode(m.Pull(**head)), "other")[0], m.UnknownRef)
    server.core.disconnected("me")
    assert server.core.state.budget.taken == 0


def test_in_bsp_rows_named_by_ordinals_are_created_by_the_seal(server):
    rank, *_ = server.session(consistency="bsp")
    words = Words(server, rank, server.table())
    words.add(KEYS)
    words.keyset(range(20))
    words.push(range(30), 1.0)
    _, parts = words.keyset(range(20))
    words.push_keyset(parts, np.ones(20))
    assert server.hosted(words.table).table.array.count() == 0
    rank.tick()
    assert words.pull_keyset(0, 20) == [2.0] * 20
    assert server.hosted(words.table).table.array.count() == 30
