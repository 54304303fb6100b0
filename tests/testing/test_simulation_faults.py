"""What happens to messages in a simulation, one fault at a time."""

from __future__ import annotations

from typing import Any

from sparkps.net.loopback import End, Network
from sparkps.testing.simulation.faults import Faults
from sparkps.testing.simulation.history import History
from sparkps.testing.simulation.plan import Plan


class Stage:
    """A client and a server that keeps what it hears."""

    def __init__(self, **rates: float) -> None:
        self.plan = Plan(1, "asp", **rates)  # type: ignore[arg-type]
        self.network, self.history = Network(1), History(self.plan)
        self.faults = Faults(self.network, self.plan, self.history)
        self.heard: list[Any] = []
        self.lost: list[End] = []
        self.network.node("server", lambda _, frames: self.heard.extend(frames), self.lost.append)
        self.network.node("client", lambda _, frames: None, self.lost.append)
        self.end = self.network.connect("client", "server")

    def send(self, *frames: bytes, **how: Any) -> None:
        """Send some messages, one frame each."""
        for frame in frames:
            self.faults.send(self.end, [frame], **how)

    def drain(self) -> None:
        """Let everything happen."""
        while self.network.step():
            pass


def test_a_dropped_message_leaves_a_hole_and_then_the_connection_is_lost() -> None:
    stage = Stage(drop=1.0)
    stage.send(b"first", b"second")
    stage.faults.quiet = True
    stage.send(b"third")
    stage.network.run(lambda: len(stage.heard) == 2)
    assert (stage.heard, stage.lost) == ([b"first", b"third"], [])
    stage.drain()
    assert len(stage.lost) == 2
    assert stage.history.counts["drops"] == 1


def test_a_stream_has_no_hole_and_nothing_twice() -> None:
    stage = Stage(drop=1.0, double=1.0)
    stage.send(b"first", b"second", stream=True)
    stage.drain()
    assert (stage.heard, stage.lost) == ([b"first", b"second"], [])


def test_a_message_comes_twice_as_it_was() -> None:
    stage = Stage(double=1.0)
    frame = bytearray(b"x")
    stage.send(frame)  # type: ignore[arg-type]
    frame[0] = 0
    stage.drain()
    assert stage.heard == [b"x", b"x"]


def test_a_false_alarm_is_told_while_the_connection_goes_on() -> None:
    stage = Stage(cut=1.0)
    alarms: list[End] = []
    while not stage.history.counts["false alarms"]:
        stage.end = stage.network.connect("client", "server")
        stage.send(b"x", alarm=alarms.append)
    stage.drain()
    assert alarms == [stage.end]
    assert stage.heard == [b"x"]


def test_a_slow_message_takes_long() -> None:
    stage = Stage(slow=1.0)
    for _ in range(10):
        stage.send(b"x")
    stage.drain()
    assert len(stage.heard) == 10
    assert stage.network.now > 0.05


def test_nothing_happens_any_more_when_it_is_quiet() -> None:
    stage = Stage(drop=1.0, cut=1.0, double=1.0, slow=1.0)
    stage.faults.quiet = True
    stage.send(b"first", b"second")
    stage.drain()
    assert (stage.heard, stage.lost) == ([b"first", b"second"], [])
