"""The snapshot child: a fork of the server that writes the partitions of a table to files.

The fork is the snapshot: its memory is the table as of that moment, while the server goes on. Rules
(SEMANTICS §9):

* The child at once asks to die with its parent and checks that this is its parent still; then it
  closes every descriptor but its result pipe. An inherited socket would hide the server's death
  from its peers for as long as the child lives.
* It touches no zmq object, imports pyarrow itself (the server never has), starts no thread, and
  leaves by ``os._exit``, so that nothing of the parent is cleaned up twice.
* Pages that change while it writes are copied. Where the memory limit leaves no room for that, the
  server waits for the child before it goes on.

Not here: the format of the files (:mod:`sparkps.store.snapshot`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any, Final

import msgspec

from sparkps import _log
from sparkps.errors import PSError, SnapshotFailed
from sparkps.net.loop import Loop
from sparkps.server.core import ServerCore
from sparkps.store.snapshot import save_partition
from sparkps.wire import userfn
from sparkps.wire.effects import Effect, TakeSnapshot

#: ``prctl(PR_SET_PDEATHSIG, ...)``, of <sys/prctl.h>.
_PR_SET_PDEATHSIG: Final = 1
_CHUNK: Final = 1 << 16

_log_ = _log.get("server")


class Snapshots:
    """Starts children and reports what became of them.

    Parameters
    ----------
    core
        Whose tables are written, and who is told.
    loop
        Watches the children's results.
    carry_out
        Takes the effects that follow.
    """

    def __init__(
        self, core: ServerCore, loop: Loop, carry_out: Callable[[list[Effect]], None]
    ) -> None:
        self._core = core
        self._loop = loop
        self._carry_out = carry_out
        self._prctl = ctypes.CDLL(None).prctl

    def take(self, effect: TakeSnapshot) -> None:
        """Fork the child for a snapshot."""
        waits = not self._core.may_fork(effect.table)
        parent = os.getpid()
        ends: tuple[int, ...] = ()
        try:
            ends = result, answer = os.pipe()
            child = os.fork()
        except OSError as error:  # no descriptor, no memory: no reason to lose the tables
            for end in ends:
                os.close(end)
            name, reason = self._core.table_name(effect.table), f"no child: {error.strerror}"
            failed = SnapshotFailed(table=name, path=effect.path, reason=reason)
            self._carry_out(self._core.snapshot_done(effect.op, failed))
            return
        if child == 0:
            self._write(effect, parent, answer)
        os.close(answer)
        _log_.info("snapshot %d of table %d: child %d", effect.op, effect.table, child)
        pieces: list[bytes] = []

        def more() -> bool:
            piece = os.read(result, _CHUNK)
            pieces.append(piece)
            if piece:
                return True
            self._loop.unwatch(result)
            os.close(result)
            _, status = os.waitpid(child, 0)
            self._done(effect, b"".join(pieces), status)
            return False

        if waits:
            _log_.warning("no memory for a copy: everything waits for snapshot %d", effect.op)
            while more():
                pass
        else:
            self._loop.watch(result, more)

    def _done(self, effect: TakeSnapshot, answer: bytes, status: int) -> None:
        result: list[dict[str, Any]] | PSError
        try:
            entries, reason = msgspec.msgpack.decode(answer, type=tuple[list[dict[str, Any]], str])
        except msgspec.DecodeError:
            code = os.waitstatus_to_exitcode(status)
            entries, reason = [], f"its child ended with status {code}; see this server's log"
        if reason:
            name = self._core.table_name(effect.table)
            result = SnapshotFailed(table=name, path=effect.path, reason=reason)
        else:
            result = entries
        self._carry_out(self._core.snapshot_done(effect.op, result))

    def _write(self, effect: TakeSnapshot, parent: int, answer: int) -> None:
        """What the child does; it never returns."""
        status = 1
        try:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                _close_all_but(answer)
                data = msgspec.msgpack.encode(self._entries(effect))
                while data:
                    data = data[os.write(answer, data) :]
                status = 0
        finally:
            os._exit(status)

    def _entries(self, effect: TakeSnapshot) -> tuple[list[dict[str, Any]], str]:
        """The entries of all partitions, or why there are none."""
        core = self._core
        table = core.table(effect.table)
        try:
            entries = [
                save_partition(effect.path, table, p, core.ledgers(effect.table, p))
                for p in table.array.open_partitions().tolist()
            ]
        except OSError as error:
            return [], f"{error.strerror or error}"
        except Exception as error:  # noqa: BLE001 - the parent must hear of it, whatever it is
            return [], userfn.describe(error)
        return entries, ""


def _close_all_but(keep: int) -> None:
    """Close every descriptor but one; the standard ones lead nowhere from now on."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
