"""The coordinator's shell: sockets, time, stdin and the log around
:class:`~sparkps.coordinator.core.CoordinatorCore`.

It listens on one control endpoint, ticks its core, does what the core says, and leaves when its
parent does: then it also removes the directory of the sockets, which nobody else is left to do. It
tells its parent on stdout when it listens and when all servers have come, and nothing after that.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterable
from typing import Final

import msgspec

from sparkps import _log
from sparkps.config import Settings
from sparkps.coordinator.core import TICK, CoordinatorCore
from sparkps.coordinator.leash import FirstLine, Line, Lines, Report
from sparkps.errors import MalformedRequest
from sparkps.net.directory import remove_directory
from sparkps.net.faults import delayed
from sparkps.net.loop import Loop
from sparkps.net.serve import Router
from sparkps.net.sockets import new_context
from sparkps.wire.effects import Buffer, Effect, Exit, Log, Tell
from sparkps.wire.frames import decode_control, encode_control
from sparkps.wire.messages import Denied, ServerExited

_logger: Final = _log.get("coordinator")


class Shell:
    """One coordinator process; :meth:`run` returns its exit status.

    Parameters
    ----------
    first
        What it was started with.
    lines
        The rest of stdin.
    report
        Descriptor for :class:`Report` lines; it is closed after the last.
    """

    def __init__(self, first: FirstLine, lines: Lines, report: int) -> None:
        settings = Settings.from_dict(first.settings)
        self._first = first
        self._lines = lines
        self._report = report
        self._status = 0
        self._terminated = False
        self._core = CoordinatorCore(settings, servers=first.servers, on_view=self._servers_are_up)
        self._context = new_context()
        self._router = Router(self._context, [first.endpoint])
        self._loop = Loop()
        self._timer = self._loop.timer(self._tick)
        on_message, on_gone = delayed(
            self._loop,
            self._received,
            self._gone,
            delay_ms=settings.faults_delay_ms,
            seed=settings.faults_seed,
        )
        self._loop.serve(self._router, on_message, on_gone)
        self._loop.watch(lines.fd, self._parent)

    def run(self) -> int:
        """Serve until the parent is gone or wants it."""
        # The parent's death comes as SIGTERM too, should somebody else hold its end of stdin: once
        # for every thread that the parent had, since the kernel hands us from one to the next.
        signal.signal(signal.SIGTERM, self._noted)
        self._tick(self._loop.now)
        self._tell_parent(Report(endpoint=self._router.endpoints[0]))
        try:
            self._loop.run()
        finally:
            self._router.close()
            self._loop.close()
            self._context.term()
        return self._status

    # -- events ------------------------------------------------------------------------------------

    def _received(self, peer: bytes, frames: list[Buffer], now: float) -> None:
        try:
            message = decode_control(frames[0])
        except MalformedRequest as error:
            _logger.warning("%s", error)
            self._router.send(peer, [encode_control(Denied(0, *error.to_wire()))])
            return
        self._do(self._core.received(peer, message, now))

    def _gone(self, peer: bytes, now: float) -> None:
        self._do(self._core.disconnected(peer, now))

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

    def _parent(self) -> None:
        for text in self._lines.read():
            line = msgspec.json.decode(text, type=Line)
            if line.exited is not None:
                self._do(self._core.exited(ServerExited(*line.exited), self._loop.now))
            if line.shutdown:
                self._do(self._core.shutdown(self._loop.now))
        if self._lines.ended:
            self._loop.unwatch(self._lines.fd)
            self._orphaned()

    def _orphaned(self) -> None:
        _logger.info("the parent is gone")
        remove_directory(self._first.directory)
        self._loop.stop()

    def _servers_are_up(self, servers: int) -> None:
        self._tell_parent(Report(servers=servers))
        os.close(self._report)
        self._report = -1

    def _tell_parent(self, report: Report) -> None:
        if self._report >= 0:
            os.write(self._report, msgspec.json.encode(report) + b"\n")

    # -- effects -----------------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Tell(peer, message):
                    # A peer that is gone is told so by the router itself.
                    self._router.send(peer, [encode_control(message)])
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
    first = msgspec.json.decode(line, type=FirstLine)
    report = os.dup(1)
    _log.to_file(first.log)
    try:
        return Shell(first, lines, report).run()
    except Exception:
        _logger.exception("the coordinator fails")
        raise
    finally:
        logging.shutdown()
