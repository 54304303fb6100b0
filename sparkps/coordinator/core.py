"""The coordinator's core: messages and time in, effects out; no socket, thread, clock or file.

It hands each message to the part that it concerns (``membership``, ``catalog``, ``sessions``) and
keeps the book of who is connected. The rules of the coordinator stand at the top of those files.
Its own are few:

* A connection introduces itself first (Join or ServerUp), with the protocol's version; everything
  else before that is refused, and so ends the connection.
* A request that fails is answered with a typed error, and nothing that anybody sends ends the
  coordinator.
* A coordinator that has itself slept (longer than a second between two ticks) starts all time
  limits anew: it cannot tell who was silent meanwhile. The shell reads the sockets before it ticks.
* Shutdown stops the servers, then the coordinator; nothing that ends from then on is called lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any, Final

from sparkps.config import Settings
from sparkps.coordinator.catalog import Catalog
from sparkps.coordinator.hub import Caller, Hub, Peer
from sparkps.coordinator.membership import Member, Membership
from sparkps.coordinator.sessions import Sessions
from sparkps.errors import LaunchFailed, MalformedRequest, PSError, VersionMismatch
from sparkps.wire.effects import Cut, Effect, Exit
from sparkps.wire.messages import (
    VERSION,
    Beat,
    CloseSession,
    Continue,
    CreateTable,
    Done,
    DropTable,
    Failed,
    FindTable,
    Finish,
    Gather,
    GetStatus,
    GetView,
    Join,
    Leave,
    ListTables,
    Message,
    OpenSession,
    Ready,
    RegisterRank,
    SaveTable,
    SealAll,
    ServerExited,
    ServerUp,
    Shutdown,
    Tick,
)

#: How often the shell calls :meth:`CoordinatorCore.tick`, in seconds.
TICK: Final = 0.1
#: A longer gap between two ticks means that the coordinator has slept.
_SLEPT: Final = 1.0
#: Seconds that servers have to leave at shutdown before the coordinator leaves anyway.
_LEAVING: Final = 2.0


class CoordinatorCore:
    """The coordinator, pure.

    Parameters
    ----------
    settings
        The application's settings.
    servers
        How many servers make the first view; ``settings.servers`` by default; 0: a driver will
        say.
    random
        Where session ids come from.
    on_view
        Told once, when all servers have come, how many.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        servers: int | None = None,
        random: Random | None = None,
        on_view: Callable[[int], None] = lambda _: None,
    ) -> None:
        expected = settings.servers or 1 if servers is None else servers
        self._hub = Hub(settings)
        self._members = Membership(self._hub, expected, self._lost, self._introduce, self._free)
        self._catalog = Catalog(self._hub, self._members)
        self._sessions = Sessions(self._hub, self._members, random or Random())
        self._ticked: float | None = None
        self._stopping = False
        self._members.when_ready(lambda: on_view(len(self._members.published.servers)))
        members, catalog, sessions = self._members, self._catalog, self._sessions
        self._handlers: dict[type[Message], Callable[[Peer, Any], None]] = {
            Tick: sessions.from_worker,
            Ready: sessions.from_worker,
            Finish: sessions.from_worker,
            Failed: sessions.from_worker,
            RegisterRank: sessions.register,
            OpenSession: sessions.open,
            CloseSession: sessions.close,
            Continue: sessions.go_on,
            SealAll: sessions.seal_all,
            CreateTable: catalog.create,
            FindTable: catalog.find,
            ListTables: catalog.listing,
            DropTable: catalog.drop,
            SaveTable: catalog.save,
            GetView: members.get_view,
            Gather: members.gather,
            GetStatus: self._status,
            ServerExited: lambda _, message: self._exited(message),
            Shutdown: self._shutdown,
        }

    # -- events ------------------------------------------------------------------------------------

    def received(self, peer: Peer, message: Message, now: float) -> list[Effect]:
        """A message has come from a connection."""
        self._hub.now = now
        caller = self._hub.callers.get(peer)
        try:
            if caller is None:
                self._meet(peer, message)
            else:
                caller.seen = now
                self._dispatch(peer, caller, message)
        except PSError as error:
            self._refuse(peer, f"{type(message).__name__} is refused", error, message)
        return self._hub.take()

    def malformed(self, peer: Peer, error: MalformedRequest, now: float) -> list[Effect]:
        """What has come from a connection is no message."""
        self._hub.now = now
        self._refuse(peer, "refused", error)
        return self._hub.take()

    def exited(self, message: ServerExited, now: float) -> list[Effect]:
        """The parent's ``waitpid`` has certified the exit of a server."""
        self._hub.now = now
        self._exited(message)
        return self._hub.take()

    def failed(self, error: LaunchFailed, now: float) -> list[Effect]:
        """The parent tells of a server that did not start."""
        self._hub.now = now
        self._members.failed(error)
        return self._hub.take()

    def figures(self) -> dict[str, float]:
        """How things stand, for the metrics of the parent."""
        return {**self._members.figures(), "slowest_clock": self._sessions.slowest_clock()}

    def disconnected(self, peer: Peer, now: float) -> list[Effect]:
        """A connection has ended."""
        self._hub.now = now
        caller = self._hub.callers.pop(peer, None)
        if caller is None:
            return []
        if caller.server is None:
            self._sessions.disconnected(peer)
        elif not self._stopping:
            self._members.disconnected(caller.server)
        else:
            self._members.left(caller.server)
        return self._hub.take()

    def tick(self, now: float) -> list[Effect]:
        """Time has passed; called every :data:`TICK` seconds."""
        self._hub.now = now
        before, self._ticked = self._ticked, now
        if before is not None and now - before > _SLEPT:
            self._hub.log(
                f"slept for {now - before:.1f} s; time limits start anew", logging.WARNING
            )
            for caller in self._hub.callers.values():
                caller.seen = now
            self._members.forgive()
            self._sessions.forgive()
        self._members.tick()
        self._sessions.timer()
        return self._hub.take()

    def shutdown(self, now: float) -> list[Effect]:
        """The parent wants everything stopped."""
        self._hub.now = now
        self._stop(lambda: None)
        return self._hub.take()

    # -- inside ------------------------------------------------------------------------------------

    def _refuse(
        self, peer: Peer, what: str, error: PSError, message: Message | None = None
    ) -> None:
        self._hub.complain(f"{what}: {error}")
        self._hub.deny(peer, getattr(message, "id", 0), error)
        if peer not in self._hub.callers:
            self._hub.add(Cut(peer))

    def _meet(self, peer: Peer, message: Message) -> None:
        if isinstance(message, ServerUp):
            self._members.up(peer, message)
        elif isinstance(message, Join):
            if message.version != VERSION:
                raise VersionMismatch(peer=message.role, theirs=message.version, ours=VERSION)
            self._hub.callers[peer] = Caller(message.role, message.host, message.pid, self._hub.now)
            self._members.join(peer, self._members.published)
            self._members.greet(peer)
        elif not isinstance(message, Beat):
            raise MalformedRequest(reason=f"{type(message).__name__} before Join")

    def _dispatch(self, peer: Peer, caller: Caller, message: Message) -> None:
        if isinstance(message, Beat):
            caller.load = message.load
            return
        if caller.server is not None:
            if not isinstance(message, Done):
                raise MalformedRequest(reason=f"{type(message).__name__} from a server")
            self._members.commands.done(caller.server, message)
            return
        handler = self._handlers.get(type(message))
        if handler is None:
            raise MalformedRequest(reason=f"{type(message).__name__} is not for the coordinator")
        handler(peer, message)

    def _introduce(self, server: int) -> None:
        """Tell a server that came late which tables and sessions there are."""
        self._catalog.introduce(server)
        self._sessions.introduce(server)

    def _free(self) -> bool:
        return self._catalog.free and not self._sessions.running

    def _lost(self, member: Member) -> tuple[list[str], list[int]]:
        names, ids = self._catalog.lose(member, self._members.view)
        if ids:
            self._sessions.lose(member.error())
        return names, ids

    def _exited(self, message: ServerExited) -> None:
        if not self._stopping:
            self._members.exited(message)

    def _status(self, peer: Peer, message: GetStatus) -> None:
        self._hub.answer(
            peer,
            message.id,
            {
                "view": self._members.published.number,
                "servers": self._members.status(),
                "servers_up": len(self._members.where()),
                "tables": self._catalog.status(),
                "sessions": self._sessions.status(),
            },
        )

    def _shutdown(self, peer: Peer, message: Shutdown) -> None:
        self._stop(lambda: self._hub.answer(peer, message.id))

    def _stop(self, then: Callable[[], None]) -> None:
        self._stopping = True

        def left(_: object) -> None:
            then()
            self._hub.add(Exit(0, "shut down"))

        self._members.commands.send(Leave, "leaving", left, strict=False, limit=_LEAVING)
