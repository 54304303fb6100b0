"""The server's shell: sockets, the link to the coordinator, the leash, and a core that decides.

Threads: the loop, which does everything; the link to the coordinator, which hands commands to the
loop and keeps the heartbeat while that computes; and the leash, which waits for the end of stdin
(SEMANTICS §10). A server whose stdin has ended leaves, within two seconds even if a user's function
keeps its loop busy; so does one whose coordinator is gone, since nothing can reach its tables then.

Listeners: ``ipc://<directory>/s<id>``, whose directory only this user can enter, is trusted. TCP on
127.0.0.1 opens on request and is not: it refuses pickled functions.

Not here: any decision (:mod:`sparkps.server.core`).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
from typing import Any, Final

import msgspec

from sparkps import _log
from sparkps._malloc import keep_freed_memory
from sparkps.config import Settings
from sparkps.net.control import ControlLink
from sparkps.net.endpoint import ipc
from sparkps.net.faults import delayed
from sparkps.net.loop import Loop
from sparkps.net.serve import Router
from sparkps.net.sockets import new_context
from sparkps.server.core import ServerCore
from sparkps.server.snapshots import Snapshots
from sparkps.spec import ServerInfo
from sparkps.wire import userfn
from sparkps.wire.effects import Buffer, Effect, Exit, Log, Send, TakeSnapshot, ToCoordinator
from sparkps.wire.messages import VERSION, Message, ServerUp

#: Seconds that the loop has to end after the leash was let go; a user's function may keep it.
_PATIENCE: Final = 2.0
#: Exit status when the coordinator is gone.
_ORPHAN: Final = 3

log = _log.get("server")


class Start(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of stdin, as JSON.

    Attributes
    ----------
    server, incarnation
        Who this is.
    coordinator
        Endpoint of the coordinator.
    directory
        Where the ipc socket goes.
    memory
        Bytes that may be used.
    tcp
        Listen on 127.0.0.1 as well.
    log
        Path of the log file; empty for stderr.
    settings
        What differs from the defaults.
    """

    server: int
    incarnation: int
    coordinator: str
    directory: str
    memory: int
    tcp: bool = False
    log: str = ""
    settings: dict[str, Any] = {}


class Shell:
    """One running server.

    Parameters
    ----------
    start
        Its first line.
    """

    def __init__(self, start: Start) -> None:
        settings = Settings.from_dict(start.settings)
        self._core = ServerCore(
            start.server,
            start.incarnation,
            limit=start.memory,
            max_bytes=settings.message_max_bytes,
            keysets_max_bytes=settings.keysets_max_bytes,
            loads=userfn.loads,
        )
        self._loop = Loop()
        self._snapshots = Snapshots(self._core, self._loop, self._carry_out)
        self._status = 0
        self._load: dict[str, float] = {}
        self._context = new_context()
        self._routers = [Router(self._context, [ipc(start.directory, f"s{start.server}")])]
        if start.tcp or settings.tcp:
            self._routers.append(Router(self._context, ["tcp://127.0.0.1:0"]))
        for number, router in enumerate(self._routers):
            self._serve(router, number == 0, settings, start.server)
        info = ServerInfo(
            start.server,
            start.incarnation,
            self._routers[0].endpoints[0],
            self._routers[1].endpoints[0] if len(self._routers) > 1 else "",
            os.getpid(),
            socket.gethostname(),
            start.log,
        )
        self._link = ControlLink(
            start.coordinator,
            ServerUp(VERSION, info),
            self._on_command,
            self._on_lost,
            load=self._figures,
        )
        self._carry_out(self._core.command(self._link.joined, self._loop.now))
        log.info("server %d is up at %s %s", info.id, info.data, info.tcp)

    def run(self) -> int:
        """Serve until told to leave; return the exit status."""
        threading.Thread(target=self._hold_leash, name="leash", daemon=True).start()
        self._loop.run()
        self._link.close()
        for router in self._routers:
            router.close()
        self._context.term()
        return self._status

    def _serve(self, router: Router, trusted: bool, settings: Settings, server: int) -> None:
        received, send, carry_out = self._core.received, router.send, self._carry_out

        def on_message(peer: bytes, frames: list[Buffer], now: float) -> None:
            # A peer of the core is unique over the routers.
            for effect in received((trusted, peer), trusted, frames, now):
                if type(effect) is Send:
                    send(peer, effect.frames)
                else:
                    carry_out([effect])

        def on_gone(peer: bytes, now: float) -> None:
            self._core.disconnected((trusted, peer))

        message, gone = delayed(
            self._loop,
            on_message,
            on_gone,
            delay_ms=settings.faults_delay_ms,
            seed=settings.faults_seed + server,
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

    def _leave(self, status: int, reason: str) -> None:
        log.log(logging.ERROR if status else logging.INFO, "leaving: %s", reason)
        self._status = status
        self._loop.stop()

    # --- in the link's thread

    def _on_command(self, message: Message) -> None:
        self._loop.post(lambda: self._carry_out(self._core.command(message, self._loop.now)))

    def _on_lost(self, reason: str) -> None:
        self._loop.post(lambda: self._leave(_ORPHAN, f"the coordinator is gone: {reason}"))

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
        threading.Event().wait(_PATIENCE)
        os._exit(1)


def main() -> int:
    """Read the first line of stdin, serve, return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = _first_line()
    if not line:
        return 0
    start = msgspec.json.decode(line, type=Start)
    _log.to_file(start.log)
    keep_freed_memory()
    try:
        shell = Shell(start)
        gc.collect()
        gc.freeze()
        return shell.run()
    except Exception:
        log.exception("server %d ends", start.server)
        return 1


def _first_line() -> bytes:
    """Read stdin byte by byte up to a newline, so that nothing after it is swallowed."""
    line = bytearray()
    while (byte := os.read(0, 1)) and byte != b"\n":
        line += byte
    return bytes(line)
