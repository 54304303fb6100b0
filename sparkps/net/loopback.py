"""An in-memory network on fake time, for tests of the three cores together; deterministic from a
seed.

Covers what real connections do to messages: delay them, lose all of them when they are cut, tell
both ends, refuse to connect to nobody. Crashes, pauses and calls at a time are here too, since
they share the clock. What it does not do: lose, double or reorder messages *within* a connection,
since TCP does not either. Messages come twice only because a client sends them again on its next
connection.

Rules:

* One event at a time, in the order of fake time, then of scheduling. Between two calls of
  :meth:`Network.step` nothing moves; the time jumps from event to event.
* A connection delivers each direction in order, with a random delay per message.
* A cut takes everything in flight on a connection, both ways, and tells each end after a delay of
  its own: one may go on sending into the void, and for as long as the test says. A close by one end
  is a cut of what comes towards it; what it has sent still arrives.
* Frames are copied when they are sent, as a socket does: whoever changes a buffer later changes
  nothing here.
* The same seed, and the same calls, give the same run.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

Received = Callable[["End", Any], object]
Closed = Callable[["End"], object]

#: Seconds that a message travels, at least and at most: a local network's.
DELAY: Final = (0.0001, 0.002)
#: What a message waits behind the one before it, of its own travel time: without it those that were
#: sent at once would arrive at once, and connections would never take turns.
_SPACING: Final = 0.1
#: Events that :meth:`Network.run` runs before it says that nothing will come of it.
LIMIT: Final = 1_000_000
#: Events that an error tells of.
_STORY: Final = 40


class End:
    """One end of a connection: what a node sends by, and what it knows the other side by. Hashable
    by identity.

    Attributes
    ----------
    node, peer : hashable
        The names of this end's node and of the other's.
    number : int
        The connection's number, equal on both ends.
    open : bool
        Whether this end has neither closed nor been told of the end.
    sent : int
        How many messages were sent.
    """

    __slots__ = ("_last", "_network", "alive", "node", "number", "open", "other", "peer", "sent")

    other: End

    def __init__(self, network: Network, node: Hashable, peer: Hashable, number: int) -> None:
        self._network = network
        self._last = 0.0
        self.node = node
        self.peer = peer
        self.number = number
        self.open = True
        self.sent = 0
        self.alive = True  # messages towards this end arrive

    def __repr__(self) -> str:
        return f"<End {self.number} of {self.node} to {self.peer}>"

    def send(self, payload: Any) -> None:
        """Send a message (a struct, bytes) or a list of frames; nothing is told when it is lost."""
        if not self.open:
            return
        self.sent += 1
        if isinstance(payload, list):
            payload = copied(payload)
        network = self._network
        if network.chance(network.cut_rate):
            network.cut(self)
        else:
            self._towards(
                self.other, lambda: network.deliver(self.other, payload), repr(payload)[:80]
            )

    def hold(self, seconds: float) -> None:
        """Let what is sent from now on arrive no sooner than in some time."""
        self._last = max(self._last, self._network.now + seconds)

    def close(self) -> None:
        """Close: what was sent arrives, what is on its way here does not, and the other end is
        told."""
        if self.open:
            self.open = self.alive = False
            self._towards(self.other, lambda: self._network.tell_closed(self.other), "close")

    def _towards(self, end: End, call: Callable[[], object], what: str) -> None:
        """Let something happen at the other end, after all that was sent before."""
        network = self._network
        self._last = max(self._last + _SPACING * network.delay(), network.now + network.delay())
        network.schedule(
            self._last, end.node, call, f"{self.node} -> {end.node} #{self.number}: {what}"
        )


def copied(frames: list[Any]) -> list[bytes]:
    """The frames as they are now."""
    return [frame if isinstance(frame, bytes) else memoryview(frame).tobytes() for frame in frames]


class _Node:
    __slots__ = ("closed", "ends", "held", "paused", "received")

    def __init__(self, received: Received, closed: Closed) -> None:
        self.received = received
        self.closed = closed
        self.ends: dict[End, None] = {}  # ordered, unlike a set
        self.paused = False
        self.held: deque[Callable[[], object]] = deque()


class _Event:
    __slots__ = ("call", "node", "what")

    def __init__(self, node: _Node | None, call: Callable[[], object], what: str) -> None:
        self.node = node
        self.call = call
        self.what = what


class Network:
    """See the module.

    Parameters
    ----------
    seed
        Of all that is random here.
    delay
        Shortest and longest travel of a message, in seconds.
    cut_rate
        Probability that a message cuts its connection instead of being sent. May be changed at any
        time.

    Attributes
    ----------
    now : float
        Fake time in seconds.
    random : random.Random
        For tests that draw from the same seed.

    Examples
    --------
    >>> network = Network(seed=1)
    >>> network.node("server", lambda end, payload: end.send(payload.upper()), lambda end: None)
    >>> answers = []
    >>> network.node("client", lambda end, payload: answers.append(payload), lambda end: None)
    >>> network.connect("client", "server").send("hello")
    >>> network.run(lambda: bool(answers))
    >>> answers
    ['HELLO']
    """

    def __init__(
        self, seed: int = 0, *, delay: tuple[float, float] = DELAY, cut_rate: float = 0.0
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.cut_rate = cut_rate
        self._delay = delay
        self._nodes: dict[Hashable, _Node] = {}
        self._events: list[tuple[float, int, _Event]] = []
        self._order = itertools.count()
        self._connections = itertools.count(1)
        self._story: deque[str] = deque(maxlen=_STORY)

    def node(self, name: Hashable, received: Received, closed: Closed) -> None:
        """Add a node: ``received(end, payload)`` for each message, ``closed(end)`` once when a
        connection has ended.

        A name that crashed may be used again; it is another node.
        """
        if name in self._nodes:
            raise ValueError(f"there is a node {name!r} already")
        self._nodes[name] = _Node(received, closed)

    def connect(self, source: Hashable, target: Hashable) -> End:
        """Open a connection and return the source's end. Nobody there: it is told to be closed
        soon."""
        number = next(self._connections)
        near = End(self, source, target, number)
        far = End(self, target, source, number)
        near.other, far.other = far, near
        self._nodes[source].ends[near] = None
        if target in self._nodes:
            self._nodes[target].ends[far] = None
        else:
            far.open = far.alive = False
            self.cut(near)
        return near

    def cut(self, end: End, *, deaf: float = 0.0) -> None:
        """Cut a connection: all that is in flight on it is lost, and each end is told in its own
        time; ``end`` so many seconds later, in which it sends into the void."""
        for each, later in ((end, deaf), (end.other, 0.0)):
            if each.alive:
                each.alive = False
                self.schedule(
                    self.now + later + self.delay(),
                    each.node,
                    lambda each=each: self.tell_closed(each),  # type: ignore[misc]
                    f"{each.node} #{each.number}: cut",
                )

    def crash(self, name: Hashable) -> None:
        """Let a node vanish: its connections are cut, and its events never happen."""
        node = self._nodes.pop(name)
        for end in list(node.ends):
            self.cut(end)
            end.open = False

    def pause(self, name: Hashable) -> None:
        """Let a node do nothing until :meth:`resume`; what happens to it waits, in order
        (SIGSTOP)."""
        self._nodes[name].paused = True

    def resume(self, name: Hashable) -> None:
        """Let a paused node go on: what has waited happens now."""
        node = self._nodes[name]
        node.paused = False
        while node.held:
            self._push(self.now, _Event(node, node.held.popleft(), f"{name}: resumed"))

    def call_at(self, when: float, call: Callable[[], object], node: Hashable = None) -> None:
        """Call at a time; with ``node``, only if that node lives then, and not while it is
        paused."""
        self.schedule(when, node, call, f"{'test' if node is None else node}: timer")

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        while self._events:
            when, _, event = heapq.heappop(self._events)
            node = event.node
            if node is not None and node.paused:
                node.held.append(event.call)
                continue
            self.now = max(self.now, when)
            self._story.append(f"{self.now:.6f} {event.what}")
            event.call()
            return True
        return False

    def run(
        self, until: Callable[[], object], *, limit: int = LIMIT, deadline: float = float("inf")
    ) -> None:
        """Step until ``until()`` is true.

        Raises
        ------
        RuntimeError
            If nothing is left to happen, or ``limit`` events or the fake time ``deadline`` have
            passed first; it tells the last events.
        """
        for _ in range(limit):
            if until():
                return
            if self.now > deadline:
                raise self._failed(f"at {self.now:.3f} s it is past {deadline} s")
            if not self.step():
                raise self._failed("nothing is left to happen")
        raise self._failed(f"{limit} events have happened")

    # --- for End ---

    def delay(self) -> float:
        """A random travel time."""
        return self.random.uniform(*self._delay)

    def chance(self, rate: float) -> bool:
        """True with probability ``rate``; draws nothing when it is 0."""
        return rate > 0 and self.random.random() < rate

    def schedule(self, when: float, name: Hashable, call: Callable[[], object], what: str) -> None:
        """Let something happen at a node, if it is still the same one then; ``name`` None is the
        test itself."""
        node = None if name is None else self._nodes.get(name)
        if name is None or node is not None:
            self._push(when, _Event(node, lambda: self._call(name, node, call), what))

    def deliver(self, end: End, payload: Any) -> None:
        """Hand a message to an end that still hears."""
        if end.alive and end.open:
            self._nodes[end.node].received(end, payload)

    def tell_closed(self, end: End) -> None:
        """Tell an end that its connection is over, unless it knows."""
        node = self._nodes[end.node]
        node.ends.pop(end, None)
        if end.open:
            end.open = end.alive = False
            node.closed(end)

    def _call(self, name: Hashable, node: _Node | None, call: Callable[[], object]) -> None:
        if node is None or self._nodes.get(name) is node:
            call()

    def _push(self, when: float, event: _Event) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def _failed(self, why: str) -> RuntimeError:
        story = "\n".join(self._story)
        return RuntimeError(
            f"what the test waits for did not come: {why}. The last events:\n{story}"
        )
