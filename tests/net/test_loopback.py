from typing import Any

import numpy as np
import pytest

from sparkps.net.loopback import End, Network


class Node:
    """Keeps what it hears."""

    def __init__(self, network: Network, name: str) -> None:
        self.heard: list[Any] = []
        self.ended: list[End] = []
        self.ends: list[End] = []
        network.node(name, self._received, self.ended.append)

    def _received(self, end: End, payload: Any) -> None:
        self.ends.append(end)
        self.heard.append(payload)


def pair(seed: int = 0, **how: Any) -> tuple[Network, Node, Node, End]:
    network = Network(seed, **how)
    a, b = Node(network, "a"), Node(network, "b")
    return network, a, b, network.connect("a", "b")


def drain(network: Network) -> None:
    while network.step():
        pass


def test_a_connection_keeps_its_order_both_ways() -> None:
    network, a, b, end = pair()
    for number in range(100):
        end.send(number)
        end.other.send(-number)
    drain(network)
    assert b.heard == list(range(100))
    assert a.heard == [-number for number in range(100)]
    assert set(b.ends) == {end.other}
    assert (end.peer, end.other.peer, end.number) == ("b", "a", end.other.number)


def test_connections_overtake_each_other() -> None:
    network, _, b, first = pair()
    second = network.connect("a", "b")
    for number in range(50):
        first.send(("first", number))
        second.send(("second", number))
    drain(network)
    changes = sum(x[0] != y[0] for x, y in zip(b.heard, b.heard[1:], strict=False))
    assert 5 < changes < 99


def test_time_jumps_and_delays_are_within_bounds() -> None:
    network, _, b, end = pair(delay=(1.0, 3.0))
    end.send("x")
    network.run(lambda: b.heard)
    assert 1.0 <= network.now <= 3.0


def test_a_cut_loses_what_is_in_flight_and_tells_both_ends_once() -> None:
    network, a, b, end = pair(seed=3)
    for number in range(20):
        end.send(number)
        end.other.send(number)
    while len(b.heard) < 5:
        network.step()
    network.cut(end)
    end.send("into the void")
    heard = len(a.heard), len(b.heard)
    network.cut(end.other)
    drain(network)
    assert (len(a.heard), len(b.heard)) == heard
    assert b.heard == list(range(heard[1]))
    assert (a.ended, b.ended) == ([end], [end.other])
    assert not end.open


def test_a_deaf_end_hears_of_a_cut_later_and_sends_into_the_void() -> None:
    network, a, b, end = pair()
    network.cut(end, deaf=5.0)
    network.run(lambda: b.ended)
    assert (network.now < 1.0, end.open) == (True, True)
    end.send("into the void")
    drain(network)
    assert (a.ended, b.heard) == ([end], [])
    assert network.now > 5.0


def test_what_is_held_is_late_and_so_is_all_behind_it() -> None:
    network, _, b, end = pair()
    end.send("before")
    end.hold(5.0)
    end.send("held")
    end.send("behind")
    network.run(lambda: b.heard)
    assert network.now < 1.0
    drain(network)
    assert (b.heard, end.sent) == (["before", "held", "behind"], 3)
    assert network.now > 5.0


def test_random_cuts_come_from_the_middle() -> None:
    losses = []
    for seed in range(50):
        network, a, b, end = pair(seed, cut_rate=0.02)
        for number in range(100):
            end.send(number)
            network.step()
        drain(network)
        assert b.heard == list(range(len(b.heard)))
        assert len(a.ended) == len(b.ended) <= 1
        losses.append(100 - len(b.heard))
    assert 0 in losses
    assert any(0 < lost < 100 for lost in losses)


def test_a_close_delivers_what_was_sent_and_tells_the_other_end_only() -> None:
    network, a, b, end = pair()
    end.send("last words")
    end.other.send("too late")
    end.close()
    end.send("dropped")
    drain(network)
    assert b.heard == ["last words"]
    assert a.heard == []
    assert (a.ended, b.ended) == ([], [end.other])


def test_nobody_there_is_told_soon() -> None:
    network = Network()
    a = Node(network, "a")
    end = network.connect("a", "nobody")
    assert a.ended == []
    end.send("x")
    drain(network)
    assert a.ended == [end]


def test_a_crash_ends_connections_and_timers_and_the_name_is_free_again() -> None:
    network, a, b, end = pair()
    called: list[str] = []
    network.call_at(1.0, lambda: called.append("b"), node="b")
    network.call_at(1.0, lambda: called.append("test"))
    end.send("in flight")
    network.crash("b")
    again = Node(network, "b")
    drain(network)
    assert (a.ended, b.ended, b.heard, again.heard) == ([end], [], [], [])
    assert called == ["test"]
    network.connect("a", "b").send("hello")
    drain(network)
    assert again.heard == ["hello"]


def test_a_paused_node_hears_later_and_in_order() -> None:
    network, _, b, end = pair()
    network.pause("b")
    for number in range(10):
        end.send(number)
    network.call_at(5.0, lambda: network.resume("b"))
    network.call_at(4.0, lambda: b.heard.append("timer"), node="b")
    drain(network)
    assert b.heard == [*range(10), "timer"]
    assert network.now == 5.0


def test_frames_are_copied_when_they_are_sent() -> None:
    network, _, b, end = pair()
    array = np.arange(4)
    end.send([b"h", array, memoryview(array)])
    array[:] = 0
    drain(network)
    assert [bytes(frame) for frame in b.heard[0]] == [b"h", *[np.arange(4).tobytes()] * 2]


def test_the_same_seed_gives_the_same_run() -> None:
    def story(seed: int) -> list[Any]:
        network, a, b, end = pair(seed, cut_rate=0.01)
        other = network.connect("b", "a")
        for number in range(60):
            end.send(number)
            other.send(number)
            network.step()
        drain(network)
        return [a.heard, b.heard, network.now]

    assert story(7) == story(7)
    assert story(7) != story(8)


def test_a_wait_that_cannot_end_tells_the_last_events() -> None:
    network, _, _, end = pair()
    end.send("only this")
    with pytest.raises(
        RuntimeError, match=r"nothing is left to happen(.|\n)*a -> b #1: 'only this'"
    ):
        network.run(lambda: False)
    network.call_at(9.0, lambda: None)
    network.call_at(10.0, lambda: None)
    with pytest.raises(RuntimeError, match=r"it is past 5 s"):
        network.run(lambda: False, deadline=5)
