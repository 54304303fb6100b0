"""Commands: one message to every server, done when all have answered.

The rules:

* A command has an *op* number; each server answers it once with ``Done``. Commands reach a server
  in the order in which they were sent, so that one need not wait for another to build on it.
* It is over when every server that it went to has answered or is lost; then its *outcome* is told,
  once. A server that refused comes first in it, by server id, so that the error does not depend on
  timing.
* A lost server is an error of a *strict* command (a seal, a token), and none of one that only takes
  something away: what the server held has gone with it.
* Every command is bounded. Quick ones fail a little before ``request.timeout`` has passed, so that
  whoever asked hears which server it was before its own patience ends; long ones (a snapshot, a
  seal) have a longer limit or none, and fail when the server has been silent for that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from sparkps.coordinator.hub import Hub, Peer
from sparkps.errors import PSError, RequestTimeout, from_wire
from sparkps.wire.messages import Done, Message

#: The part of ``request.timeout`` that a server has.
_PART: Final = 0.9


@dataclass(slots=True)
class Outcome:
    """What came of a command: the results by server, and the first error."""

    results: dict[int, Any]
    error: PSError | None


@dataclass(slots=True)
class _Pending:
    what: str
    then: Callable[[Outcome], None]
    strict: bool
    limit: float | None
    since: float
    left: dict[int, Peer]
    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, PSError] = field(default_factory=dict)


class Commands:
    """Commands on their way. ``where`` gives peer and log file of each server that is up."""

    def __init__(self, hub: Hub, where: Callable[[], dict[int, tuple[Peer, str]]]) -> None:
        self._hub = hub
        self._where = where
        self._op = 0
        self._pending: dict[int, _Pending] = {}

    def send(
        self,
        make: Callable[[int], Message],
        what: str,
        then: Callable[[Outcome], None] = lambda _: None,
        *,
        strict: bool = True,
        limit: float | None = None,
        unbounded: bool = False,
        servers: Iterable[int] | None = None,
    ) -> None:
        """Send a command to all servers that are up (or to some).

        Parameters
        ----------
        make
            Gives the message for an op number.
        what
            What it does, for the sentence of a timeout.
        then
            Told the outcome, once, maybe before this returns (when there is no server).
        strict
            Whether losing a server on the way is an error.
        limit
            Seconds until it fails; most of ``request.timeout`` by default.
        unbounded
            There is no limit but the server's silence.
        servers
            Ids; all by default.
        """
        self._op += 1
        up = self._where()
        chosen = (
            up if servers is None else {server: up[server] for server in servers if server in up}
        )
        if limit is None and not unbounded:
            limit = self._hub.settings.request_timeout * _PART
        pending = _Pending(
            what,
            then,
            strict,
            limit,
            self._hub.now,
            {server: peer for server, (peer, _) in chosen.items()},
        )
        self._pending[self._op] = pending
        message = make(self._op)
        for peer in pending.left.values():
            self._hub.tell(peer, message)
        self._settle(self._op)

    def done(self, server: int, message: Done) -> None:
        """A server has answered. What answers nothing that was asked is ignored."""
        pending = self._pending.get(message.op)
        if pending is None or pending.left.pop(server, None) is None:
            return
        if message.code:
            pending.errors[server] = from_wire(message.code, message.fields)
        else:
            pending.results[server] = message.result
        self._settle(message.op)

    def lost(self, server: int, error: PSError | None) -> None:
        """A server is lost: it answers nothing any more. None: it had nothing to lose."""
        for op, pending in list(self._pending.items()):
            if pending.left.pop(server, None) is None:
                continue
            if pending.strict and error is not None:
                pending.errors[server] = error
            self._settle(op)

    def tick(self) -> None:
        """Fail what has taken too long."""
        silence = self._hub.settings.request_timeout * _PART
        for op, pending in list(self._pending.items()):
            age = self._hub.now - pending.since
            late = pending.limit is not None and age >= pending.limit
            for server, peer in sorted(pending.left.items()):
                caller = self._hub.callers.get(peer)
                unheard = self._hub.now - caller.seen if caller else age
                if not late and min(unheard, age) < silence:
                    continue
                log = self._where().get(server, (None, "?"))[1]
                pending.errors[server] = RequestTimeout(
                    what=pending.what, peer=f"server {server}", seconds=round(age), log=log
                )
                del pending.left[server]
            self._settle(op)

    def forgive(self) -> None:
        """The coordinator itself has slept: nobody else is late for that."""
        for pending in self._pending.values():
            pending.since = self._hub.now

    def _settle(self, op: int) -> None:
        pending = self._pending.get(op)
        if pending is None or pending.left:
            return
        del self._pending[op]
        error = pending.errors[min(pending.errors)] if pending.errors else None
        pending.then(Outcome(pending.results, error))
