"""Whatever comes: a typed answer, a server that lives, and nothing changed by what was refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkps.errors import _BY_NAME
from sparkps.optim import FTRL
from sparkps.server.core import Door
from sparkps.wire import messages as m
from sparkps.wire.frames import encode

WORDS = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 5, 7, 100, 500, 501, 502, 2**31, 2**32, 2**62])
INTS = st.one_of(WORDS, st.integers(-(2**63), 2**63 - 1))
BUFFERS = st.one_of(
    st.binary(max_size=64),
    st.lists(INTS, max_size=13).map(lambda words: np.array(words, np.int64).tobytes()),
    st.lists(st.integers(-2, 9), max_size=12).map(lambda w: np.array(w, np.int32).tobytes()),
)
REFS = st.sampled_from([b"", b"v", b"k", b"x" * 300])
COMMON = {"id": st.integers(0, 2**64 - 1), "table": st.sampled_from([1, 2, 3, 9]), "view": INTS}
SENDER = {
    "session": st.sampled_from([0, 5, 6, 7]),
    "rank": st.sampled_from([0, 1, 2, -1]),
    "token": st.sampled_from([500, 501, 502, 600, 601, 0]),
}
CLOCK = {"clock": st.one_of(st.integers(0, 2), INTS)}
MODE = {"mode": st.sampled_from([0, 1, 2, 3, -1]), "ref": REFS}
PULL = st.builds(m.Pull, **COMMON, **SENDER, **CLOCK, **MODE, first=INTS, count=INTS)
PUSH = st.builds(
    m.Push, **COMMON, **SENDER, **CLOCK, **MODE, seq=st.integers(-1, 3), kind=st.integers(-1, 2)
)
FUNCTION = st.builds(
    m.Function,
    **COMMON,
    **SENDER,
    **CLOCK,
    seq=st.integers(0, 3),
    kind=st.integers(0, 3),
    name=st.sampled_from(["", "sum", "fill", "scale", "dots", "top_k", "what"]),
    numbers=st.dictionaries(st.sampled_from(["x", "a", "k", "field", "lr"]), INTS, max_size=2),
)
REGISTER = st.builds(m.Register, **COMMON, **SENDER, ref=REFS, start=INTS)
KEYSET = st.builds(
    m.MakeKeyset, **COMMON, **SENDER, ref=REFS, start=INTS, total=INTS, vocabulary=REFS
)
SCAN = st.builds(
    m.Scan, **COMMON, fields=st.lists(INTS, max_size=2).map(tuple), count_only=st.booleans()
)
MESSAGES = st.one_of(PULL, PUSH, FUNCTION, REGISTER, KEYSET, SCAN, st.builds(m.Ping, INTS))


def image(server) -> Any:
    """Everything that a refused request must leave alone."""
    return [
        (number, p, {name: array.tobytes() for name, array in hosted.table.image(p).items()})
        for number, hosted in server.core.state.tables.items()
        for p in hosted.table.array.open_partitions().tolist()
    ]


def prepared(make_server):
    server = make_server(limit=1 << 24)
    server.table(1)
    server.table(2, dim=10, width=2, partitions=3)
    server.table(3, optimizer=FTRL(), partitions=2)
    server.session(5, size=2, consistency="bsp")
    server.session(6, size=1)
    return server


def check(server, frames):
    before = image(server)
    answers = server.answers(frames)
    assert answers
    for answer, buffers in answers:
        if isinstance(answer, m.Refused):
            assert answer.code in _BY_NAME
            assert image(server) == before
        if isinstance(answer, m.Acked) and buffers and (np.frombuffer(buffers[0], "u1") > 1).all():
            assert image(server) == before
    assert server.ask(encode(m.Ping(1)))[0] == m.Acked(1)


@settings(max_examples=150, deadline=None)
@given(frames=st.lists(st.one_of(st.binary(max_size=40), BUFFERS), min_size=1, max_size=4))
def test_any_frames(make_server_once, frames):
    check(make_server_once, frames)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_messages_with_any_buffers(make_server, data):
    server = prepared(make_server)
    server.door = Door.TICKET
    for _ in range(8):
        message = data.draw(MESSAGES)
        buffers = data.draw(st.lists(BUFFERS, max_size=3))
        check(server, encode(message, *buffers))


SOME = {"table": st.integers(1, 3), "session": st.integers(5, 6), "rank": st.integers(0, 2)}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_order_of_well_formed_requests(make_server, data):
    """Sums are exact: what was acknowledged as applied, and nothing else, is in the tables."""
    server = prepared(make_server)
    ranks = {5: server.session(5, 2, "bsp"), 6: server.session(6, 1)}
    sent: list[Any] = []
    applied: set[int] = set()
    total = 0.0
    for _ in range(data.draw(st.integers(1, 14))):
        session = data.draw(st.sampled_from([5, 6]))
        rank = data.draw(st.sampled_from(ranks[session]))
        action = data.draw(st.sampled_from(["push", "push", "again", "pull", "tick"]))
        if action == "push":
            keys = data.draw(st.lists(st.integers(0, 20), unique=True, max_size=6))
            frames = rank.pushed(1, keys, np.ones(len(keys)))
            sent.append((frames, len(keys)))
            if data.draw(st.booleans()):
                continue  # lost: what follows it is a gap until it comes
        if action == "tick" and session == 6:
            rank.tick()
        if action == "pull":
            rank.pull(1, [1, 2, 3])
        if not sent:
            continue
        number = data.draw(st.integers(0, len(sent) - 1))
        frames, _ = sent[number]
        answer, statuses = server.ask(frames)
        slices = frames[1]
        if not len(slices) and isinstance(answer, m.Refused):
            assert answer.code == "TableBusy"  # a write of no rows only asks for the table
            continue
        assert isinstance(answer, m.Acked)
        for row, status in zip(slices, statuses or [m.APPLIED] * len(slices), strict=True):
            key = (number, int(row[0]))
            if status == m.APPLIED:
                assert key not in applied
                applied.add(key)
                total += float(row[2])
            elif status == m.DUPLICATE:
                assert key in applied
    server.command(m.Seal(1, 5, 1))
    assert server.pull(1, range(21)).sum() == total
