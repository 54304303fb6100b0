"""The coordinator's shell: sockets, time, stdin and the log around
:class:`~sparkps.coordinator.core.CoordinatorCore`.

It listens on a local socket, whose directory only this user can enter, and on request by tcp, where
CURVE lets in who holds the application's key. It ticks its core, does what the core says, and
leaves when its parent does: then it also removes the directory of the sockets, which nobody else is
left to do (a launcher that lives removes its own). It tells its parent on stdout where it listens,
when there is a view, and on request once a second how things stand.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from sparkps import _log
from sparkps._machine import raise_descriptors
from sparkps._parent import Lines, Parent
from sparkps.config import Settings, port_range
from sparkps.coordinator.core import TICK, CoordinatorCore
from sparkps.coordinator.leash import FirstLine, Line
from sparkps.errors import LaunchFailed, MalformedRequest, PSError
from sparkps.net.curve import Curve
from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.net.endpoint import ipc, tcp
from sparkps.net.faults import delayed
from sparkps.net.gate import Gate
from sparkps.net.hosts import advertised, listening
from sparkps.net.loop import Loop
from sparkps.net.serve import Router
from sparkps.net.sockets import new_context
from sparkps.wire.auth import Secret
from sparkps.wire.effects import Buffer, Cut, Effect, Exit, Log, Tell
from sparkps.wire.frames import decode_control, encode_control
from sparkps.wire.messages import ServerExited

_logger: Final = _log.get("coordinator")

#: Seconds between two lines of figures.
_FIGURES: Final = 1.0


class Shell:
    """One coordinator process; :meth:`run` returns its exit status.

    Parameters
    ----------
    first
        What it was started with.
    lines
        The rest of stdin.
    parent
        Is told what happens.
    """

    def __init__(self, first: FirstLine, lines: Lines, parent: Parent) -> None:
        settings = Settings.load(first.conf)
        self._first = first
        self._directory = first.directory or runtime_directory()
        self._lines = lines
        self._parent = parent
        self._status = 0
        self._terminated = False
        self._core = CoordinatorCore(settings, servers=first.servers, on_view=self._servers_are_up)
        self._context = new_context()
        self._loop = Loop()
        self._gate: Gate | None = None
        self._routers = [Router(self._context, [ipc(self._directory, "c")])]
        addresses = list(self._routers[0].endpoints)
        if first.host:
            addresses.append(self._listen(settings, first))
        self._addresses = ",".join(addresses)
        self._timer = self._loop.timer(self._tick)
        for number, router in enumerate(self._routers):
            on_message, on_gone = delayed(
                self._loop,
                partial(self._received, number),
                partial(self._gone, number),
                delay_ms=settings.faults_delay_ms,
                seed=settings.faults_seed,
            )
            self._loop.serve(router, on_message, on_gone)
        self._loop.watch(lines.fd, self._read_lines)
        self._figures = self._loop.timer(self._tell_figures)
        self._requests = (0.0, 0.0)
        if first.figures:
            self._figures.set(self._loop.now)

    def run(self) -> int:
        """Serve until the parent is gone or wants it."""
        # The parent's death comes as SIGTERM too, should somebody else hold its end of stdin: once
        # for every thread that the parent had, since the kernel hands us from one to the next.
        signal.signal(signal.SIGTERM, self._noted)
        self._tick(self._loop.now)
        self._parent.tell("listening", self._addresses)
        try:
            self._loop.run()
        finally:
            for router in self._routers:
                router.close()
            if self._gate is not None:
                self._gate.close()
            self._loop.close()
            self._context.term()
            if not self._first.directory:
                remove_directory(self._directory)
        return self._status

    def _listen(self, settings: Settings, first: FirstLine) -> str:
        """Listen by tcp; return the address to tell."""
        host, told = listening(settings, first.host, first.bind)
        curve = None
        if settings.security != "none":
            curve = Curve(Secret(first.secret))
            self._gate = Gate(self._context, self._loop, curve)
        router = Router(
            self._context, [tcp(host, 0)], ports=port_range(settings.ports), curve=curve
        )
        self._routers.append(router)
        return advertised(router.endpoints[0], told)

    # -- events ------------------------------------------------------------------------------------

    def _received(self, router: int, peer: bytes, frames: list[Buffer], now: float) -> None:
        try:
            message = decode_control(frames[0])
        except MalformedRequest as error:
            self._do(self._core.malformed((router, peer), error, now))
            return
        self._do(self._core.received((router, peer), message, now))

    def _gone(self, router: int, peer: bytes, now: float) -> None:
        self._do(self._core.disconnected((router, peer), now))

    def _noted(self, *_: object) -> None:
        """A signal came. It may have interrupted anything in this thread, another signal's handler
        too, so this takes no lock and wakes nobody: the next tick looks.
        """
        self._terminated = True

    def _tick(self, now: float) -> None:
        if self._terminated:
            self._orphaned()
            return
        self._do(self._core.tick(now))
        self._timer.set(now + TICK)

    def _tell_figures(self, now: float) -> None:
        figures = self._core.figures()
        requests, since = self._requests
        self._requests = (figures["requests"], now)
        rate = max(0.0, figures.pop("requests") - requests) / (now - since) if since else 0.0
        figures["requests_per_second"] = round(rate)
        self._parent.tell("figures", " ".join(f"{k}={v:.0f}" for k, v in figures.items()))
        self._figures.set(now + _FIGURES)

    def _read_lines(self) -> None:
        for text in self._lines.read():
            line = msgspec.json.decode(text, type=Line)
            if line.exited is not None:
                self._do(self._core.exited(ServerExited(*line.exited), self._loop.now))
            if line.failed is not None:
                what, reason, log, tail = line.failed
                error = LaunchFailed(what=what, reason=reason, log=log, tail=tail)
                self._do(self._core.failed(error, self._loop.now))
            if line.shutdown:
                self._do(self._core.shutdown(self._loop.now))
        if self._lines.ended:
            self._loop.unwatch(self._lines.fd)
            self._orphaned()

    def _orphaned(self) -> None:
        _logger.info("the parent is gone")
        # At once: whoever looks for us finds nothing, however long the loop's last round takes.
        remove_directory(self._directory)
        self._loop.stop()

    def _servers_are_up(self, servers: int) -> None:
        self._parent.tell("ready", servers)

    # -- effects -----------------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Tell(peer, message):
                    # A peer that is gone is told so by the router itself.
                    router, identity = peer
                    self._routers[router].send(identity, [encode_control(message)])
                case Cut(peer):
                    router, identity = peer
                    self._routers[router].cut(identity)
                case Log(level, text):
                    _logger.log(level, "%s", text)
                case Exit(status, reason):
                    _logger.info("leaving: %s", reason)
                    self._status = status
                    self._loop.stop()


def main() -> int:
    """Run as a child: the first line of stdin says what to do."""
    lines = Lines(0)
    line = lines.first()
    if not line:
        return 0
    raise_descriptors()
    first = msgspec.json.decode(line, type=FirstLine)
    parent = Parent()
    _log.to_file(first.log)
    try:
        return Shell(first, lines, parent).run()
    except PSError as error:
        _logger.error("%s", error)
        parent.tell("failed", error)
        return 1
    except Exception as error:
        _logger.exception("the coordinator fails")
        parent.tell("failed", f"{type(error).__name__}: {error}")
        return 1
    finally:
        logging.shutdown()
