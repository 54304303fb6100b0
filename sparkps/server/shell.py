"""The server's shell: sockets, the link to the coordinator, the leash, and a core that decides.

Threads: the loop, which does everything; the link to the coordinator, which hands commands to the
loop and keeps the heartbeat while that computes; and the leash, which waits for the end of stdin
(SEMANTICS §10), with another behind it that needs no interpreter. A server whose stdin has ended
leaves, from its first moment on, within two seconds, even if a user's function keeps its loop, or
the interpreter, busy. A server that was told to leave says so to its parent, and nobody takes its
place. One that has lost its coordinator ends as well, since nothing can reach its tables then; that
is a death, and if only the connection was lost another server takes its place.

Listeners (SEMANTICS §3; DESIGN §10): a local socket, whose directory only this user can enter; and,
where the parent gives a host, two tcp ports:

* *data* takes tickets. What follows the ticket is as open as the network is, so it takes no pickled
  functions.
* *control* speaks CURVE: only holders of the application's key come in, encrypted, and may send
  functions. With ``security=encrypt`` there is no other port; with ``none`` there is one, for all.

A third, for other servers, comes with what they have to say to each other (replicas).

Not here: any decision (:mod:`sparkps.server.core`).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from typing import Final

import msgspec

from sparkps import _leash, _log
from sparkps._machine import raise_descriptors
from sparkps._malloc import keep_freed_memory
from sparkps._parent import Lines, Parent
from sparkps.config import Settings, port_range
from sparkps.errors import PSError
from sparkps.net import endpoint
from sparkps.net.control import ControlLink
from sparkps.net.curve import Curve
from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.net.endpoint import ipc
from sparkps.net.faults import delayed
from sparkps.net.gate import Gate
from sparkps.net.hosts import advertised, listening
from sparkps.net.loop import Loop
from sparkps.net.serve import Router
from sparkps.net.sockets import new_context
from sparkps.server.budget import beside_executor
from sparkps.server.core import Door, ServerCore
from sparkps.server.snapshots import Snapshots
from sparkps.spec import ServerInfo
from sparkps.wire import userfn
from sparkps.wire.auth import Admission, Secret
from sparkps.wire.effects import Buffer, Cut, Effect, Exit, Log, Send, TakeSnapshot, ToCoordinator
from sparkps.wire.messages import VERSION, Message, ServerUp

#: Milliseconds that the loop has to end after the leash was let go; a user's function may keep it.
_PATIENCE: Final = 2000
#: Exit status when the coordinator is gone, or only the connection to it.
_ORPHAN: Final = 3
_CUT: Final = "its connection to the coordinator has ended"

log = _log.get("server")


class Start(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of stdin, as JSON.

    Attributes
    ----------
    server, incarnation
        Who this is.
    coordinator
        Addresses of the coordinator.
    conf
        The settings, as keys of a Spark configuration.
    secret
        The application's key; empty where nothing goes by tcp.
    host
        Listen there by tcp; empty: on the local socket only.
    bind
        The address to bind, where it is not ``host``, which others reach it by.
    directory
        Where the local socket goes; empty makes one. One that is made here, or is an executor's
        for this server, is removed at the end; that of a launcher only if the launcher is gone.
    memory
        Bytes that may be used; 0: what the settings say, or a part of the machine.
    log
        Path of the log file; empty for stderr.
    executor, per_executor, spark
        Of the executor that this server stands beside: its id, how many servers it has, and what
        Spark was told about its memory.
    """

    server: int
    incarnation: int
    coordinator: str
    conf: dict[str, str] = {}
    secret: str = ""
    host: str = ""
    bind: str = ""
    directory: str = ""
    memory: int = 0
    log: str = ""
    executor: str = ""
    per_executor: int = 1
    spark: dict[str, str] = {}


