"""The client's core: which request is in flight to which server, and what to do if it goes wrong.

Pure: events and the time go in, effects come out; no socket, no thread, no clock. It knows nothing
of keys and rows (:mod:`.split`), and of replies only what the protocol needs (:mod:`.calls` has
the rest).

Rules (SEMANTICS §2, §3):

* One connection per server at a time, a *lane*. Requests go out in the order in which they were
  made, matched to their replies by an id that is new for each sending, so that a late reply to an
  older sending is nobody's.
* The first message is Hello; requests follow without waiting for Welcome.
* A write stays known until it is acknowledged. When a connection is lost, a new one is opened, and
  everything unanswered is sent again in the old order before anything new. A write that was
  applied comes back as a duplicate.
* A connection that is not admitted is tried again a few times, with a new ticket: the one before
  may have waited at a busy server for longer than it is good for.
* A gap says that a server lacks something older: all unacknowledged writes to it are sent again,
  oldest first. A gap of the oldest means that the server has forgotten what it acknowledged, which
  nothing can mend.
* A refused write is given up: what was chained to it is chained to what came before it, and sent
  again. With it go those parts of the same call that were not sent yet. The error says what may
  have become of the others.
* A server that does not know a vocabulary or keyset gets the same request with the keys in place
  of the reference.
* What a server does not serve (it is behind in views, or we are) is asked again a little later.
* Bytes in flight to a server are bounded (requests and the replies that they will bring); beyond,
  requests wait here.
* No progress on a lane for ``timeout`` seconds fails its calls and names the server. A server that
  the coordinator calls lost fails them at once, and every later call that needs it or a table that
  was on it.

Not here yet: re-cutting the slices of an unacknowledged write when a partition moves to another
server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from sparkps.client.calls import Call, Mask, Request, unexpected
from sparkps.client.lane import Lane
from sparkps.errors import (
    MalformedRequest,
    NotAdmitted,
    PSError,
    RequestTimeout,
    ServerLost,
    SessionEnded,
    from_wire,
)
from sparkps.spec import ServerInfo, View
from sparkps.wire.effects import Buffer, Connect, Disconnect, Effect, SendTo
from sparkps.wire.frames import as_array, decode_from_server, encode
from sparkps.wire.messages import (
    DUPLICATE,
    GAP,
    LATE,
    NOT_MINE,
    PLAIN,
    REFUSED,
    VERSION,
    Acked,
    Hello,
    NotMine,
    Refused,
    Results,
    ServerDown,
    UnknownRef,
    Welcome,
)

#: Seconds before the first new connection after a lost one, and at most; it doubles in between. A
#: local server that lives accepts at once, one that died is known to the coordinator within
#: milliseconds.
RETRY: Final = (0.02, 1.0)
#: Tickets that are shown to a server before its refusal is believed.
TICKETS: Final = 3
#: Seconds before a server is asked again for what it does not serve.
AGAIN: Final = 0.05
#: Seconds in which the coordinator tells why a server that cannot be reached is in no view any
#: more.
NEWS: Final = 2.0


class ClientCore:
    """See the module.

    Parameters
    ----------
    client
        This client's name in Hello, for the servers' logs.
    window
        Bytes in flight per server.
    timeout
        Seconds without progress after which a call fails.
    ticket
        Makes the ticket of a new connection to a server.
    """

    def __init__(
        self,
        client: bytes = b"",
        *,
        window: int = 32 * 2**20,
        timeout: float = 60.0,
        ticket: Callable[[ServerInfo], bytes] = lambda _: b"",
    ) -> None:
        self.client = client
        self._ticket = ticket
        self.window = window
        self.timeout = timeout
        self.view = View(number=0)
        self.lanes: dict[int, Lane] = {}
        self.backlog = 0
        self._servers: dict[int, ServerInfo] = {}
        self._ids = 0
        self._numbers = 0
        self._read_bytes = self._written_bytes = 0
        self._lost: dict[int, ServerLost] = {}
        self._lost_tables: dict[int, ServerLost] = {}

    @property
    def any_lost(self) -> bool:
        """Whether any server was ever lost."""
        return bool(self._lost)

    # --- what the caller wants

    def submit(self, requests: Sequence[Request], now: float) -> list[Effect]:
        """Send requests, or keep them until there is room."""
        effects: list[Effect] = []
        for request in requests:
            lane = self.lanes.get(request.server)
            if lane is None or not lane.up:
                lane = self._lane(request.server, effects, now)
            if not lane.flying:
                lane.progress = now
                room = lane.up and not lane.queue
            else:
                room = not lane.queue and lane.up and lane.size + request.cost <= self.window
            self._numbers += 1
            request.number = self._numbers
            request.call.submitted(request)
            if room:
                self._send(lane, request, effects)
            else:
                lane.queue.append(request)
                self.backlog += 1
        return effects

    def check(self, table: int, servers: Iterable[int]) -> None:
        """Raise ServerLost if a table, or a server that holds a part of it, is lost."""
        if self.any_lost:
            error = self._lost_tables.get(table)
            if error is None:
                error = next((self._lost[s] for s in servers if s in self._lost), None)
            if error is not None:
                raise ServerLost(**error.fields)

    # --- what happens

    def received(self, server: int, frames: Sequence[Buffer], now: float) -> list[Effect]:
        """A message came from a server."""
        effects: list[Effect] = []
        lane = self.lanes.get(server)
        if lane is None:
            return effects
        lane.progress = now
        try:
            message, buffers = decode_from_server(frames)
        except MalformedRequest as error:
            return self._shut(lane, error, effects)
        kind = type(message)
        if kind is Welcome:
            lane.failures = 0
            return effects
        request = lane.flying.get(message.id)  # type: ignore[union-attr]
        if request is None:
            if kind is Refused and message.id == 0:  # type: ignore[union-attr]
                refusal = from_wire(message.code, message.fields)  # type: ignore[union-attr]
                if isinstance(refusal, NotAdmitted) and lane.failures < TICKETS:
                    return self.lost(server, str(refusal), now)
                return self._shut(lane, refusal, effects)
            self._pump(lane, effects)
            return effects
        call = request.call
        try:
            if kind is Refused or kind is UnknownRef or kind is NotMine:
                self._not_answered(lane, request, message, now, effects)
            elif call.write and not self._accepted(lane, request, message, buffers, now, effects):
                pass
            elif call.error is not None or call.answered(request, message, buffers):
                self._drop(lane, request)
                if call.left:
                    call.left -= 1
        except (PSError, ValueError, TypeError) as error:
            self._drop(lane, request)
            call.fail(
                error if isinstance(error, PSError) else MalformedRequest(reason=f"reply: {error}")
            )
        if lane.queue:
            self._pump(lane, effects)
        return effects

    def lost(self, server: int, reason: str, now: float) -> list[Effect]:
        """The connection to a server is lost."""
        lane = self.lanes.get(server)
        if lane is None or not lane.up:
            return []
        lane.up = False
        first, most = RETRY
        lane.retry_at = now + min(most, first * 2**lane.failures) if lane.busy else None
        lane.failures += 1
        return [Disconnect(server)]

    def moved(self, server: int) -> list[Effect]:
        """Connect to a server anew, where the shell wants to; what is under way is sent again."""
        effects: list[Effect] = []
        lane = self.lanes.get(server)
        if lane is not None and lane.up:
            self._connect(lane, effects)
        return effects

    def figures(self) -> dict[str, float]:
        """Bytes that reads and writes have moved so far, for the progress line."""
        return {"pull_bytes": float(self._read_bytes), "push_bytes": float(self._written_bytes)}

    def server_info(self, server: int) -> ServerInfo:
        """Where a server is."""
        return self._servers[server]

    def view_changed(self, view: View) -> None:
        """A view came; an older one than ours is ignored."""
        if view.number >= self.view.number:
            self.view = view
            self._servers.update((server.id, server) for server in view.servers)

    def server_down(self, message: ServerDown) -> list[Effect]:
        """The coordinator says that a server is lost."""
        error = ServerLost(
            server=message.server,
            status=message.status,
            tables=", ".join(message.tables) or "(none)",
            log=message.log,
            tail=message.tail,
        )
        self._lost[message.server] = error
        for table in message.ids:
            self._lost_tables[table] = error
        lane = self.lanes.get(message.server)
        return [] if lane is None else self._shut(lane, error, [])

    def tick(self, now: float) -> list[Effect]:
        """The time has come for something; see :meth:`deadline`."""
        effects: list[Effect] = []
        for lane in list(self.lanes.values()):
            if lane.retry_at is not None and now >= lane.retry_at:
                if now >= lane.progress + NEWS and all(
                    s.id != lane.server for s in self.view.servers
                ):
                    self._shut(lane, self._unexplained(lane.server), effects)
                    continue
                self._connect(lane, effects)
            if lane.again_at is not None and now >= lane.again_at and lane.up:
                # Newer writes go behind them again, or they would be gaps.
                again = [*lane.again, *(r for r in lane.flying.values() if r.call.write)]
                lane.again, lane.again_at = [], None
                self._resend(lane, effects, again)
            if lane.busy and now >= lane.progress + self.timeout:
                info = self._servers.get(lane.server)
                error = RequestTimeout(
                    what="a request",
                    peer=f"server {lane.server}",
                    seconds=self.timeout,
                    log=info.log if info is not None else "its log",
                )
                lane.progress = now
                self._fail(lane, error, reads_only=True)
                if lane.up:
                    self._pump(lane, effects)  # what is in flight may have been reads alone
        return effects

    def deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        times = [
            time
            for lane in self.lanes.values()
            for time in (
                lane.retry_at,
                lane.again_at if lane.up else None,
                lane.progress + self.timeout if lane.busy else None,
            )
            if time is not None
        ]
        return min(times, default=None)

    def fail_all(self, error: PSError) -> list[Effect]:
        """End every call: the coordinator is lost, or the client is closed."""
        effects: list[Effect] = []
        for lane in list(self.lanes.values()):
            self._shut(lane, error, effects)
        return effects

    def _unexplained(self, server: int) -> ServerLost:
        """A server is in no view any more, and nobody told us why."""
        log = self._servers[server].log
        error = ServerLost(
            server=server, status="it left", tables="(unknown)", log=log, tail="  (unknown)"
        )
        self._lost[server] = error
        return error

    # --- lanes

    def _lane(self, server: int, effects: list[Effect], now: float) -> Lane:
        error = self._lost.get(server)
        if error is not None:
            raise ServerLost(**error.fields)
        lane = self.lanes.get(server)
        if lane is None:
            lane = self.lanes[server] = Lane(server)
        if not lane.up and lane.retry_at is None:
            self._connect(lane, effects)
        if not lane.busy:
            lane.progress = now
        return lane

    def _connect(self, lane: Lane, effects: list[Effect]) -> None:
        """Open a connection, and send again what was under way."""
        info = self._servers.get(lane.server)
        if info is None:
            raise MalformedRequest(reason=f"server {lane.server} is in no view")
        lane.up, lane.retry_at = True, None
        hello = Hello(VERSION, self.client, lane.server, info.incarnation, self._ticket(info))
        effects += (Connect(lane.server), SendTo(lane.server, encode(hello)))
        self._resend(lane, effects, list(lane.flying.values()))
        self._pump(lane, effects)

    def _send(self, lane: Lane, request: Request, effects: list[Effect]) -> None:
        self._ids += 1
        message: Any = request.message
        message.id = self._ids
        frames = encode(message, *request.buffers)  # first: what cannot be encoded changes nothing
        lane.flying[self._ids] = request
        lane.size += request.cost
        if request.call.write:
            self._written_bytes += request.cost
        else:
            self._read_bytes += request.cost
        effects.append(SendTo(lane.server, frames))

    def _resend(self, lane: Lane, effects: list[Effect], requests: Iterable[Request]) -> None:
        """Send unanswered requests again, oldest first, under new ids."""
        for request in sorted(requests, key=_number):
            self._take_off(lane, request)
            request.call.restart(request)
            request.resent = True
            self._send(lane, request, effects)

    def _pump(self, lane: Lane, effects: list[Effect]) -> None:
        while lane.queue and (not lane.flying or lane.size + lane.queue[0].cost <= self.window):
            self.backlog -= 1
            self._send(lane, lane.queue.popleft(), effects)

    def _take_off(self, lane: Lane, request: Request) -> None:
        if lane.flying.pop(request.message.id, None) is not None:
            lane.size -= request.cost

    def _drop(self, lane: Lane, request: Request) -> None:
        """Forget a request: it is answered, given up, or nobody waits for it."""
        self._take_off(lane, request)
        # ``plain`` refers to the request itself: without this its buffers would live until the
        # garbage collector finds the two.
        request.plain, request.buffers = None, ()
        request.call.settled()

    def _fail(self, lane: Lane, error: PSError, *, reads_only: bool) -> None:
        """Fail all calls on a lane and forget their requests, or only those of reads: a write must
        be acknowledged before those after it can be."""
        for request in lane.requests():
            request.call.fail(type(error)(**error.fields))
            if request.call.write and reads_only:
                continue
            if request in lane.queue:
                lane.queue.remove(request)
                self.backlog -= 1
            elif request in lane.again:
                lane.again.remove(request)
            self._drop(lane, request)

    def _shut(self, lane: Lane, error: PSError, effects: list[Effect]) -> list[Effect]:
        """End a lane for good; a later request begins a new one."""
        self.lanes.pop(lane.server, None)
        self._fail(lane, error, reads_only=False)
        if lane.up:
            effects.append(Disconnect(lane.server))
        return effects

    # --- replies that are not plain answers

    def _not_answered(
        self, lane: Lane, request: Request, message: Any, now: float, effects: list[Effect]
    ) -> None:
        if type(message) is Refused:
            error = from_wire(message.code, message.fields)
            if request.plain is not None and type(error) is MalformedRequest:
                # The list here is longer than the server's, which has refused a part of it
                # meanwhile.
                self._unknown(lane, request, effects)
            else:
                self._refused(lane, request, error, None, effects)
        elif type(message) is NotMine:
            self._later(lane, request, now)
        elif request.plain is not None:
            self._unknown(lane, request, effects)
        else:
            if request.call.write:
                raise unexpected(message, "Acked")
            request.call.answered(request, message, ())
            self._drop(lane, request)
            request.call.left = max(0, request.call.left - 1)

    def _accepted(
        self,
        lane: Lane,
        request: Request,
        message: Any,
        buffers: Sequence[Buffer],
        now: float,
        effects: list[Effect],
    ) -> bool:
        """Whether every slice of a write is in the server's ledger; if not, see to it."""
        if type(message) is not Acked and type(message) is not Results:
            raise unexpected(message, "Acked")
        call = request.call
        if not buffers or not len(buffers[0]):
            call.applied = call.applied or not _is_claim(request)
            return True
        statuses = as_array(buffers[0], np.uint8)
        taken = statuses <= DUPLICATE
        call.applied = call.applied or bool(taken.any())
        worst = int(statuses.max())
        if worst <= DUPLICATE:
            return True
        # With a refused slice go those that would have been sent again: nobody would do so.
        if (statuses == REFUSED).any():
            error = from_wire(getattr(message, "code", ""), getattr(message, "fields", {}))
            self._refused(lane, request, error, ~taken, effects)
        elif (statuses == LATE).any():
            message = request.message
            error = SessionEnded(
                session=f"{message.session:#x}",
                reason=f"a write of clock {message.clock} came after its seal",
            )
            self._refused(lane, request, error, ~taken, effects)
        elif (statuses == NOT_MINE).any():
            self._later(lane, request, now)
        elif (statuses == GAP).any():
            self._gap(lane, request, effects)
        else:
            raise MalformedRequest(reason=f"slices have the status {worst}, which does not exist")
        return False

    def _gap(self, lane: Lane, request: Request, effects: list[Effect]) -> None:
        writes = [r for r in lane.flying.values() if r.call.write]
        if min(writes, key=_number) is request and not lane.again:
            raise MalformedRequest(
                reason=f"server {lane.server} has forgotten writes that it acknowledged"
            )
        self._resend(lane, effects, writes)

    def _refused(
        self, lane: Lane, request: Request, error: PSError, slices: Mask, effects: list[Effect]
    ) -> None:
        """Give up a request, or of a write the slices that were refused."""
        call = request.call
        self._take_off(lane, request)
        changed = call.give_up([request], slices, lane.requests())
        self._drop(lane, request)
        self._resend(lane, effects, [r for r in changed if r.message.id in lane.flying])
        self._withdraw(call)
        if call.error is None:
            call.fail(error)
            if call.applied:
                error.because("a part of it was applied")
            elif call.write and (self._under_way(call) or (slices is None and request.resent)):
                error.because("a part of it may be applied")

    def _withdraw(self, call: Call) -> None:
        """Give up what was not sent yet of a call of which a part was refused: each would be
        refused by itself, and what is in flight sent again each time.

        Another attempt may send these parts before it is refused: then they are new, or are taken
        for duplicates. But refused slices are refused there too, since the ledger remembers them,
        and the call fails in any case. (A message that is refused as a whole means that the session
        or its table is another's, which a step cannot go on with.) The claims of a bsp run hold for
        its later writes, and stay.
        """
        for lane in self.lanes.values():
            unsent = [r for r in lane.queue if r.call is call and not _is_claim(r)]
            if unsent:
                lane.queue = deque(r for r in lane.queue if r.call is not call or _is_claim(r))
                call.give_up(unsent, None, lane.queue)
                for request in unsent:
                    self._drop(lane, request)
                self.backlog -= len(unsent)

    def _under_way(self, call: Call) -> bool:
        """Whether parts of a write were sent and have no answer yet."""
        return any(
            r.call is call and not _is_claim(r)
            for lane in self.lanes.values()
            for r in (*lane.flying.values(), *lane.again)
        )

    def _unknown(self, lane: Lane, request: Request, effects: list[Effect]) -> None:
        """Name the rows by their keys, in the same place of the order."""
        if request.plain is None:
            return
        request.buffers, request.plain = request.plain(), None
        request.message.mode, request.message.ref = PLAIN, b""
        again = (
            [r for r in lane.flying.values() if r.call.write] if request.call.write else [request]
        )
        self._resend(lane, effects, again)

    def _later(self, lane: Lane, request: Request, now: float) -> None:
        """Ask again in a moment."""
        self._take_off(lane, request)
        lane.again.append(request)
        lane.again_at = now + AGAIN


def _number(request: Request) -> int:
    return request.number


def _is_claim(request: Request) -> bool:
    """Whether it only makes a table its run's."""
    return request.call.write and not len(request.buffers[0])
