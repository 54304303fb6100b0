"""A client's core and real servers' cores on an in-memory network and fake time.

:class:`LoopClient` stands where :class:`sparkps.client.shell.Client` does, so that the shipped
table handles, vocabularies and keysets run on it unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparkps.client.calls import Call, Request
from sparkps.client.core import ClientCore
from sparkps.client.seat import Seat
from sparkps.client.shell import ClientInfo
from sparkps.client.table import Table
from sparkps.config import Settings
from sparkps.errors import PSError
from sparkps.net.loopback import End, Network
from sparkps.routing.partitioner import Routes
from sparkps.routing.placement import make_view
from sparkps.server.core import Door, ServerCore
from sparkps.spec import ServerInfo, SessionSpec, TableInfo, TableSpec, View
from sparkps.wire import messages as m
from sparkps.wire import userfn
from sparkps.wire.effects import Connect, Disconnect, Effect, Send, SendTo, ToCoordinator

SESSION = 77


class Cluster:
    """Servers on a network; their commands are given directly."""

    def __init__(
        self, servers: int = 2, seed: int = 0, keysets: int = 1 << 20, **network: Any
    ) -> None:
        self.network = Network(seed, **network)
        self.view = make_view(1, [ServerInfo(i, 7, f"ipc:///s{i}") for i in range(servers)])
        self.cores: list[ServerCore] = []
        for i in range(servers):
            core = ServerCore(
                i,
                7,
                limit=1 << 30,
                max_bytes=1 << 16,
                keysets_max_bytes=keysets,
                loads=userfn.loads,
            )
            self.cores.append(core)
            self.network.node(("server", i), self._receiver(core), core.disconnected)
        self.tables = 0
        self.command(lambda op: m.SetView(op, self.view))

    def _receiver(self, core: ServerCore) -> Callable[[End, Any], None]:
        def received(end: End, frames: Any) -> None:
            for effect in core.received(end, Door.OPEN, frames, self.network.now):
                if isinstance(effect, Send):
                    effect.peer.send(effect.frames)

        return received

    def command(self, make: Callable[[int], m.Message]) -> None:
        for core in self.cores:
            for effect in core.command(make(1), self.network.now):
                assert isinstance(effect, ToCoordinator)
                assert isinstance(effect.message, m.Done)
                assert not effect.message.code, effect.message

    def session(self, size: int, consistency: str = "asp", *, driver: bool = False) -> None:
        spec = SessionSpec(SESSION, size, consistency, driver=driver)
        self.command(lambda op: m.AddSession(op, spec))
        for rank in range(size):
            self.command(lambda op, rank=rank: m.SetToken(op, SESSION, rank, rank + 1))  # type: ignore[misc]

    def create(self, **spec: Any) -> TableInfo:
        self.tables += 1
        info = TableInfo(self.tables, TableSpec(f"t{self.tables}", **spec))
        self.command(lambda op: m.AddTable(op, info))
        return info

    def client(self, name: str, **options: Any) -> LoopClient:
        return LoopClient(self, name, **options)

    def values(self, info: TableInfo) -> dict[int, Any]:
        """What the servers hold, by key."""
        reader = Table(self.client(f"reader of {info.id}"), info, Seat())  # type: ignore[arg-type]
        keys, values = reader.collect()
        return dict(zip(keys.tolist(), values.tolist(), strict=True))


class LoopClient:
    """The client's core on the network; see the module."""

    def __init__(
        self, cluster: Cluster, name: str, window: int = 1 << 20, message_max: int = 1 << 20
    ) -> None:
        self.info = ClientInfo(name)
        self.settings = Settings.load(None, message_max_bytes=message_max)
        self.forked = False
        self.core = ClientCore(name.encode(), window=window, timeout=30.0)
        self.core.view_changed(cluster.view)
        self.network = cluster.network
        self.ends: dict[int, End] = {}
        self.name = name
        self._routes: dict[int, Routes] = {}
        self._timer: float | None = None
        self.network.node(name, self._received, self._closed)

    def view_changed(self, view: View) -> None:
        self.core.view_changed(view)

    def routes(self, info: TableInfo) -> Routes:
        routes = self._routes.get(info.id)
        if routes is None or routes.view != self.core.view.number:
            routes = self._routes[info.id] = Routes(info.id, info.spec.partitions, self.core.view)
        self.core.check(info.id, routes.servers)
        return routes

    def start(self, call: Call, requests: Sequence[Request]) -> None:
        self.perform(self.core.submit(requests, self.network.now))

    def run(self, call: Call, requests: Sequence[Request]) -> None:
        self.start(call, requests)
        self.wait(call)

    def write(self, call: Call, make: Callable[[], Sequence[Request]], *, wait: bool) -> None:
        self.start(call, make())
        if wait:
            self.wait(call)

    def wait(self, call: Call) -> None:
        self.network.run(lambda: call.done, deadline=self.network.now + 100)

    def settle(self, seat: Seat) -> None:
        self.network.run(lambda: not seat.outstanding, deadline=self.network.now + 100)
        seat.raise_error()

    def glance(self) -> None:
        pass

    def elevate(self, servers: Sequence[int]) -> None:
        pass

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                self.ends[effect.server].send(effect.frames)
            elif isinstance(effect, Connect):
                self.ends[effect.server] = self.network.connect(
                    self.name, ("server", effect.server)
                )
            elif isinstance(effect, Disconnect):
                self.ends.pop(effect.server).close()
        self._set_timer()

    def _received(self, end: End, frames: Any) -> None:
        server = end.peer[1]  # type: ignore[index]
        if self.ends.get(server) is end:
            self.perform(self.core.received(server, frames, self.network.now))

    def _closed(self, end: End) -> None:
        server = end.peer[1]  # type: ignore[index]
        if self.ends.get(server) is end:
            self.perform(self.core.lost(server, "cut", self.network.now))

    def _set_timer(self) -> None:
        deadline = self.core.deadline()
        if deadline is not None and (self._timer is None or deadline < self._timer):
            self._timer = deadline
            self.network.call_at(deadline, self._tick, self.name)

    def _tick(self) -> None:
        self._timer = None
        self.perform(self.core.tick(self.network.now))


def worker(
    cluster: Cluster, rank: int = 0, *, bsp: bool = False, **options: Any
) -> tuple[Any, Seat]:
    """A client that acts for a rank, and its seat."""
    seat = Seat(SESSION, rank, rank + 1, bsp=bsp, synchronous=False)
    return cluster.client(f"worker {rank}", **options), seat


def table(client: Any, info: TableInfo, seat: Seat) -> Table:
    """A handle that acts for a seat."""
    return Table(client, info, seat)


def error_of(call: Callable[[], Any]) -> PSError | None:
    """The error that a call raises."""
    try:
        call()
    except PSError as error:
        return error
    return None
