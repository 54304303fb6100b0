"""The client of a process: its sockets, and who may drive them.

The core decides (:mod:`.core`), this carries it out. Not here: keys, rows and tables
(:mod:`.table`).

Rules (SEMANTICS §3):

* One client per process and coordinator, used by all threads; in a forked child it counts for
  nothing.
* Data sockets are driven, under one lock, by whichever thread waits for a reply; it takes in the
  replies of the others too. A thread that comes meanwhile wakes the one that waits and takes its
  turn, and so does one whose reply was taken in by another. While only one thread has ever called,
  no wake-up is looked for.
* What the coordinator says is only noted when it comes (:mod:`.links`); whoever drives next acts on
  it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from sparkps._malloc import keep_freed_memory
from sparkps.client.calls import Call, Request
from sparkps.client.core import ClientCore
from sparkps.client.links import ClientInfo, Links
from sparkps.client.seat import Seat
from sparkps.errors import ContextStopped, CoordinatorLost
from sparkps.net.rpc import Connection, wait
from sparkps.net.sockets import new_context
from sparkps.routing.partitioner import Routes
from sparkps.spec import ServerInfo, SessionSpec, TableInfo, View, parse_consistency
from sparkps.wire.auth import new_ticket
from sparkps.wire.effects import Connect, Disconnect, Effect, SendTo
from sparkps.wire.messages import (
    GetView,
    NewView,
    ServerDown,
)

__all__ = ["Client", "ClientInfo", "client_for"]

#: Longest wait for one connection, in milliseconds, before the others and the coordinator's
#: messages are looked at.
SLICE_MS: Final = 50.0


_clients: dict[ClientInfo, Client] = {}
_clients_lock = threading.Lock()
#: Clients of the process that this one was forked from; kept so that nothing closes their sockets.
_forked: list[Client] = []


def _after_fork() -> None:
    global _clients_lock
    _clients_lock = threading.Lock()
    for client in _clients.values():
        client.forked = True
        _forked.append(client)
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)


def client_for(info: ClientInfo, role: str = "reader") -> Client:
    """Return this process's client of a cluster; the first call makes it.

    Parameters
    ----------
    info
        Which cluster.
    role
        ``"driver"`` makes table handles of this process writable outside a run.
    """
    with _clients_lock:
        client = _clients.get(info)
        if client is None or client.closed:
            client = _clients[info] = Client(info, role)
        elif role == "driver":
            client.role = role
        return client


class Client(Links):
    """See the module."""

    def __init__(self, info: ClientInfo, role: str = "reader") -> None:
        super().__init__(info, role)
        keep_freed_memory()
        self.forked = False
        self.core = ClientCore(
            f"{socket.gethostname()}:{os.getpid()}".encode(),
            window=self.settings.window_bytes,
            timeout=self.settings.request_timeout,
            ticket=self._ticket,
        )
        self._context = new_context()
        self._elevated: set[int] = set()
        self._connections: dict[int, Connection] = {}
        self._routes: dict[int, Routes] = {}
        self._driver: Seat | None = None
        self._reader = Seat(denied="outside ps.run")
        self._run_seats: dict[int, Seat] = {}
        self._seats = threading.local()
        # The lock of core and sockets, and the door before it, which makes its passing fair.
        self._mutex = threading.Lock()
        self._door = threading.Lock()
        self._thread = 0
        self._many = False
        self._parked: list[Call] = []
        self._next_step = 0.0

    def __repr__(self) -> str:
        return f"<Client {self.role} of {self.info.coordinator}>"

    # --- in whose name

    def seat(self) -> Seat:
        """Return this thread's seat outside a worker: the driver's or a reader's."""
        if self._run_seats:
            seat: Seat | None = getattr(self._seats, "seat", None)
            if seat is not None:
                return seat
        if self.role != "driver":
            return self._reader
        if self._driver is None:
            session, token = self.open_session(SessionSpec(id=0, size=1, driver=True))
            with self._link_lock:
                if self._driver is None:
                    self._driver = Seat(session, 0, token)
        return self._driver

    @contextmanager
    def in_run(self, spec: SessionSpec, token: int, clock: int) -> Iterator[None]:
        """In this block, this thread's handles act as rank ``size`` of a run (``on_epoch``)."""
        seat = self._run_seats.get(spec.id)
        if seat is None:
            bsp = parse_consistency(spec.consistency).mode == "bsp"
            seat = self._run_seats[spec.id] = Seat(spec.id, spec.size, token, bsp=bsp)
        seat.clock = max(clock, seat.clock)
        self._seats.seat = seat
        try:
            yield
        finally:
            self._seats.seat = None

    def close_session(
        self, session: int, code: str = "", fields: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Close a session on all servers; return the kept error of a worker, if there is one."""
        self._run_seats.pop(session, None)
        return super().close_session(session, code, fields)

    # --- calls

    def routes(self, info: TableInfo) -> Routes:
        """Return where the partitions of a table are, in the newest view.

        Raises
        ------
        ServerLost
            A part of the table is lost.
        """
        core = self.core
        routes = self._routes.get(info.id)
        if routes is not None and routes.view == core.view.number and not self.inbox:
            if core.any_lost:
                core.check(info.id, routes.servers)
            return routes
        return self._new_routes(info)

    def _new_routes(self, info: TableInfo) -> Routes:
        core = self.core
        routes = self._routes.get(info.id)
        if routes is None or routes.view != core.view.number or self.inbox:
            with self._held():
                self._read_news()
            core.check(info.id, ())  # a table that is lost has no servers to wait for
            if not core.view.owners:
                self._await_servers()
            routes = self._routes.get(info.id)
            if routes is None or routes.view != core.view.number:
                routes = self._routes[info.id] = Routes(info.id, info.spec.partitions, core.view)
        core.check(info.id, routes.servers)
        return routes

    def _await_servers(self) -> None:
        """Wait for the first view that has servers."""
        self.link()
        view = msgspec.convert(self.request(lambda number: GetView(number, 1)), View)
        with self._held():
            self.inbox.append(NewView(view))
            self._read_news()

    def start(self, call: Call, requests: Sequence[Request]) -> None:
        """Send the requests of a read; wait only for room."""
        with self._held():
            self._perform(self.core.submit(requests, time.monotonic()))
            while self.core.backlog and call.error is None:
                self._drive(None)

    def write(self, call: Call, make: Callable[[], Sequence[Request]], *, wait: bool) -> None:
        """Make and send the requests of a write at one place in the order of all threads.

        Parameters
        ----------
        make
            Makes them; called under the lock, since it gives out positions.
        wait
            For the acknowledgement; else only for room.
        """
        self._enter()
        try:
            requests = make()
            self._perform(self.core.submit(requests, time.monotonic()))
            if wait and len(requests) == 1 and not self._many:
                self._await(call, requests[0].server)
            while call.error is None and ((call.left and wait) or self.core.backlog):
                self._drive(call if wait else None)
        finally:
            self._mutex.release()

    def wait(self, call: Call) -> None:
        """Wait until a call is done; its result may be an error."""
        if call.left:
            with self._held():
                while call.left:
                    self._drive(call)

    def run(self, call: Call, requests: Sequence[Request]) -> None:
        """Send the requests of a read and wait for their answers."""
        self._enter()
        try:
            self._perform(self.core.submit(requests, time.monotonic()))
            if len(requests) == 1 and not self._many:
                self._await(call, requests[0].server)
            while call.left:
                self._drive(call)
        finally:
            self._mutex.release()

    def settle(self, seat: Seat) -> None:
        """Wait until all writes of a seat are acknowledged, or one has failed; raise its error."""
        if seat.outstanding:
            with self._held():
                while seat.outstanding and seat.error is None:
                    self._drive(None)
        seat.raise_error()

    def glance(self) -> None:
        """Take in what has come, without waiting."""
        with self._held():
            for lane in list(self.core.lanes.values()):
                if lane.flying:
                    self._receive(lane.server, 0)
            self._step(time.monotonic())

    # --- driving

    @contextmanager
    def _held(self) -> Iterator[None]:
        self._enter()
        try:
            yield
        finally:
            self._mutex.release()

    def _enter(self) -> None:
        thread = threading.get_ident()
        if thread != self._thread:
            self._many = self._many or self._thread != 0
            self._thread = thread
        if not self._mutex.acquire(blocking=False):
            self._many = True
            with self._door:
                self.wakeup.set()
                self._mutex.acquire()
        if self.closed or self._lost is not None:
            self._mutex.release()
            if self.closed or self._lost is None:
                raise ContextStopped(reason="it was closed")
            raise CoordinatorLost(**self._lost.fields)

    def _yield(self, call: Call | None) -> None:
        """Let in who waits at the door; come back when they have gone on."""
        if call is not None:
            self._parked.append(call)
        self._mutex.release()
        try:
            with self._door:
                self._mutex.acquire()
        finally:
            if call is not None:
                self._parked.remove(call)

    def _await(self, call: Call, server: int) -> None:
        """The short way of :meth:`_drive`: one thread, one server, and nothing else happens."""
        received = self.core.received
        connection = self._connections.get(server)
        while call.left and connection is not None and not self.inbox:
            frames = connection.receive(SLICE_MS)
            if frames is None:
                return
            effects = received(server, frames, time.monotonic())
            if effects:
                self._perform(effects)
                connection = self._connections.get(server)

    def _drive(self, call: Call | None) -> None:
        """Wait for something to come, and act on it; the lock is given away if asked for."""
        now = time.monotonic()
        if now >= self._next_step or self.inbox:
            self._step(now)
            if call is not None and call.done:
                return
        timeout = min(SLICE_MS, (self._next_step - now) * 1000)
        servers = [lane.server for lane in self.core.lanes.values() if lane.flying and lane.up]
        if self._many or not servers or (call is None and len(servers) > 1):
            connections = {self._connections[server]: server for server in servers}
            # Without connections this waits for the time of the next try, or for news.
            for connection in wait(list(connections), max(timeout, 1.0), self.wakeup):
                self._receive(connections[connection], 0)
            self.wakeup.clear()
            if self._door.locked() or any(other.done for other in self._parked):
                self._yield(call)
            return
        server = servers[0]
        if call is not None and len(servers) > 1:
            server = next((s for s in call.servers if s in servers), server)
        self._receive(server, max(timeout, 1.0))

    def _receive(self, server: int, timeout_ms: float) -> None:
        """Take in what a server has sent, waiting for the first message only."""
        connection = self._connections[server]
        frames = connection.receive(timeout_ms)
        while frames is not None:
            self._perform(self.core.received(server, frames, time.monotonic()))
            if (
                self._connections.get(server) is not connection
                or not self.core.lanes[server].flying
            ):
                return
            frames = connection.receive(0)
        if connection.lost:
            self._perform(self.core.lost(server, connection.lost, time.monotonic()))
            self._next_step = 0.0
            self.link()  # whoever has none would not hear why

    def _step(self, now: float) -> None:
        """Look at the news and at the time."""
        self._read_news()
        self._perform(self.core.tick(now))
        deadline = self.core.deadline()
        self._next_step = (
            now + SLICE_MS / 1000 if deadline is None else min(deadline, now + SLICE_MS / 1000)
        )

    def _read_news(self) -> None:
        while self.inbox:
            news = self.inbox.popleft()
            if isinstance(news, NewView):
                self.core.view_changed(news.view)
            elif isinstance(news, ServerDown):
                self._perform(self.core.server_down(news))
            else:
                self._perform(self.core.fail_all(news))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is SendTo:
                self._connections[effect.server].send(effect.frames)
            elif type(effect) is Connect:
                self._disconnect(effect.server)
                self._connections[effect.server] = self._connection(effect.server)
            elif type(effect) is Disconnect:
                self._disconnect(effect.server)

    def _connection(self, server: int) -> Connection:
        """Connect to a server: by its local socket on its own host, else by tcp; there by its
        control port if it has no other, or gets functions from here.
        """
        info = self.core.server_info(server)
        if self.is_near(info):
            return Connection(self._context, info.data)
        if info.control and (server in self._elevated or not info.tcp):
            return Connection(self._context, info.control, self.curve)
        return Connection(self._context, info.tcp)

    def elevate(self, servers: Iterable[int]) -> None:
        """Go on with these servers by connections that take functions."""
        if self._elevated.issuperset(servers):
            return
        with self._held():
            for server in servers:
                self._elevated.add(server)
                connection = self._connections.get(server)
                info = self.core.server_info(server)
                if info.control and connection is not None and connection.endpoint == info.tcp:
                    self._perform(self.core.moved(server))

    def _ticket(self, info: ServerInfo) -> bytes:
        if self.secret is None or not info.tcp or not info.control:
            return b""
        now = time.monotonic() + self._ahead
        key = self.secret.derive("ticket")
        return new_ticket(key, self.core.client, info.id, info.incarnation, now)

    def _disconnect(self, server: int) -> None:
        connection = self._connections.pop(server, None)
        if connection is not None:
            connection.close()

    # --- the end

    def close(self) -> None:
        """Close all connections; calls under way fail. Closing twice is no error."""
        self.leave()
        with self._door:
            self.wakeup.set()
            self._mutex.acquire()
        if self.closed:
            self._mutex.release()
            return
        try:
            self._perform(self.core.fail_all(ContextStopped(reason="it was closed")))
            self.closed = True
            for server in list(self._connections):
                self._disconnect(server)
        finally:
            self._mutex.release()
        self.wakeup.close()
        self._context.term()
        with _clients_lock:
            for key in [key for key, client in _clients.items() if client is self]:
                del _clients[key]
