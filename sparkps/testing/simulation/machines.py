"""The coordinator and the servers on the in-memory network: shells around the shipped cores.

Beyond what a shell does, a server here may not serve one slice of a write, or a read, for the
moment (as one that is behind in views does), its answers suffer what :mod:`.faults` has, and its
ledgers and tables are looked at after every event.

Control messages are encoded and decoded as on the wire, so that nobody shares memory.
"""

from __future__ import annotations

import logging
from random import Random
from typing import Any, Final

import numpy as np

from sparkps.config import Settings
from sparkps.consistency.clocks import NEVER
from sparkps.coordinator.core import TICK, CoordinatorCore
from sparkps.net.loopback import End, Network
from sparkps.server.core import Door, ServerCore
from sparkps.spec import ServerInfo
from sparkps.testing.simulation.faults import Faults
from sparkps.testing.simulation.history import History
from sparkps.testing.simulation.plan import Plan
from sparkps.wire import userfn
from sparkps.wire.effects import Buffer, Effect, Exit, Log, Send, Tell, ToCoordinator
from sparkps.wire.frames import (
    as_array,
    decode_control,
    decode_from_server,
    decode_to_server,
    encode,
    encode_control,
)
from sparkps.wire.messages import (
    DUPLICATE,
    GAP,
    KEYSET,
    NOT_MINE,
    REFUSED,
    VERSION,
    Acked,
    Beat,
    Function,
    NotMine,
    Pull,
    Push,
    Refused,
    RemoveSession,
    ServerExited,
    ServerUp,
    SetToken,
)

COORDINATOR: Final = "coordinator"
#: Short times, so that silence and stalls happen within a second.
SETTINGS: Final = Settings.load(
    None, heartbeat=0.1, dead=0.4, request_timeout=10, gang_timeout=60, message_max_bytes=2**16
)
#: Statuses that are counted, by their names.
_STATUSES: Final = ((DUPLICATE, "duplicates"), (GAP, "gaps"), (REFUSED, "refused slices"))
#: Bytes of a chunk of a scan: several chunks for each of these tables.
_CHUNK: Final = 400


def server_name(server: int) -> str:
    """The node of a server."""
    return f"server{server}"


class CoordinatorMachine:
    """The coordinator."""

    def __init__(self, network: Network, plan: Plan, history: History) -> None:
        self._network = network
        self._history = history
        self.core = CoordinatorCore(
            SETTINGS, servers=plan.servers, random=Random(f"sessions {plan.seed}")
        )
        network.node(COORDINATOR, self._received, self._closed)
        self._tick()

    def exited(self, server: int) -> None:
        """The launcher has seen a server end."""
        message = ServerExited(server, 1, "killed by signal 9")
        self._do(self.core.exited(message, self._network.now))

    def _received(self, end: End, payload: Any) -> None:
        self._do(self.core.received(end, decode_control(payload), self._network.now))

    def _closed(self, end: End) -> None:
        self._do(self.core.disconnected(end, self._network.now))

    def _tick(self) -> None:
        self._do(self.core.tick(self._network.now))
        self._network.call_at(self._network.now + TICK, self._tick, COORDINATOR)

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                self._history.told(effect.message)
                effect.peer.send(encode_control(effect.message))


