"""What happens to the messages of a data connection, beyond the delay that each has.

* **cut**: everything in flight is lost, both ways, and each end hears of it in its own time.
* **false alarm**: the client hears of a loss that was none, and what it has sent still arrives,
  beside what it sends again on its next connection.
* **drop**: one message from the middle is lost, those after it arrive, and a moment later the
  connection is lost too: what sockets that reconnect by themselves, or are full, do to a stream
  (SEMANTICS §3). Never the first of a connection, which opens it.
* **double**: the message comes a second time, at once or after others.
* **slow**: it takes long, and those behind it too.

A reply in several messages is one stream, which is cut or late but neither holed nor doubled. A
client and a server that lose one connection after another before any answer has come are left
alone for once: a client sends all again at once, and might rightly time out.

Not here: what happens to processes (:mod:`.simulation`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparkps.net.loopback import End, Network, copied
from sparkps.testing.simulation.history import History
from sparkps.testing.simulation.plan import Plan

#: Of the losses that a client hears of, the part that are none.
_FALSE_ALARMS: Final = 0.5
#: Seconds from a lost message to the loss of its connection, at most: some messages pass.
_HOLE: Final = 0.01
#: Seconds until a message comes a second time, at most.
_AGAIN: Final = 0.02
#: Seconds that a slow message takes, at most: some clocks of a run.
_SLOW: Final = 0.1
#: Connections that are lost in a row without an answer, at most: a second of trying again.
_IN_A_ROW: Final = 6


class Faults:
    """What happens to the messages that one node sends.

    Attributes
    ----------
    quiet : bool
        Whether nothing happens to them any more.
    """

    def __init__(self, network: Network, plan: Plan, history: History) -> None:
        self._network, self._plan, self._history = network, plan, history
        self.quiet = False

    def happens(self, rate: float) -> bool:
        """Whether a fault of this probability happens now."""
        return not self.quiet and self._network.chance(rate)

    def heard(self, end: End) -> None:
        """A client has an answer."""
        self._history.losses[frozenset((end.node, end.peer))] = 0

    def _loses(self, rate: float, end: End) -> bool:
        """Whether the connection is lost, or seems so."""
        pair = frozenset((end.node, end.peer))
        if self._history.losses[pair] >= _IN_A_ROW or not end.alive or not self.happens(rate):
            return False
        self._history.losses[pair] += 1
        return True

    def send(
        self,
        end: End,
        frames: list[Any],
        *,
        alarm: Callable[[End], None] | None = None,
        stream: bool = False,
    ) -> None:
        """Send a message, with whatever happens to it; ``alarm`` tells a client that a connection
        is lost."""
        plan, network = self._plan, self._network
        if end.sent and not stream and self._loses(plan.drop, end):
            self._note("drops", end)
            self._later(_HOLE, end, lambda: network.cut(end))
            return
        if self.happens(plan.slow):
            self._note("slow", end)
            end.hold(network.random.uniform(0.0, _SLOW))
        if not stream and self.happens(plan.double):
            self._note("doubles", end)
            copy = copied(frames)
            self._later(_AGAIN, end, lambda: end.send(copy))
        end.send(frames)
        if self._loses(plan.cut, end):
            if alarm is not None and network.random.random() < _FALSE_ALARMS:
                self._note("false alarms", end)
                self._later(2 * network.delay(), end, lambda: alarm(end))
            else:
                self._note("cuts", end)
                network.cut(end)

    def _note(self, what: str, end: End) -> None:
        self._history.counts[what] += 1
        self._history.note("fault: {}, from {} to {}", what, end.node, end.peer)

    def _later(self, most: float, end: End, call: Callable[[], object]) -> None:
        network = self._network
        network.call_at(network.now + network.random.uniform(0.0, most), call, end.node)
