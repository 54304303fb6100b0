"""What a client has to do with the coordinator: its links, its questions, and the news.

Rules:

* A training task has a link of its own, closed with the task; while it lasts it lends it to the
  client of its process (:meth:`Links.lend`). A client without any link makes one when it first
  needs it, and keeps it.
* News about views and servers come in the thread of a link, which only notes them in ``inbox``;
  whoever drives the data sockets next acts on them.
* A lost coordinator is lost for good.
* The coordinator's time, by which tickets expire, is learnt when a link is made.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from sparkps.client.keys import key_of
from sparkps.config import Settings
from sparkps.errors import ContextStopped, CoordinatorLost, KeyMissing, PSError
from sparkps.net.control import ControlLink
from sparkps.net.curve import Curve
from sparkps.net.endpoint import is_ours, parse
from sparkps.net.wakeup import Wakeup
from sparkps.spec import ServerInfo, SessionSpec, TableInfo, TableSpec, View, check_name
from sparkps.wire.auth import Secret
from sparkps.wire.messages import (
    VERSION,
    CloseSession,
    CreateTable,
    DropTable,
    FindTable,
    Gather,
    GetStatus,
    Join,
    ListTables,
    Message,
    NewView,
    OpenSession,
    ServerDown,
)


@dataclass(frozen=True)
class ClientInfo:
    """How to reach a cluster: what travels in handles and task closures. It holds no key
    (:mod:`.keys`).

    Attributes
    ----------
    coordinator
        Its addresses.
    settings
        What differs from the defaults, as ``Settings.to_dict().items()``.
    tcp
        Reach servers by tcp even where a local socket is there: for benchmarks.
    """

    coordinator: str
    settings: tuple[tuple[str, Any], ...] = ()
    tcp: bool = False


class Links:
    """See the module; base of :class:`~sparkps.client.shell.Client`.

    Attributes
    ----------
    info : ClientInfo
    settings : Settings
    role : str
        ``"driver"`` or ``"reader"``.
    on_message : callable or None
        Gets what the coordinator says unasked (EpochEnded, Progress, Warned, ServerDown, Ended),
        in the link's thread; it must not block.
    closed, forked : bool
        Whether the client is closed; whether it is the copy of one in a forked process, which has
        no thread that would read the answers.
    inbox : deque
        News that nobody has acted on.
    wakeup : Wakeup
        Set when there are news.
    """

    def __init__(self, info: ClientInfo, role: str = "reader") -> None:
        self.info, self.role = info, role
        self.settings = Settings.from_dict(dict(info.settings))
        self.on_message: Callable[[Message], object] | None = None
        self.closed = False
        self.forked = False
        self.inbox: deque[NewView | ServerDown | PSError] = deque()
        self.wakeup = Wakeup()
        self._own_link: ControlLink | None = None
        self._lent: list[ControlLink] = []
        self._link_lock = threading.Lock()
        self._lost: CoordinatorLost | None = None
        self._ahead = 0.0

    @cached_property
    def secret(self) -> Secret | None:
        """The application's key; None where nothing needs one.

        Raises
        ------
        KeyMissing
            It is needed, and not to be found here.
        """
        return key_of(self.info.coordinator, self.settings)

    @cached_property
    def curve(self) -> Curve | None:
        """The keys of CURVE connections; None where there are none."""
        return None if self.secret is None else Curve(self.secret)

    def link(self) -> ControlLink:
        """Return a link to the coordinator; the first call makes it.

        Raises
        ------
        CoordinatorLost
            The coordinator is gone, or was never there.
        KeyMissing
            This process has no key, and servers are on other hosts.
        ContextStopped
            This client is closed.
        """
        with self._link_lock:
            if self.closed:
                raise ContextStopped(reason="it was closed")
            if self._lost is not None:
                raise CoordinatorLost(**self._lost.fields)
            for link in self._lent:
                if not link.lost:
                    return link
            if self._own_link is None:
                self._own_link = self._join(self.role)
            return self._own_link

    def is_near(self, server: ServerInfo) -> bool:
        """Whether a server is reached by its local socket."""
        if not server.tcp and not server.control:
            return True
        return not self.info.tcp and is_ours(parse(server.data).path)

    def _far(self, view: View) -> list[ServerInfo]:
        """Servers that are reached by tcp and ask for the key. (One of this host that has no socket
        has ended.)
        """
        here = "" if self.info.tcp else socket.gethostname()
        return [s for s in view.servers if s.control and s.host != here and not self.is_near(s)]

    def _join(self, role: str) -> ControlLink:
        join = Join(VERSION, role, socket.gethostname(), os.getpid())
        link = ControlLink(
            self.info.coordinator,
            join,
            self._told,
            self._link_lost,
            timeout=self.settings.request_timeout,
            curve=self.curve,
        )
        if self.secret is None and (far := self._far(link.joined.view)):
            link.close()
            looked = f"and server {far[0].id} on {far[0].host} asks for it"
            raise KeyMissing(coordinator=self.info.coordinator, looked=looked)
        self._ahead = link.joined.now - time.monotonic()
        self.inbox.append(NewView(link.joined.view))
        return link

    def lend(self, link: ControlLink) -> None:
        """Use a worker's link while it lasts; its messages come through :meth:`noted`."""
        with self._link_lock:
            self._lent.append(link)
        self._ahead = link.joined.now - time.monotonic()
        self.noted(NewView(link.joined.view))

    def take_back(self, link: ControlLink) -> None:
        """Stop using a worker's link."""
        with self._link_lock:
            if link in self._lent:
                self._lent.remove(link)

    def noted(self, message: Message) -> None:
        """Note what the coordinator said about views and servers; from any thread."""
        if isinstance(message, (NewView, ServerDown)):
            self.inbox.append(message)
            self.wakeup.set()

    def _told(self, message: Message) -> None:
        self.noted(message)
        if self.on_message is not None:
            self.on_message(message)

    def _link_lost(self, reason: str) -> None:
        self._lost = CoordinatorLost(
            status=reason, log="(the driver knows it)", tail="  (not known here)"
        )
        self.inbox.append(self._lost)
        self.wakeup.set()

    def request(self, make: Callable[[int], Message], timeout: float | None = None) -> Any:
        """Ask the coordinator.

        Parameters
        ----------
        make
            Makes the request of an id.
        timeout
            Seconds; by default the setting ``request.timeout``.

        Raises
        ------
        PSError
            What it answers; :class:`~sparkps.errors.CoordinatorLost`;
            :class:`~sparkps.errors.RequestTimeout`.
        """
        if self.forked:
            raise ContextStopped(reason="this process is a fork of the one that it belongs to")
        if timeout is None:
            timeout = self.settings.request_timeout
        return self.link().request(make, timeout)

    def gather(self, servers: int, timeout: float, since: float = math.inf) -> View:
        """Wait until so many servers are up and in the view, for ``timeout`` seconds; a server that
        did not start in the last ``since`` seconds ends the wait.
        """
        view = self.request(lambda number: Gather(number, servers, since), timeout)
        return msgspec.convert(view, View)

    def create_table(self, spec: TableSpec, replace: bool = False) -> TableInfo:
        """Create a table; an equal one is returned as it is."""
        result = self.request(lambda number: CreateTable(number, spec.check(), replace))
        return msgspec.convert(result, TableInfo)

    def find_table(self, name: str) -> TableInfo:
        """Find a table by its name; raise :class:`~sparkps.errors.TableNotFound`."""
        check_name(name)
        return msgspec.convert(self.request(lambda number: FindTable(number, name)), TableInfo)

    def tables(self) -> list[TableInfo]:
        """Return all tables."""
        return msgspec.convert(self.request(ListTables), list[TableInfo])

    def drop_table(self, table: int) -> None:
        """Drop a table on all servers."""
        self.request(lambda number: DropTable(number, table))

    def status(self) -> dict[str, Any]:
        """Return what the coordinator knows of servers, tables and sessions."""
        result: dict[str, Any] = self.request(GetStatus)
        return result

    def open_session(self, spec: SessionSpec) -> tuple[int, int]:
        """Open a session; return its id and the token of the driver's rank in it."""
        named = spec if spec.id else msgspec.structs.replace(spec, id=secrets.randbits(62) | 1)
        session, token = self.request(lambda number: OpenSession(number, named))
        return session, token

    def close_session(
        self, session: int, code: str = "", fields: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Close a session on all servers; return the kept error of a worker, if there is one."""
        result: dict[str, Any] | None = self.request(
            lambda number: CloseSession(number, session, code, fields or {})
        )
        return result

    def leave(self) -> None:
        """Close the own link."""
        with self._link_lock:
            link, self._own_link = self._own_link, None
        if link is not None:
            link.close()
