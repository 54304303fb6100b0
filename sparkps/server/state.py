"""What a server knows: its tables, the open sessions, its view and its memory; and the seal.

Not here: what messages do with it. One object of this class is shared by the parts of the core.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Final

import msgspec

from sparkps.errors import FunctionFailed, MalformedRequest, PSError, TableDropped, TableNotFound
from sparkps.kernels import ledger as kernels
from sparkps.server.budget import Budget
from sparkps.server.hosted import Hosted
from sparkps.server.sessions import OpenSession, Sessions
from sparkps.server.staging import Staged
from sparkps.spec import View

#: What the door of a kernel raises on numbers that do not fit each other.
DOOR_ERRORS: Final = (ValueError, TypeError, IndexError, OverflowError)
#: Characters of a user's traceback that travel; its end says what was raised.
TRACEBACK: Final = 20_000
#: What code of the user's may raise without ending the server and everybody's tables with it.
USERS: Final = (Exception, SystemExit, KeyboardInterrupt)


class NotHere(PSError):
    """A partition of a read is not served here: answered by ``NotMine``, never sent as an error."""

    sentence = "partitions of table {table} are not here"


class State:
    """The state of one server; see the module.

    Parameters
    ----------
    server, incarnation
        Who this is.
    limit
        Bytes that may be used.
    max_bytes
        Size of the messages that we send, about.
    keysets_max_bytes
        Bytes of vocabularies and keysets per (table, session).
    loads
        Unpickles what a trusted peer has sent.
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
    ) -> None:
        self.server = server
        self.incarnation = incarnation
        self.max_bytes = max_bytes
        self.keysets_max_bytes = keysets_max_bytes
        self.loads = loads
        self.budget = Budget(server, limit)
        self.sessions = Sessions()
        self.tables: dict[int, Hosted] = {}
        #: Names of the tables that were here once, for errors.
        self.dropped: dict[int, str] = {}
        self.view = View(0)

    def hosted(self, table: int) -> Hosted:
        """Find a table.

        Raises
        ------
        TableDropped, TableNotFound
            If it is not here any more, or never was.
        """
        found = self.tables.get(table)
        if found is None:
            if table in self.dropped:
                raise TableDropped(table=self.dropped[table])
            known = [hosted.table.spec.name for hosted in self.tables.values()]
            raise TableNotFound(table=f"number {table}", known=known)
        return found

    def seal(self, hosted: Hosted, session: OpenSession, clock: int) -> Staged:
        """Apply what the bsp session has staged below ``clock``, unless that is done already.

        Raises
        ------
        PSError
            If it could not be applied, now or before.
        """
        staged = hosted.staged.get(session.id)
        if staged is None:
            staged = hosted.staged[session.id] = Staged(hosted.table.spec.partitions)
        if staged.broken is not None:
            raise staged.broken
        if staged.sealed >= clock:
            return staged
        array = hosted.table.array
        partitions = array.open_partitions()
        try:
            if staged.seal(hosted.table, clock, self.budget):
                for partition in partitions.tolist():
                    array.set_log(partition, array.log(partition) + 1)
            for (owner, rank), ledger in hosted.ledgers.items():
                if owner == session.id and rank < session.size:
                    kernels.applied_up_to(ledger.array, partitions, clock)
        except USERS as error:  # a user's optimizer or function may raise anything
            staged.broken = self.failure(hosted, f"the seal of clock {clock}", error)
            raise staged.broken from error
        return staged

    def failure(
        self, hosted: Hosted, what: str, error: BaseException, where: int | str = ""
    ) -> PSError:
        """The error for what could not be done: whose fault it is, in words that travel.

        ``where`` is the partition in which a user's function ran, or a word for it; empty if no
        code but a user's optimizer can be to blame.
        """
        if isinstance(error, PSError) and _travels(error):
            return error
        table = hosted.table
        if isinstance(error, MemoryError):
            return self.budget.exceeded(table, 0)
        optimizer = table.spec.optimizer
        users = where != "" or (optimizer is not None and optimizer.source is not None)
        if not users and isinstance(error, DOOR_ERRORS):
            return MalformedRequest(reason=str(error))
        text = "".join(traceback.format_exception(error))
        return FunctionFailed(
            what=what,
            server=self.server,
            table=table.spec.name,
            partition="any" if where == "" else where,
            traceback=text[-TRACEBACK:],
        )


def _travels(error: PSError) -> bool:
    """Whether an error's fields cross the wire; those that a user's code has put in may not."""
    try:
        msgspec.msgpack.encode(error.fields)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