class ServerMachine:
    """A server.

    Attributes
    ----------
    core : ServerCore
        As shipped.
    """

    def __init__(self, network: Network, plan: Plan, history: History, server: int) -> None:
        self.server = server
        self._network, self._plan, self._history = network, plan, history
        self.core = ServerCore(
            server,
            1,
            limit=plan.memory,
            max_bytes=_CHUNK,
            keysets_max_bytes=plan.keysets,
            loads=userfn.loads,
        )
        self._ledgers: dict[tuple[int, int, int], bytes] = {}
        self._closed_sessions: set[int] = set()
        #: The token of each (session, rank), and whether any was ever replaced.
        self._tokens: dict[tuple[int, int], int] = {}
        self._replaced = False
        self._content: bytes | None = None
        self.faults = Faults(network, plan, history)
        name = server_name(server)
        network.node(name, self._received, self._closed)
        self._control = network.connect(name, COORDINATOR)
        info = ServerInfo(server, 1, f"ipc:///{name}", log=f"/{name}.log")
        self._control.send(encode_control(ServerUp(VERSION, info)))
        self._beat()

    def _beat(self) -> None:
        self._control.send(encode_control(Beat(self.core.load())))
        next_beat = self._network.now + SETTINGS.heartbeat
        self._network.call_at(next_beat, self._beat, server_name(self.server))

    def _closed(self, end: End) -> None:
        self.core.disconnected(end)

    def _received(self, end: End, payload: Any) -> None:
        now = self._network.now
        if end is not self._control:
            answers = self._answer(end, payload)
            for each in answers:
                self._count(each)
                self.faults.send(end, each, stream=len(answers) > 1)
        else:
            message = decode_control(payload)
            self._history.note("server {}: {}", self.server, message)
            for effect in self._checked(self.core.command(message, now)):
                if isinstance(effect, ToCoordinator):
                    self._control.send(encode_control(effect.message))
                elif isinstance(effect, Exit):
                    self._control.close()
            for hosted in self.core.state.tables.values():
                hosted.rows_per_slice = self._plan.slice_rows
            if isinstance(message, SetToken):
                holder = (message.session, message.rank)
                self._replaced = self._replaced or holder in self._tokens
                self._tokens[holder] = message.token
            elif isinstance(message, RemoveSession):
                self._closed_sessions.add(message.session)
                self._content = self.content()
        self._check_ledgers()

    # --- not serving something for the moment

    def _answer(self, end: End, frames: Any) -> list[list[Buffer]]:
        if self.faults.happens(self._plan.refuse):
            message, buffers = decode_to_server(frames)
            if isinstance(message, Pull):
                return [encode(NotMine(message.id, self.core.state.view.number))]
            if isinstance(message, Push) and message.mode != KEYSET and len(buffers[0]):
                return self._all_but_one(end, message, buffers)
        return self._ask(end, frames)

    def _ask(self, end: End, frames: Any) -> list[list[Buffer]]:
        effects = self._checked(self.core.received(end, Door.OPEN, frames, self._network.now))
        answers = [effect.frames for effect in effects if isinstance(effect, Send)]
        if self._replaced or self._closed_sessions:
            self._check_served(frames, answers)
        return answers

    def _checked(self, effects: list[Effect]) -> list[Effect]:
        """The core has caught nothing that it does not know."""
        for effect in effects:
            if isinstance(effect, Log) and effect.level >= logging.ERROR:
                raise self._history.fail("crash", f"server {self.server}: {effect}")
        return effects

    def _check_served(self, frames: Any, answers: list[list[Buffer]]) -> None:
        """Only the holder of a rank of an open session is answered other than by a refusal."""
        message, _ = decode_to_server(frames)
        if not isinstance(message, (Pull, Push, Function)) or not message.session:
            return
        answer, _ = decode_from_server([bytes(answers[0][0]), *answers[0][1:]])
        served = not isinstance(answer, Refused)
        if message.session in self._closed_sessions:
            what = f"{message} is served; the session is closed"
            self._history.require(not served, "session", what)
            self._history.counts["refused after the end"] += 1
            return
        token = self.token(message.session, message.rank)
        good = not served or message.token == token
        what = f"{message} is served; the rank has token {token}"
        self._history.require(good, "token", what)
        self._history.counts["zombies refused"] += message.token != token

    def _all_but_one(self, end: End, push: Push, buffers: Any) -> list[list[Buffer]]:
        """Keep one slice of a write from the core, and answer *not mine* for it."""
        self._history.counts["slices not served"] += 1
        slices = as_array(buffers[0], np.int64, 6)
        keep = np.ones(len(slices), np.bool_)
        keep[self._network.random.randrange(len(slices))] = False
        statuses = np.full(len(slices), NOT_MINE, np.uint8)
        code, fields = "", {}
        if keep.any():
            rows = np.repeat(keep, slices[:, 2])
            row = len(buffers[2]) // len(rows)
            name = len(buffers[1]) // len(rows)
            names = np.frombuffer(buffers[1], np.uint8).reshape(-1, name)[rows]
            values = np.frombuffer(buffers[2], np.uint8).reshape(-1, row)[rows]
            rest = [bytes(frame) for frame in encode(push, slices[keep], names, values)]
            (frames,) = self._ask(end, rest)
            message, answered = decode_from_server([bytes(frame) for frame in frames])
            if not isinstance(message, Acked):
                return [frames]
            code, fields = message.code, message.fields
            statuses[keep] = as_array(answered[0], np.uint8) if answered else 0
        return [encode(Acked(push.id, code, fields), statuses)]

    def _count(self, frames: list[Buffer]) -> None:
        statuses = frames[-1]
        if isinstance(statuses, np.ndarray) and statuses.dtype == np.uint8:
            for status, what in _STATUSES:
                self._history.counts[what] += int((statuses == status).sum())

    # --- invariants

    def content(self) -> bytes:
        """Everything that is in the tables, to be compared."""
        return b"".join(
            array.tobytes()
            for _, hosted in sorted(self.core.state.tables.items())
            for partition in hosted.table.array.open_partitions().tolist()
            for array in hosted.table.arrays(partition).values()
        )

    def token(self, session: int, rank: int) -> int:
        """The token that is accepted here, 0 if none."""
        return self._tokens.get((session, rank), 0)

    def _check_ledgers(self) -> None:
        """No position goes back, and nothing is applied that was not accepted, and sealed."""
        known = self._ledgers
        changed = False
        for table, hosted in self.core.state.tables.items():
            for (session, rank), ledger in hosted.ledgers.items():
                key = (table, session, rank)
                now = ledger.array.tobytes()
                before = known.get(key)
                if now == before:
                    continue
                self._history.require(
                    session not in self._closed_sessions,
                    "session",
                    f"server {self.server} has a ledger of session {session}, which is closed",
                )
                known[key] = now
                changed = True
                rows = ledger.array.tolist()
                staged = hosted.staged.get(session) if rank < self._plan.size else None
                sealed = NEVER if staged is None else staged.sealed
                old = np.frombuffer(before, np.int64).reshape(-1, 8).tolist() if before else rows
                for partition, (row, last) in enumerate(zip(rows, old, strict=True)):
                    good = row[:2] >= last[:2] and row[3:5] >= last[3:5] and row[2] >= last[2]
                    if not good or row[:2] < row[3:5] or row[3] >= sealed:
                        raise self._history.fail(
                            "ledger",
                            f"the ledger of rank {rank}, partition {partition} on server "
                            f"{self.server} goes from {last} to {row}",
                        )
        if changed:
            self._check_markers()

    def _check_markers(self) -> None:
        """What is in the table was applied once."""
        for hosted in self.core.state.tables.values():
            table = hosted.table
            if table.spec.name != "counts":
                continue
            for partition in table.array.open_partitions().tolist():
                keys, values = np.array(table.keys(partition)), table.field(partition, 0)
                wrong = keys[(keys >= 0) & (values != 1)].tolist()
                if wrong:
                    writes = sorted({self._history.write_of(key) for key in wrong})
                    what = f"server {self.server}, partition {partition} has not once: {writes}"
                    raise self._history.fail("once", what)

    def check_end(self) -> None:
        """Nothing of the run is left, and nothing was changed after its end."""
        self.check_closed()
        state, name = self.core.state, f"server {self.server}"
        require = self._history.require
        for table, hosted in state.tables.items():
            left = (hosted.ledgers, hosted.staged, hosted.refs, hosted.owner)
            require(not any(left), "session", f"{name}, table {table}: {left} is left")
        require(state.budget.taken == 0, "session", f"{name}: {state.budget.taken} bytes taken")
        same = self._content is None or self._content == self.content()
        require(same, "session", f"{name} has changed its tables after the end of the session")

    def check_closed(self) -> None:
        """No session is open."""
        count = len(self.core.state.sessions)
        self._history.require(not count, "session", f"server {self.server} has {count} sessions")
