"""A process with a client in it: the shipped client core on the network, and a story that runs.

:class:`Process` stands where :class:`sparkps.client.shell.Client` does, so that the shipped table
handles, vocabularies and keysets run on it unchanged, as long as they need not wait. Who must wait
is a *story*, a generator that yields until something has happened; it goes on after every event of
its process. :class:`Process` also is the link to the coordinator.

What may happen to each message that it sends to a server is in :mod:`.faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import msgspec

from sparkps.client.calls import Call, Request
from sparkps.client.core import ClientCore
from sparkps.client.shell import ClientInfo
from sparkps.errors import CoordinatorLost, PSError, from_wire
from sparkps.net.loopback import End, Network
from sparkps.routing.partitioner import Routes
from sparkps.spec import TableInfo
from sparkps.testing.simulation.faults import Faults
from sparkps.testing.simulation.history import History
from sparkps.testing.simulation.machines import COORDINATOR, SETTINGS, server_name
from sparkps.testing.simulation.plan import Plan
from sparkps.wire.effects import Connect, Disconnect, Effect, SendTo
from sparkps.wire.frames import decode_control, encode_control
from sparkps.wire.messages import (
    VERSION,
    Answer,
    Beat,
    Denied,
    Join,
    Joined,
    Message,
    NewView,
    ServerDown,
)

T = TypeVar("T")
#: What a process does, in its own order.
Story = Generator[None, None, T]


class Process:
    """See the module.

    Attributes
    ----------
    alive : bool
        Whether it runs at all.
    error : PSError or None
        How its story ended.
    downs : list of ServerDown
        The servers that it knows to be lost.
    """

    def __init__(
        self, network: Network, plan: Plan, history: History, name: str, role: str
    ) -> None:
        self.network, self.plan, self.history, self.name = network, plan, history, name
        self.info, self.settings, self.forked = ClientInfo(name), SETTINGS, False
        self.core = ClientCore(name.encode(), window=plan.window, timeout=SETTINGS.request_timeout)
        self.alive = True
        self.joined = False
        self.faults = Faults(network, plan, history)
        self.error: PSError | None = None
        self.downs: list[ServerDown] = []
        self._routes: dict[int, Routes] = {}
        self._ends: dict[int, End] = {}
        self._timer: float | None = None
        self._answers: dict[int, Answer | Denied] = {}
        self._requests = 0
        self._watched: list[tuple[Call, Callable[[], None]]] = []
        network.node(name, self._received, self._closed)
        #: The link that the story speaks on; one that only hears of servers, when that is lost.
        self.control = self._join(role)
        self._news: End | None = None
        self._story: Story[None] | None = self._whole()
        self._beat()
        network.call_at(network.now, self._go_on, name)

    # --- what a process does

    def story(self) -> Story[None]:
        """What it does once it has joined."""
        raise NotImplementedError

    def ended(self, error: PSError | None) -> None:
        """The story has ended."""

    def heard(self, message: Message) -> None:
        """The coordinator says something unasked."""

    def link_lost(self) -> None:
        """The coordinator's connection has ended."""

    def _whole(self) -> Story[None]:
        yield from self._from_coordinator(lambda: self.joined)
        yield from self.story()

    def _go_on(self) -> None:
        self._watch()
        if self._story is None or not self.alive:
            return
        try:
            next(self._story)
        except StopIteration:
            self._story = None
            self.ended(None)
        except PSError as error:
            self._story, self.error = None, error
            self.history.note("{} ends: {!r}", self.name, error)
            self.ended(error)

    @property
    def running(self) -> bool:
        """Whether its story has not ended."""
        return self.alive and self._story is not None

    @property
    def busy(self) -> bool:
        """Whether any request is unanswered."""
        return self.alive and any(lane.busy for lane in self.core.lanes.values())

    def die(self, *, hard: bool = False) -> None:
        """End at once; what was sent still arrives, but when it dies ``hard``."""
        self.alive, self._story = False, None
        for end in (*self._links(), *self._ends.values()):
            if hard:
                self.network.cut(end)
            end.close()

    # --- waiting

    def until(self, ready: Callable[[], object]) -> Story[None]:
        """Wait until something is so."""
        while not ready():
            yield

    def rest(self, seconds: float) -> Story[None]:
        """Compute for some time."""
        if seconds > 0:
            until = self.network.now + seconds
            self.network.call_at(until, self._go_on, self.name)
            yield from self.until(lambda: self.network.now >= until)

    def ask(self, make: Callable[[int], Message], kind: type[T]) -> Story[T]:
        """Ask the coordinator."""
        self._requests += 1
        number = self._requests
        self.tell(make(number))
        yield from self._from_coordinator(lambda: number in self._answers)
        answer = self._answers.pop(number)
        if isinstance(answer, Denied):
            raise from_wire(answer.code, answer.fields)
        return msgspec.convert(answer.result, kind)

    def _from_coordinator(self, ready: Callable[[], object]) -> Story[None]:
        yield from self.until(lambda: ready() or not self.control.open)
        if not ready():
            raise CoordinatorLost(status="cut", log="its log", tail="")

    # --- the coordinator

    def _join(self, role: str) -> End:
        link = self.network.connect(self.name, COORDINATOR)
        link.send(encode_control(Join(VERSION, role, self.name, 1)))
        return link

    def _links(self) -> list[End]:
        return [self.control] if self._news is None else [self.control, self._news]

    def tell(self, message: Message) -> None:
        """Say something to the coordinator."""
        self.history.note("{} says {}", self.name, message)
        self.control.send(encode_control(message))

    def _beat(self) -> None:
        if self.alive and any(link.open for link in self._links()):
            for link in self._links():
                link.send(encode_control(Beat()))
            self.network.call_at(self.network.now + SETTINGS.heartbeat, self._beat, self.name)

    def _told(self, message: Message) -> None:
        if isinstance(message, (Answer, Denied)):
            self._answers[message.id] = message
        elif isinstance(message, (Joined, NewView)):
            self.joined = True
            self.core.view_changed(message.view)
        elif isinstance(message, ServerDown):
            self.downs.append(message)
            self._perform(self.core.server_down(message))
        self.heard(message)

    # --- the client, as handles see it

    def routes(self, info: TableInfo) -> Routes:
        """Where the partitions of a table are."""
        routes = self._routes.get(info.id)
        if routes is None or routes.view != self.core.view.number:
            routes = self._routes[info.id] = Routes(info.id, info.spec.partitions, self.core.view)
        self.core.check(info.id, routes.servers)
        return routes

    def start(self, call: Call, requests: Sequence[Request]) -> None:
        """Send the requests of a read."""
        self._perform(self.core.submit(requests, self.network.now))

    def write(self, call: Call, make: Callable[[], Sequence[Request]], *, wait: bool) -> None:
        """Make and send the requests of a write."""
        self.start(call, make())

    def wait(self, call: Call) -> None:
        """Only what is done already can be waited for here."""
        if not call.done:
            raise self.history.fail("crash", f"{self.name} waits for a call inside an event")

    def glance(self) -> None:
        """Nothing comes between two events."""

    def watch(self, call: Call, then: Callable[[], None]) -> None:
        """Call ``then`` once the call has succeeded."""
        self._watched.append((call, then))

    def _watch(self) -> None:
        watched, self._watched = self._watched, []
        for call, then in watched:
            if not call.done:
                self._watched.append((call, then))
            elif call.error is None:
                then()

    # --- events

    def _received(self, end: End, payload: Any) -> None:
        if not self.alive:
            return
        if end in self._links():
            self._told(decode_control(payload))
        else:
            server = int(str(end.peer).removeprefix("server"))
            if self._ends.get(server) is end:
                self.faults.heard(end)
                self._perform(self.core.received(server, payload, self.network.now))
        self._go_on()

    def _closed(self, end: End) -> None:
        if not self.alive:
            return
        if end is self.control:
            self.link_lost()
        elif end is not self._news:
            self._lose(int(str(end.peer).removeprefix("server")), end)
        self._go_on()

    def _lose(self, server: int, end: End) -> None:
        if self._ends.get(server) is end:
            self._perform(self.core.lost(server, "cut", self.network.now))
            if not any(link.open for link in self._links()):
                self._news = self._join("reader")  # whoever has no link would not hear why
                self._beat()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                end = self._ends[effect.server]
                self.faults.send(end, effect.frames, alarm=self._closed)
            elif isinstance(effect, Connect):
                old = self._ends.get(effect.server)
                if old is not None:
                    old.close()
                name = server_name(effect.server)
                self._ends[effect.server] = self.network.connect(self.name, name)
            elif isinstance(effect, Disconnect):
                self._ends.pop(effect.server).close()
        counts, lanes = self.history.counts, self.core.lanes.values()
        counts["most in flight"] = max(counts["most in flight"], *(len(x.flying) for x in lanes), 0)
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self.core.deadline()
        if deadline is not None:
            # What is due while its lane is down waits for the lane, and says that it is due.
            deadline = max(deadline, self.network.now + 0.001)
            if self._timer is None or deadline < self._timer:
                self._timer = deadline
                self.network.call_at(deadline, lambda: self._tick(deadline), self.name)

    def _tick(self, due: float) -> None:
        if self._timer == due:
            self._timer = None
        if self.alive:
            self._perform(self.core.tick(self.network.now))
            self._go_on()