class Shell:
    """One running server.

    Parameters
    ----------
    start
        Its first line.
    local
        Address of its local socket.
    parent
        Is told what happens.
    """

    def __init__(self, start: Start, local: str, parent: Parent) -> None:
        settings = Settings.load(start.conf)
        self._parent = parent
        secret = Secret(start.secret) if start.secret else None
        self._core = ServerCore(
            start.server,
            start.incarnation,
            limit=start.memory or beside_executor(settings, start.per_executor, start.spark),
            max_bytes=settings.message_max_bytes,
            keysets_max_bytes=settings.keysets_max_bytes,
            loads=userfn.loads,
            admission=None
            if secret is None
            else Admission(secret.derive("ticket"), start.server, start.incarnation),
        )
        self._loop = Loop()
        self._snapshots = Snapshots(self._core, self._loop, self._carry_out)
        self._status = 0
        self._leaving = False
        self._load: dict[str, float] = {}
        self._linger = self._loop.timer(self._let_go)
        self._linger_seconds = settings.executor_linger
        self._kept = self._started = False
        self._context = new_context()
        self._routers: list[Router] = []
        self._gate: Gate | None = None
        curve = None if secret is None or settings.security == "none" else Curve(secret)
        self._faults = (settings.faults_delay_ms, settings.faults_seed + start.server)
        data = self._listen(Door.OPEN, local)
        tcp, control = self._listen_far(start, settings, curve) if start.host else ("", "")
        info = ServerInfo(
            start.server,
            start.incarnation,
            data,
            tcp,
            os.getpid(),
            socket.gethostname(),
            start.log,
            control,
        )
        self._link = ControlLink(
            start.coordinator,
            ServerUp(VERSION, info),
            self._on_command,
            self._on_lost,
            timeout=settings.start_timeout,
            load=self._figures,
            curve=curve,
        )
        self._carry_out(self._core.command(self._link.joined, self._loop.now))
        log.info("server %d is up at %s %s %s", info.id, info.data, info.tcp, info.control)
        self._keep()
        parent.tell("up", f"{data} {tcp} {control}")

    def run(self) -> int:
        """Serve until told to leave; return the exit status."""
        threading.Thread(target=self._hold_leash, name="leash", daemon=True).start()
        self._loop.run()
        self._link.close()
        for router in self._routers:
            router.close()
        if self._gate is not None:
            self._gate.close()
        self._context.term()
        return self._status

    def _listen_far(self, start: Start, settings: Settings, curve: Curve | None) -> tuple[str, str]:
        """Listen by tcp; return the data and the control address, of which one may be missing."""
        address, told = listening(settings, start.host, start.bind)
        port, ports = endpoint.tcp(address, 0), port_range(settings.ports)
        if curve is None or settings.security == "none":
            return advertised(self._listen(Door.OPEN, port, ports), told), ""
        self._gate = Gate(self._context, self._loop, curve)
        control = advertised(self._listen(Door.OPEN, port, ports, curve), told)
        if settings.security == "encrypt":
            return "", control
        return advertised(self._listen(Door.TICKET, port, ports), told), control

    def _listen(
        self, door: Door, address: str, ports: tuple[int, int] = (0, 0), curve: Curve | None = None
    ) -> str:
        """Open a listener; return its address."""
        router = Router(self._context, [address], ports=ports, curve=curve)
        number = len(self._routers)
        self._routers.append(router)
        self._serve(router, number, door)
        return router.endpoints[0]

    def _serve(self, router: Router, number: int, door: Door) -> None:
        received, send, carry_out = self._core.received, router.send, self._carry_out

        def on_message(peer: bytes, frames: list[Buffer], now: float) -> None:
            # A peer of the core is unique over the routers.
            for effect in received((number, peer), door, frames, now):
                if type(effect) is Send:
                    send(peer, effect.frames)
                elif type(effect) is Cut:
                    router.cut(peer)
                else:
                    carry_out([effect])

        def on_gone(peer: bytes, now: float) -> None:
            self._core.disconnected((number, peer))

        message, gone = delayed(
            self._loop,
            on_message,
            on_gone,
            delay_ms=self._faults[0],
            seed=self._faults[1],
        )
        self._loop.serve(router, message, gone)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ToCoordinator):
                self._link.tell(effect.message)
            elif isinstance(effect, TakeSnapshot):
                self._snapshots.take(effect)
            elif isinstance(effect, Log):
                log.log(effect.level, "%s", effect.text)
            elif isinstance(effect, Exit):
                self._leave(effect.status, effect.reason)

    def _command(self, message: Message) -> None:
        self._carry_out(self._core.command(message, self._loop.now))
        self._keep()

    def _keep(self) -> None:
        """Have the executor kept while there is a table, and for a while after."""
        tables = self._core.tables
        if tables or not self._started:
            self._started = True
            self._linger.set(None if tables else self._loop.now + self._linger_seconds)
            if not self._kept:
                self._kept = True
                self._parent.tell("holding", max(1, tables))
        elif self._kept and self._linger.when is None:
            self._linger.set(self._loop.now + self._linger_seconds)

    def _let_go(self, now: float) -> None:
        """There was no table for a while."""
        self._kept = False
        self._parent.tell("holding", 0)

    def _leave(self, status: int, reason: str) -> None:
        if self._leaving:
            return
        self._leaving = True
        log.log(logging.ERROR if status else logging.INFO, "leaving: %s", reason)
        self._status = status
        if status:
            self._parent.tell("failed", reason)
        else:
            self._parent.tell("leaving")
        self._loop.stop()

    # --- in the link's thread

    def _on_command(self, message: Message) -> None:
        self._loop.post(lambda: self._command(message))

    def _on_lost(self, reason: str) -> None:
        self._loop.post(lambda: self._leave(_ORPHAN, f"{_CUT}: {reason}"))

    def _figures(self) -> dict[str, float]:
        """The last figures; asks the loop for new ones, which alone may look at the tables."""
        self._loop.post(self._count)
        return self._load

    def _count(self) -> None:
        self._load = self._core.load()

    # --- in the leash's thread

    def _hold_leash(self) -> None:
        while os.read(0, 4096):
            pass
        self._loop.post(lambda: self._leave(0, "the end of stdin: our parent is gone"))


def main() -> int:
    """Read the first line of stdin, serve, return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Lines(0).first()
    if not line:
        # The parent has ended before it said anything: the argument is the directory that it had
        # made for us. Only an empty one is removed: somebody else may have given another.
        for directory in sys.argv[1:2]:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        return 0
    start = msgspec.json.decode(line, type=Start)
    parent = Parent()
    _log.to_file(start.log)
    raise_descriptors()
    keep_freed_memory()
    directory = start.directory or runtime_directory()
    try:
        local = ipc(directory, f"s{start.server}")
        last = (0, _PATIENCE, endpoint.parse(local).path.encode(), directory.encode())
        threading.Thread(target=_leash.hold, args=last, name="last leash", daemon=True).start()
        shell = Shell(start, local, parent)
        gc.collect()
        gc.freeze()
        return shell.run()
    except PSError as error:
        log.error("%s", error)
        parent.tell("failed", error)
    except Exception as error:
        log.exception("server %d ends", start.server)
        parent.tell("failed", f"{type(error).__name__}: {error}")
    finally:
        # An executor's is this server's alone, a launcher's for all its children.
        if not start.directory or start.executor or parent.is_gone():
            remove_directory(directory)
    return 1
