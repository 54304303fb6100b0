"""The server's core: messages in, effects out; no socket, thread, clock or file.

Rules:

* A data message is answered, once (a scan by several chunks), whatever is in it. What breaks the
  protocol gets a typed error and changes nothing; the server lives on.
* The first message of a connection is Hello; everything else is refused then, and so is, on a
  listener that asks for tickets, a Hello without a good one. A refused first message ends the
  connection: who is not known gets one answer, or its answers would pile up.
* Commands of the coordinator are carried out in the order in which they come, each answered by one
  Done with its number, when it is done: a token is refused, or a session closed, from then on. A
  command that comes again finds its work done and says so.

Parts: what the server knows is in :mod:`.state`; a table and all that hangs on it in
:mod:`.hosted`; reads, writes and functions in modules of these names; the seal in :mod:`.staging`.
Not here: forking the child that writes snapshots (the shell does what TakeSnapshot says).
"""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sparkps.errors import (
    FunctionFailed,
    MalformedRequest,
    NotAdmitted,
    PSError,
    SnapshotFailed,
    VersionMismatch,
)
from sparkps.routing.partitioner import owners_of
from sparkps.server import calls, reads, writes
from sparkps.server.hosted import Hosted
from sparkps.server.refs import Unknown
from sparkps.server.state import DOOR_ERRORS, TRACEBACK, USERS, NotHere, State
from sparkps.spec import TableInfo, View
from sparkps.store import Table, make_table
from sparkps.wire.auth import Admission
from sparkps.wire.effects import Buffer, Cut, Effect, Exit, Log, Send, TakeSnapshot, ToCoordinator
from sparkps.wire.frames import decode_to_server, encode
from sparkps.wire.messages import (
    VERSION,
    Acked,
    AddSession,
    AddTable,
    Done,
    Function,
    Hello,
    Joined,
    Leave,
    MakeKeyset,
    Message,
    NotMine,
    Ping,
    Pull,
    Push,
    Refused,
    Register,
    RemoveSession,
    RemoveTable,
    Scan,
    Seal,
    SetToken,
    SetView,
    Snapshot,
    UnknownRef,
    Welcome,
)

#: Longest name of a peer in an error.
_PEER: Final = "the client"


class Door(enum.Enum):
    """A listener: whom it lets in, and what they may do.

    OPEN lets nobody in but this application's processes (a private directory, CURVE, or no security
    at all): they may send functions. TICKET asks for a ticket and takes no functions, since what
    follows the ticket could be somebody else's.
    """

    OPEN = "open"
    TICKET = "ticket"

    @property
    def trusted(self) -> bool:
        """Whether what comes by it may be unpickled."""
        return self is Door.OPEN


