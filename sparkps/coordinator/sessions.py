"""All sessions: opening and closing them, one gang at a time, and what the driver is told in which
order.

**What the driver sees of a run**, always in this order:

1. ``OpenSession`` is answered with [session id, token of rank ``size``] once every server accepts
   writes of the session, and no other run of this application is still gathering its gang: two
   half-started gangs would wait for each other's task slots for ever.
2. ``Progress`` (at most four a second) and ``Warned`` (a stalled rank, a lost or failed attempt) at
   any time.
3. ``EpochEnded`` for epoch 0, 1, 2, ..., each exactly once. In bsp all servers have sealed that
   epoch before. With ``wait`` nothing goes on until the driver has answered ``Continue`` with that
   epoch.
4. ``Ended``, exactly once, unless the driver closed the session before; nothing follows it but
   ``ServerDown``. With an empty code: the run is complete, after the last ``EpochEnded``; in bsp
   all servers have sealed everything. With a code: it failed; ``error`` is the pickled exception of
   a worker, if one was fatal. Every task, now or later, is told the same, and the servers refuse
   the session.
5. ``CloseSession`` is answered once every server refuses the session, with the error of a worker
   that was kept, if any: when Spark gives a job up after failures that were not fatal one by one,
   this is what the user must see. It may come at any time; closing what is closed is no error. A
   driver that goes away closes its sessions.

**A driver session** (``driver=True``) is one rank, 0, of the driver's own writes; it has no gang,
no clocks and no events, and outlives lost servers. Its OpenSession is answered with [session id,
token of rank 0].

Sessions that are over are remembered (the last thousand) for tasks that come late.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from sparkps.coordinator.commands import Commands, Outcome
from sparkps.coordinator.hub import Hub, Peer
from sparkps.coordinator.membership import Membership
from sparkps.coordinator.run import Run
from sparkps.errors import InvalidArgument, PSError, SessionEnded
from sparkps.spec import NO_SESSION, SessionSpec, parse_consistency
from sparkps.wire.messages import (
    AddSession,
    CloseSession,
    Continue,
    Ended,
    Failed,
    Finish,
    Message,
    OpenSession,
    Ready,
    RegisterRank,
    RemoveSession,
    Seal,
    SealAll,
    SetToken,
    Tick,
)

_REMEMBERED: Final = 1000
#: A run has at most so many ranks: a bound for what one message can make the coordinator allocate.
MAX_SIZE: Final = 65_536


class _Open:
    """An open session on its way to being closed."""

    def __init__(self, spec: SessionSpec, driver: Peer) -> None:
        self.spec = spec
        self.driver = driver
        self.run: Run | None = None
        self.token = 0
        self.opened = 0.0
        self.removing = False
        self.removed = False
        self.closers: list[Callable[[], None]] = []


class Sessions:
    """The sessions of the application.

    Parameters
    ----------
    hub, members
        Shared state, and the servers.
    random
        Where session ids come from.
    """

    def __init__(self, hub: Hub, members: Membership, random: Random) -> None:
        self._hub = hub
        self._members = members
        self._commands: Commands = members.commands
        self._random = random
        self._token = 0
        self._open: dict[int, _Open] = {}
        self._queue: deque[tuple[Peer, OpenSession]] = deque()
        self._past: OrderedDict[int, Ended] = OrderedDict()
        self._places: dict[Peer, tuple[int, int]] = {}

    # -- the driver --------------------------------------------------------------------------------

    def open(self, peer: Peer, message: OpenSession) -> None:
        """-> [session id, token of the driver's rank]."""
        self._queue.append((peer, _checked(message)))
        self._members.when_ready(self._admit)

    def close(self, peer: Peer, message: CloseSession) -> None:
        """-> the kept error of a worker, when every server refuses the session."""
        session = self._open.get(message.session)
        if session is None:
            self._hub.answer(peer, message.id)
            return
        kept = session.run.kept if session.run else None
        session.closers.append(lambda: self._hub.answer(peer, message.id, kept))
        self._close(session, message.code, message.fields)

    def go_on(self, peer: Peer, message: Continue) -> None:
        """-> None: the run goes on."""
        self._run(message.session).go_on(message)
        self._hub.answer(peer, message.id)

    def seal_all(self, peer: Peer, message: SealAll) -> None:
        """-> None, when every server has sealed the session below a clock."""
        self._run(message.session)

        def sealed(outcome: Outcome) -> None:
            if outcome.error:
                self._hub.deny(peer, message.id, outcome.error)
            else:
                self._hub.answer(peer, message.id)

        self._commands.send(
            lambda op: Seal(op, message.session, message.clock),
            f"sealing session {message.session}",
            sealed,
            limit=self._hub.settings.stall_fatal,
        )

    # -- the tasks ---------------------------------------------------------------------------------

    def register(self, peer: Peer, message: RegisterRank) -> None:
        """A task comes for a rank."""
        run = self._find(peer, message.session)
        if run is None:
            return
        run.register(peer, message)
        if run.end is None:
            self._places[peer] = (message.session, message.rank)

    def from_worker(self, peer: Peer, message: Ready | Tick | Finish | Failed) -> None:
        """A task with a rank says something."""
        run = self._find(peer, message.session)
        if run is None:
            return
        match message:
            case Tick():
                run.tick(peer, message)
            case Ready():
                run.ready(peer, message)
            case Finish():
                run.finish(peer, message)
            case Failed():
                run.failed(peer, message)

    def disconnected(self, peer: Peer) -> None:
        """A connection has ended: a task is gone, or a driver with all its sessions."""
        place = self._places.pop(peer, None)
        if place is not None and place[0] in self._open:
            run = self._open[place[0]].run
            if run is not None:
                run.left(peer, place[1])
        self._queue = deque((other, message) for other, message in self._queue if other != peer)
        for session in [session for session in self._open.values() if session.driver == peer]:
            gone = SessionEnded(session=session.spec.id, reason="the driver is gone")
            self._close(session, *gone.to_wire())
        self._admit()

    # -- events of others --------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether a run is open."""
        return any(session.run is not None for session in self._open.values())

    def slowest_clock(self) -> float:
        """The slowest clock of all runs; -1 where there is none."""
        runs = [s.run for s in self._open.values() if s.run is not None]
        return float(min((run.slowest_clock for run in runs), default=-1))

    def introduce(self, server: int) -> None:
        """Tell a server of the open sessions. It has no partition that their workers write to, but
        takes part in what is sent to all.
        """
        what = f"telling server {server} of the sessions"

        def tell(make: Callable[[int], Message]) -> None:
            self._commands.send(make, what, strict=False, servers=[server])

        for session in self._open.values():
            if session.removing:
                continue
            spec = session.spec
            tell(partial(AddSession, spec=spec))
            tokens = {_drivers_rank(spec): session.token}
            tokens |= session.run.tokens if session.run is not None else {}
            for rank, token in tokens.items():
                tell(partial(SetToken, session=spec.id, rank=rank, token=token))

    def lose(self, error: PSError) -> None:
        """A server is lost, and with it every run."""
        for session in list(self._open.values()):
            if session.run is not None:
                session.run.fail(error)

    def timer(self) -> None:
        """Time has passed."""
        for session in list(self._open.values()):
            if session.run is not None:
                session.run.timer()
        self._admit()

    def forgive(self) -> None:
        """The coordinator has slept."""
        for session in self._open.values():
            session.opened = self._hub.now
            if session.run is not None:
                session.run.forgive()

    def status(self) -> list[dict[str, Any]]:
        """Figures of the runs, for ``ps.status()``."""
        return [session.run.status() for session in self._open.values() if session.run is not None]

    # -- inside ------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Open the sessions that wait, as far as no gang is in the way."""
        if self._members.published.number == 0:
            return
        waiting, self._queue = self._queue, deque()
        for peer, message in waiting:
            if not message.spec.driver and any(
                self._gathers(other) for other in self._open.values()
            ):
                self._queue.append((peer, message))
            else:
                self._begin(peer, message)

    def _gathers(self, session: _Open) -> bool:
        """Whether a run needs slots that it does not have yet; one whose job does not start blocks
        no others.
        """
        run = session.run
        if run is None or run.end is not None or run.ranks.gang_complete:
            return False
        age = self._hub.now - session.opened
        return run.ranks.has_come or age < self._hub.settings.gang_timeout

    def _begin(self, peer: Peer, message: OpenSession) -> None:
        spec = message.spec
        identity = spec.id
        while identity == NO_SESSION or identity in self._open or identity in self._past:
            identity = self._random.getrandbits(63)
        spec = _with_id(spec, identity)
        session = self._open[identity] = _Open(spec, peer)
        session.opened = self._hub.now
        if not spec.driver:
            session.run = Run(
                self._hub,
                self._commands,
                spec,
                peer,
                new_token=self._new_token,
                ended=lambda: self._remove(session),
            )
        token = session.token = self._new_token()
        rank = _drivers_rank(spec)

        def opened(outcome: Outcome) -> None:
            if outcome.error:
                self._hub.deny(peer, message.id, outcome.error)
                self._close(session, *outcome.error.to_wire())
            else:
                self._hub.answer(peer, message.id, [identity, token])

        # The two are taken in order by each server; an error of the first shows in the second.
        what = f"opening session {identity}"
        failed: list[PSError] = []
        self._commands.send(
            lambda op: AddSession(op, spec),
            what,
            lambda outcome: failed.append(outcome.error) if outcome.error else None,
            strict=not spec.driver,
        )
        self._commands.send(
            lambda op: SetToken(op, identity, rank, token),
            what,
            lambda outcome: opened(
                Outcome(outcome.results, failed[0] if failed else outcome.error)
            ),
            strict=not spec.driver,
        )

    def _close(self, session: _Open, code: str, fields: dict[str, Any]) -> None:
        if session.run is not None and session.run.end is None:
            session.run.close(code, fields)
        self._remove(session)
        if session.removed:
            self._forget(session)

    def _remove(self, session: _Open) -> None:
        """The session is over: the servers refuse it from now on."""
        if session.removing:
            return
        session.removing = True
        identity = session.spec.id

        def removed(_: Outcome) -> None:
            session.removed = True
            if session.closers or session.driver not in self._hub.callers:
                self._forget(session)

        self._commands.send(
            lambda op: RemoveSession(op, identity),
            f"closing session {identity}",
            removed,
            strict=False,
        )

    def _forget(self, session: _Open) -> None:
        identity = session.spec.id
        if self._open.pop(identity, None) is not None:
            run = session.run
            end = (
                run.end
                if run and run.end
                else Ended(
                    identity, *SessionEnded(session=identity, reason="it was closed").to_wire()
                )
            )
            self._past[identity] = end
            while len(self._past) > _REMEMBERED:
                self._past.popitem(last=False)
        closers, session.closers = session.closers, []
        for closer in closers:
            closer()
        self._admit()

    def _find(self, peer: Peer, identity: int) -> Run | None:
        """The run of a session; if there is none, the sender is told why."""
        session = self._open.get(identity)
        if session is not None and session.run is not None:
            return session.run
        unknown = SessionEnded(session=identity, reason="the coordinator knows no such run")
        self._hub.tell(peer, self._past.get(identity) or Ended(identity, *unknown.to_wire()))
        return None

    def _run(self, identity: int) -> Run:
        session = self._open.get(identity)
        if session is None or session.run is None:
            raise SessionEnded(session=identity, reason="the coordinator knows no such run")
        return session.run

    def _new_token(self) -> int:
        self._token += 1
        return self._token


def _checked(message: OpenSession) -> OpenSession:
    spec = message.spec
    parse_consistency(spec.consistency)
    size = 1 if spec.driver else MAX_SIZE
    for name, value, high in (("workers", spec.size, size), ("epochs", spec.epochs, 2**31)):
        if not 1 <= value <= high:
            raise InvalidArgument(name=name, value=value, reason=f"must be 1 to {high}")
    if not 0 <= spec.id < 2**63:
        raise InvalidArgument(
            name="session", value=spec.id, reason="must be 0 or have at most 63 bits"
        )
    return message


def _drivers_rank(spec: SessionSpec) -> int:
    return 0 if spec.driver else spec.size


def _with_id(spec: SessionSpec, identity: int) -> SessionSpec:
    return SessionSpec(identity, *(getattr(spec, name) for name in spec.__struct_fields__[1:]))
