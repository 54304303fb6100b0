"""Which servers are up, which are lost, and the view.

The rules:

* The first view is made when all the servers that were asked for have come (by the launcher, or by
  a driver's Gather where executors bring their own); until then requests that need a view wait. A
  view is sent to the servers first, and published to the others when every server has it.
* A server that comes later gets no partitions as long as there is a table with rows to lose:
  nothing carries rows over, yet. Where there is none, the next Gather or the next table finds it in
  a new view.
* A server that did not start is told by its launcher. Whoever gathers servers that are not up is
  told why; where executors come and go, only of failures that are no older than the gathering.
* A restarted process is a new server id. An id that has been seen is never taken again.
* A server is *lost* when its launcher's ``waitpid`` has certified the exit of that incarnation.
  When its connection ends, the certificate is waited for a moment (it carries the exit status and
  the log's last lines); then it is lost without one. Silence alone loses nobody: a busy server is
  not a dead one, and whoever waits for it has a time limit of its own.
* A loss is told to everyone before the view without that server is; whoever connects later is told
  too. A server that had no partition of any table takes nothing with it: runs go on.
* Groups of a lost server are given to the others, for tables to come. Partitions that were in them
  are not: the tables that had any are lost (:mod:`sparkps.coordinator.catalog`), never silently
  back at zero.

Not here, yet: leases, replicas and moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sparkps.coordinator.commands import Commands
from sparkps.coordinator.hub import Caller, Hub, Peer
from sparkps.errors import LaunchFailed, MalformedRequest, PSError, ServerLost, VersionMismatch
from sparkps.routing.placement import make_view
from sparkps.spec import ServerInfo, View
from sparkps.wire.messages import (
    VERSION,
    Gather,
    GetView,
    Joined,
    NewView,
    ServerDown,
    ServerExited,
    ServerUp,
    SetView,
)

#: Seconds between the end of a server's connection and calling it lost without its exit status.
GRACE: Final = 2.0


@dataclass(slots=True)
class Member:
    """A server that is or was."""

    info: ServerInfo
    peer: Peer = None
    lost: bool = False
    status: str = ""
    tail: str = ""
    cut: float | None = None
    tables: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def error(self) -> ServerLost:
        """The error of everything that needed this server."""
        return ServerLost(
            server=self.info.id,
            status=self.status,
            log=self.info.log,
            tail=self.tail,
            tables=", ".join(self.tables) or "(none)",
        )

    def message(self) -> ServerDown:
        """What everyone is told about it."""
        return ServerDown(
            self.info.id, self.status, self.tail, self.info.log, self.tables, self.ids
        )


class Membership:
    """The servers and the view.

    Parameters
    ----------
    hub
        Shared state.
    expected
        How many servers make the first view; 0: a driver will say.
    on_lost
        Called with each member that is lost, before anyone is told; returns the names and ids of
        the tables that are lost with it.
    on_up
        Called with the id of a server that comes after the first view: it knows nothing yet.
    free
        Whether there is neither a table with rows to lose nor a run.
    """

    def __init__(
        self,
        hub: Hub,
        expected: int,
        on_lost: Callable[[Member], tuple[list[str], list[int]]],
        on_up: Callable[[int], None],
        free: Callable[[], bool],
    ) -> None:
        self._hub = hub
        self._expected = expected
        self._on_lost = on_lost
        self._on_up = on_up
        self._free = free
        self.members: dict[int, Member] = {}
        self.commands = Commands(hub, self.where)
        self.view = View(number=0)
        self.published = View(number=0)
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._for_view: list[tuple[int, Callable[[], None]]] = []
        self._gathering: list[tuple[Peer, Gather]] = []
        self._failure: tuple[float, LaunchFailed] | None = None

    # -- who is there ------------------------------------------------------------------------------

    def where(self) -> dict[int, tuple[Peer, str]]:
        """Peer and log file of each server that is up, by id."""
        return {
            server: (member.peer, member.info.log)
            for server, member in sorted(self.members.items())
            if member.peer is not None and not member.lost
        }

    def lost_error(self) -> PSError | None:
        """The error of the first lost server, if any is lost."""
        lost = [member for _, member in sorted(self.members.items()) if member.lost]
        return lost[0].error() if lost else None

    def up(self, peer: Peer, message: ServerUp) -> None:
        """A server has come."""
        info = message.server
        if message.version != VERSION:
            raise VersionMismatch(peer=f"server {info.id}", theirs=message.version, ours=VERSION)
        if info.id in self.members:
            raise MalformedRequest(reason=f"server {info.id} has been here already")
        self._hub.callers[peer] = Caller(
            "server", info.host, info.pid, self._hub.now, server=info.id
        )
        self.members[info.id] = Member(info, peer)
        self._hub.log(f"server {info.id} is up: pid {info.pid}, {info.data} {info.tcp}")
        self.join(peer, self.view)
        if self.view.number:
            self._hub.log(f"server {info.id} came after the first view and gets no partitions yet")
            self._on_up(info.id)
        self.look_around()

    def join(self, peer: Peer, view: View) -> None:
        """Answer the first message of a connection."""
        hub = self._hub
        hub.tell(peer, Joined(VERSION, view, hub.settings.heartbeat, hub.now))

    def gather(self, peer: Peer, message: Gather) -> None:
        """A driver says how many servers the view needs."""
        self._expected = message.servers
        self._gathering.append((peer, message))
        self.look_around()

    def look_around(self) -> bool:
        """Make a view if it is time for one; return whether a newer one is on its way."""
        if not self.view.number:
            if 0 < self._expected <= len(self.where()):
                self._renew()
        elif self._free() and set(self.where()) != {s.id for s in self.view.servers}:
            self._renew()
        self._check_waiting()
        return self.published.number != self.view.number

    def failed(self, error: LaunchFailed) -> None:
        """A launcher tells of a server that did not start."""
        self._failure = (self._hub.now, error)
        self._hub.log(str(error), logging.ERROR)
        self._check_waiting()

    # -- the view ----------------------------------------------------------------------------------

    def when_ready(self, then: Callable[[], None], servers: int = 0) -> None:
        """Call ``then`` once the first view is published (and ``servers`` servers are up)."""
        self._waiting.append((servers, then))
        self._check_waiting()

    def get_view(self, peer: Peer, message: GetView) -> None:
        """Answer with the view, once enough servers are up."""
        if message.servers <= 0:
            self._hub.answer(peer, message.id, self.published)
            return
        self.when_ready(lambda: self._hub.answer(peer, message.id, self.published), message.servers)

    def _renew(self) -> None:
        """Make a view: of all servers that are up if nothing has to be carried over to newcomers;
        else of those in the view before, none of whose groups moves.
        """
        free, before = self._free(), self.view if self.view.owners else None
        old = {info.id for info in self.view.servers}
        all_up = free or before is None
        infos = [self.members[id].info for id in self.where() if all_up or id in old]
        view = make_view(self.view.number + 1, infos, before, keep=not free)
        self.view = view
        self.commands.send(
            lambda op: SetView(op, view),
            "taking a view",
            lambda _: self._publish(view),
            strict=False,
        )

    def _publish(self, view: View) -> None:
        if view.number <= self.published.number:
            return
        self.published = view
        for peer in list(self._hub.clients()):
            self._hub.tell(peer, NewView(view))
        self._check_waiting()

    def when_published(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the newest view is published."""
        if self.published.number == self.view.number:
            then()
        else:
            self._for_view.append((self.view.number, then))

    def _check_waiting(self) -> None:
        self._check_gathering()
        if self.published.number == 0:
            return
        up = len(self.published.servers)
        self._waiting, ready = _split(self._waiting, up)
        self._for_view, shown = _split(self._for_view, self.published.number)
        for then in (*ready, *shown):
            then()

    def _check_gathering(self) -> None:
        up = len(self.published.servers) if self.published.number == self.view.number else 0
        waiting, self._gathering = self._gathering, []
        for peer, message in waiting:
            if peer not in self._hub.callers:
                continue
            if 0 < message.servers <= up:
                self._hub.answer(peer, message.id, self.published)
            elif (why := self._why_missing(message)) is not None:
                self._hub.deny(peer, message.id, why)
            else:
                self._gathering.append((peer, message))

    def _why_missing(self, message: Gather) -> LaunchFailed | None:
        if self._failure is None or len(self.where()) >= message.servers:
            return None
        at, error = self._failure
        return error if self._hub.now - at <= message.since else None

    # -- losses ------------------------------------------------------------------------------------

    def exited(self, message: ServerExited) -> None:
        """A launcher certifies an exit."""
        member = self.members.get(message.server)
        if member is None:
            info = ServerInfo(message.server, message.incarnation, "")
            member = self.members[message.server] = Member(info)
        elif member.info.incarnation != message.incarnation:
            return
        self._lose(member, message.status, message.tail)

    def disconnected(self, server: int) -> None:
        """A server's connection has ended."""
        member = self.members[server]
        member.peer = None
        if not member.lost:
            member.cut = self._hub.now

    def left(self, server: int) -> None:
        """A server has left because it was told to."""
        member = self.members[server]
        member.peer = None
        self.commands.lost(server, member.error())

    def status(self) -> list[dict[str, Any]]:
        """Figures for ``ps.status()``."""
        rows = []
        for server, member in sorted(self.members.items()):
            caller = self._hub.callers.get(member.peer)
            rows.append(
                {
                    "id": server,
                    "pid": member.info.pid,
                    "host": member.info.host,
                    "data": member.info.data,
                    "log": member.info.log,
                    "state": "lost" if member.lost else "up" if caller else "cut",
                    "status": member.status,
                    "load": caller.load if caller else {},
                    "silent": self._hub.now - caller.seen if caller else None,
                }
            )
        return rows

    def figures(self) -> dict[str, float]:
        """Sums over the servers that are up."""
        loads = [self._hub.callers[peer].load for peer, _ in self.where().values()]
        names = ("partitions", "rows", "bytes", "requests")
        sums = {name: sum(load.get(name, 0.0) for load in loads) for name in names}
        return {"servers": float(len(loads)), **sums}

    def tick(self) -> None:
        """Lose servers whose certificate does not come; fail commands that are late."""
        for member in list(self.members.values()):
            if not member.lost and member.cut is not None and self._hub.now - member.cut >= GRACE:
                self._lose(member, "its connection to the coordinator ended", "")
        self.commands.tick()

    def forgive(self) -> None:
        """The coordinator has slept."""
        for member in self.members.values():
            if member.cut is not None:
                member.cut = self._hub.now
        self.commands.forgive()

    def greet(self, peer: Peer) -> None:
        """Tell a newcomer what was lost before it came."""
        for _, member in sorted(self.members.items()):
            if member.lost:
                self._hub.tell(peer, member.message())

    def _lose(self, member: Member, status: str, tail: str) -> None:
        if member.lost:
            return
        member.lost, member.status, member.tail, member.cut = True, status, tail, None
        server = member.info.id
        self._hub.log(f"server {server} is lost: {status}", logging.ERROR)
        member.tables, member.ids = self._on_lost(member)
        # Without a table it had nothing that anybody needs: executors come and go, and are idle.
        self.commands.lost(server, member.error() if member.ids else None)
        for peer in list(self._hub.clients()):
            self._hub.tell(peer, member.message())
        if any(server == info.id for info in self.view.servers):
            self._renew()


def _split(
    waiting: list[tuple[int, Callable[[], None]]], have: int
) -> tuple[list[tuple[int, Callable[[], None]]], list[Callable[[], None]]]:
    """Who waits for more than there is, and what the others wait to do."""
    return [w for w in waiting if w[0] > have], [then for need, then in waiting if need <= have]