class ServerCore:
    """One server's decisions.

    Parameters
    ----------
    server, incarnation
        Who this is.
    limit
        Bytes of memory that tables, staged writes, vocabularies and keysets may take.
    max_bytes
        Size of a message, about: scans are cut at it.
    keysets_max_bytes
        Bytes of vocabularies and keysets per (table, session).
    loads
        Unpickles what trusted peers have sent.
    admission
        Checks the tickets of the listener that asks for them; None where there is none.
    """

    def __init__(
        self,
        server: int,
        incarnation: int,
        *,
        limit: int,
        max_bytes: int,
        keysets_max_bytes: int,
        loads: Callable[[Any], Any],
        admission: Admission | None = None,
    ) -> None:
        self.state = State(
            server,
            incarnation,
            limit=limit,
            max_bytes=max_bytes,
            keysets_max_bytes=keysets_max_bytes,
            loads=loads,
        )
        self._admission = admission
        self._ahead = 0.0
        self._peers: set[Any] = set()
        self._snapshots: dict[int, Snapshot] = {}
        self._requests = 0
        self._commands: dict[type[Message], Callable[[Any], Any]] = {
            SetView: lambda m: self._set_view(m.view),
            AddTable: lambda m: self._add_table(m.info),
            RemoveTable: lambda m: self._remove_table(m.table),
            AddSession: lambda m: self.state.sessions.open(m.spec),
            RemoveSession: lambda m: self._remove_session(m.session),
            SetToken: lambda m: self.state.sessions.set_token(m.session, m.rank, m.token),
            Seal: lambda m: self._seal(m.session, m.clock),
        }

    # --- data connections -----------------------------------------------------------------------

    def received(self, peer: Any, door: Door, frames: Sequence[Buffer], now: float) -> list[Effect]:
        """Answer a message of a data connection.

        Parameters
        ----------
        peer
            Whom to answer; hashable, one per connection.
        door
            Which listener it came by.
        frames
            Header and buffers.
        now
            Seconds, of any clock that does not jump.
        """
        effects = self._answers(peer, door, frames, now)
        if peer not in self._peers:
            effects.append(Cut(peer))
        return effects

    def _answers(self, peer: Any, door: Door, frames: Sequence[Buffer], now: float) -> list[Effect]:
        self._requests += 1
        message: Any
        try:
            message, buffers = decode_to_server(frames)
        except PSError as error:
            return [Send(peer, _refused(0, error))]
        kind = type(message)
        try:
            if peer not in self._peers and kind is not Hello:
                raise MalformedRequest(reason=f"{kind.__name__} before Hello")
            if kind is Pull:
                return [Send(peer, reads.pull(self.state, peer, message, buffers))]
            if kind is Push:
                return [Send(peer, writes.push(self.state, message, buffers))]
            return self._rare(peer, door, message, buffers, now)
        except Unknown:
            return [Send(peer, encode(UnknownRef(message.id, message.ref)))]
        except NotHere:
            return [Send(peer, encode(NotMine(message.id, self.state.view.number)))]
        except PSError as error:
            return [Send(peer, _refused(getattr(message, "id", 0), error))]
        except DOOR_ERRORS as error:
            reason = MalformedRequest(reason=str(error))
            return [Send(peer, _refused(getattr(message, "id", 0), reason))]
        except Exception as error:  # noqa: BLE001 - one request must not end the others
            text = "".join(traceback.format_exception(error))
            reason = MalformedRequest(reason=f"{type(error).__name__}: {error}")
            return [
                Log(logging.ERROR, f"{kind.__name__} failed:\n{text}"),
                Send(peer, _refused(getattr(message, "id", 0), reason)),
            ]

    def disconnected(self, peer: Any) -> None:
        """A connection ended; what hangs on it is dropped."""
        if peer in self._peers:
            self._peers.discard(peer)
            for hosted in self.state.tables.values():
                refs = hosted.refs.pop(peer, None)
                if refs is not None:
                    refs.drop()

    def _rare(
        self, peer: Any, door: Door, message: Any, buffers: Sequence[Buffer], now: float
    ) -> list[Effect]:
        state = self.state
        kind = type(message)
        if kind is Function:
            return [Send(peer, calls.call(state, door.trusted, message, buffers))]
        if kind is Register:
            return [Send(peer, reads.register(state, peer, message, buffers))]
        if kind is MakeKeyset:
            return [Send(peer, reads.make_keyset(state, peer, message, buffers))]
        if kind is Scan:
            return [Send(peer, chunk) for chunk in reads.scan(state, message, buffers)]
        if kind is Ping:
            return [Send(peer, encode(Acked(message.id)))]
        return [Send(peer, self._hello(peer, door, message, now))]

    def _hello(self, peer: Any, door: Door, hello: Hello, now: float) -> list[Buffer]:
        state = self.state
        if hello.version != VERSION:
            raise VersionMismatch(peer=_PEER, theirs=hello.version, ours=VERSION)
        if (hello.server, hello.incarnation) != (state.server, state.incarnation):
            raise MalformedRequest(
                reason=f"this is server {state.server}, incarnation {state.incarnation}, "
                f"not {hello.server}, incarnation {hello.incarnation}"
            )
        if door is Door.TICKET and peer not in self._peers:
            if self._admission is None:
                raise NotAdmitted(peer=f"server {state.server}", reason="it admits nobody here")
            self._admission.check(hello.ticket, hello.client, now + self._ahead)
        self._peers.add(peer)
        return encode(Welcome(VERSION, state.server, state.incarnation, state.max_bytes))

    # --- the coordinator ------------------------------------------------------------------------

    def command(self, message: Message, now: float) -> list[Effect]:
        """Carry out a command of the coordinator; others of its messages are ignored."""
        kind = type(message)
        if isinstance(message, Joined):
            self._ahead = message.now - now
            self._set_view(message.view)
            return []
        if isinstance(message, Leave):
            return [ToCoordinator(Done(message.op)), Exit(0, "told to leave")]
        if isinstance(message, Snapshot):
            return self._snapshot(message)
        carry_out = self._commands.get(kind)
        if carry_out is None:
            return [Log(logging.WARNING, f"the coordinator sent {kind.__name__}, which is ignored")]
        op: int = getattr(message, "op", 0)
        try:
            carry_out(message)
        except PSError as error:
            return [_done(op, error)]
        except USERS as error:  # making a table runs a user's optimizer class
            text = "".join(traceback.format_exception(error))
            reason: PSError = PSError(reason=f"{kind.__name__}: {type(error).__name__}: {error}")
            if isinstance(message, AddTable):
                reason = FunctionFailed(
                    what="its optimizer",
                    server=self.state.server,
                    table=message.info.spec.name,
                    partition="any",
                    traceback=text[-TRACEBACK:],
                )
            return [Log(logging.ERROR, f"{kind.__name__} failed:\n{text}"), _done(op, reason)]
        return [ToCoordinator(Done(op))]

    def snapshot_done(self, op: int, result: list[dict[str, Any]] | PSError) -> list[Effect]:
        """The snapshot child has ended: entries of its files, or why there are none."""
        if self._snapshots.pop(op, None) is None:
            return []
        if isinstance(result, PSError):
            return [_done(op, result)]
        return [ToCoordinator(Done(op, result))]

    def load(self) -> dict[str, float]:
        """Figures for the heartbeat."""
        budget = self.state.budget
        return {
            "requests": float(self._requests),
            "bytes": float(budget.used),
            "limit": float(budget.limit),
            "tables": float(len(self.state.tables)),
            "partitions": float(sum(len(h.table.partitions) for h in self.state.tables.values())),
            "rows": float(sum(h.table.rows for h in self.state.tables.values())),
            "sessions": float(len(self.state.sessions)),
        }

    @property
    def tables(self) -> int:
        """How many tables have a partition here."""
        return sum(bool(hosted.open.any()) for hosted in self.state.tables.values())

    def table(self, table: int) -> Table:
        """A table, for the snapshot child; TableNotFound if it is not here."""
        return self.state.hosted(table).table

    def table_name(self, table: int) -> str:
        """Its name, or a word for one that is gone."""
        found = self.state.tables.get(table)
        return found.table.spec.name if found is not None else f"number {table}"

    def may_fork(self, table: int) -> bool:
        """Whether memory is left for the pages that change while a child writes this table."""
        return self.state.hosted(table).table.nbytes <= self.state.budget.free

    def ledgers(self, table: int, partition: int) -> list[dict[str, Any]]:
        """The applied positions of a partition, for its entry in a manifest."""
        return [
            {"session": session, "rank": rank, **ledger.image(partition)}
            for (session, rank), ledger in self.state.hosted(table).ledgers.items()
            if ledger.applied(partition).clock >= 0
        ]

    def _set_view(self, view: View) -> None:
        state = self.state
        if view.number < state.view.number:
            return
        state.view = view
        for hosted in state.tables.values():
            hosted.set_view(view)

    def _add_table(self, info: TableInfo) -> None:
        state = self.state
        if info.id in state.tables:
            return
        owners = owners_of(info.id, info.spec.partitions, state.view)
        partitions = np.flatnonzero(owners == state.server).tolist()
        table = make_table(info, partitions, state.loads, limit=state.budget.free)
        state.tables[info.id] = Hosted(table, state.view)
        state.budget.add(table)

    def _remove_table(self, table: int) -> None:
        hosted = self.state.tables.pop(table, None)
        if hosted is not None:
            self.state.dropped[table] = hosted.table.spec.name
            hosted.drop(self.state.budget)

    def _remove_session(self, session: int) -> None:
        self.state.sessions.close(session)
        for hosted in self.state.tables.values():
            hosted.close_session(session, self.state.budget)

    def _seal(self, session: int, clock: int) -> None:
        found = self.state.sessions.find(session)
        if found.bsp:
            for hosted in self.state.tables.values():
                self.state.seal(hosted, found, clock)

    def _snapshot(self, message: Snapshot) -> list[Effect]:
        hosted = self.state.tables.get(message.table)
        if hosted is None:
            error = SnapshotFailed(
                table=f"number {message.table}", path=message.path, reason="it is not here"
            )
            return [_done(message.op, error)]
        if message.op in self._snapshots:
            return []
        self._snapshots[message.op] = message
        return [TakeSnapshot(message.op, message.table, message.path)]


def _done(op: int, error: PSError) -> ToCoordinator:
    code, fields = error.to_wire()
    return ToCoordinator(Done(op, None, code, fields))


def _refused(request: int, error: PSError) -> list[Buffer]:
    return encode(Refused(request, *error.to_wire()))
