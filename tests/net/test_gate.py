"""Who comes in by a CURVE listener."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import zmq
import zmq.utils.z85

from sparkps.net.control import ControlLink
from sparkps.net.curve import Curve
from sparkps.net.endpoint import parse
from sparkps.net.gate import Gate
from sparkps.net.rpc import Connection
from sparkps.net.serve import Router
from sparkps.net.sockets import Context, new_context
from sparkps.wire.auth import Secret
from sparkps.wire.messages import VERSION, Join
from tests.net.conftest import LONG, Running, readable
from tests.net.relay import Relay

OURS, THEIRS = Curve(Secret("0a" * 32)), Curve(Secret("0b" * 32))

HANDSHAKE = (
    "the other side ended the handshake: it is of an application with another key or other "
    "security, or not of sparkps"
)


class Listener:
    """A listener with a gate that answers each message with itself, in a loop of its own."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.context = new_context()  # there is one gate in a context
        self.gate = Gate(self.context, running.loop, OURS)
        self.router = Router(self.context, ["tcp://127.0.0.1:0"], curve=OURS)
        self.endpoint = self.router.endpoints[0]
        self.heard = 0
        self.gone = threading.Semaphore(0)
        running.loop.serve(self.router, self._received, lambda peer, now: self.gone.release())
        running.start()

    def _received(self, peer: bytes, frames: list[object], now: float) -> None:
        self.heard += 1
        self.router.send(peer, frames)  # type: ignore[arg-type]

    def close(self) -> None:
        self.running.stop()
        self.router.close()
        self.gate.close()
        self.context.term()


@pytest.fixture
def listener(running: Running) -> Iterator[Listener]:
    listener = Listener(running)
    yield listener
    listener.close()


@pytest.fixture
def connect(context: Context, listener: Listener) -> Iterator[Callable[..., Connection]]:
    ends: list[Connection] = []

    def connect(curve: Curve | None) -> Connection:
        ends.append(Connection(context, listener.endpoint, curve))
        ends[-1].send([b"hello"])
        return ends[-1]

    yield connect
    for end in ends:
        end.close()


def curve(listener: Curve, caller: Curve) -> Curve:
    """Keys that are mixed of two applications'."""
    mixed = Curve(Secret.new())
    mixed.listener, mixed.caller = listener.listener, caller.caller
    return mixed


def test_who_has_the_key_comes_in(
    listener: Listener, connect: Callable[[Curve | None], Connection]
) -> None:
    assert connect(OURS).receive(LONG * 1000) == [b"hello"]
    assert listener.gate.refused == 0


def test_who_has_another_key_does_not_even_ask(
    listener: Listener, connect: Callable[[Curve | None], Connection]
) -> None:
    end = connect(THEIRS)
    assert end.receive(LONG * 1000) is None
    assert end.lost == HANDSHAKE
    assert (listener.heard, listener.gate.refused) == (0, 0)


def test_who_knows_the_public_key_alone_is_refused_by_the_gate(
    listener: Listener, connect: Callable[[Curve | None], Connection]
) -> None:
    end = connect(curve(OURS, THEIRS))
    assert end.receive(LONG * 1000) is None
    assert end.lost == "the other side refused to admit us"
    assert (listener.heard, listener.gate.refused) == (0, 1)


def test_who_speaks_no_curve_is_not_heard(
    listener: Listener, connect: Callable[[Curve | None], Connection]
) -> None:
    end = connect(None)
    assert end.receive(LONG * 1000) is None
    assert end.lost
    assert (listener.heard, listener.gate.refused) == (0, 0)


def test_a_caller_does_not_take_another_listener_for_ours(
    listener: Listener, connect: Callable[[Curve | None], Connection]
) -> None:
    end = connect(curve(THEIRS, OURS))
    assert end.receive(LONG * 1000) is None
    assert end.lost == HANDSHAKE
    assert listener.heard == 0


def test_many_at_once_are_told_apart_and_the_loop_goes_on(
    listener: Listener, connect: Callable[[Curve | None], Connection]
) -> None:
    ours, theirs = [], []
    for _ in range(20):
        ours.append(connect(OURS))
        theirs += [connect(curve(OURS, THEIRS)), connect(None), connect(THEIRS)]
        assert listener.running.do(lambda: "other work") == "other work"
    for end in ours:
        assert end.receive(LONG * 1000) == [b"hello"]
    for end in theirs:
        assert end.receive(LONG * 1000) is None
        assert end.lost
    assert (listener.heard, listener.gate.refused) == (20, 20)


def test_a_gate_that_does_not_answer_yet_only_makes_callers_wait(
    listener: Listener, connect: Callable[[Curve | None], Connection]
) -> None:
    busy = threading.Event()
    listener.running.loop.post(lambda: busy.wait(LONG))
    end = connect(OURS)
    assert end.receive(100) is None
    assert not end.lost
    busy.set()
    assert end.receive(LONG * 1000) == [b"hello"]


def test_a_listener_without_a_gate_lets_nobody_in(context: Context) -> None:
    router = Router(context, ["tcp://127.0.0.1:0"], curve=OURS)
    end = Connection(context, router.endpoints[0], OURS)
    end.send([b"hello"])
    kinds: list[int] = []
    while zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL not in kinds:
        event = router._monitor.next()
        if event is None:
            readable(router.events_fd)
        else:
            kinds.append(event.kind)
    assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in kinds
    assert router.receive() is None
    end.close()
    router.close()


def test_what_is_sent_cannot_be_read_on_the_way(context: Context, listener: Listener) -> None:
    with Relay(listener.endpoint) as relay:
        end = Connection(context, relay.endpoint, OURS)
        end.send([b"a secret of some length"])
        assert end.receive(LONG * 1000) == [b"a secret of some length"]
        end.close()
    seen = bytes(relay.there + relay.back)
    assert len(seen) > 500
    assert b"secret of" not in seen
    for key in (OURS.listener.secret, OURS.listener.public, OURS.caller.secret, OURS.caller.public):
        assert key not in seen
        assert zmq.utils.z85.decode(key) not in seen


def test_what_was_recorded_lets_nobody_in(context: Context, listener: Listener) -> None:
    with Relay(listener.endpoint) as relay:
        end = Connection(context, relay.endpoint, OURS)
        end.send([b"hello"])
        assert end.receive(LONG * 1000) == [b"hello"]
        end.close()
    where = parse(listener.endpoint)
    with socket.create_connection((where.host, where.port)) as again:
        again.settimeout(LONG)
        again.sendall(relay.there)
        while again.recv(4096):
            pass
    assert listener.heard == 1


def test_a_link_with_another_key_says_what_is_wrong(listener: Listener) -> None:
    def join(keys: Curve) -> ControlLink:
        return ControlLink(
            listener.endpoint, Join(VERSION, "worker"), print, print, timeout=LONG, curve=keys
        )

    with pytest.raises(ConnectionError, match="refused to admit us"):
        join(curve(OURS, THEIRS))
    with pytest.raises(ConnectionError, match=HANDSHAKE):
        join(THEIRS)


def test_keys_are_hidden() -> None:
    assert OURS.caller.secret.decode() not in repr(OURS.caller)
    assert Curve(Secret("0a" * 32)).caller == OURS.caller
    assert OURS.caller != OURS.listener
