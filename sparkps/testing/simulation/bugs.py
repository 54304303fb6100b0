"""Deliberate bugs, each of which the simulation must catch: what it is good for, measured.

Each replaces one function or method of the shipped cores by one that breaks a rule (SEMANTICS §11),
as a careless change might. What is inside a kernel is broken in the Python that calls it.

>>> from sparkps.testing.simulation import shrink
>>> with BUGS["a clock counts before it is acknowledged"].planted():
...     violation = shrink(0, "asp")
>>> violation.rule
'clock'

Not here: bugs of replicas, moves, leases and checkpoints. A stale keyset after its generation has
changed cannot happen before partitions move or are loaded; one after the table has grown is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np

from sparkps.client import split
from sparkps.client.cache import RowCache
from sparkps.client.core import ClientCore
from sparkps.client.mailbox import Mailbox
from sparkps.client.seat import Chain, Seat
from sparkps.consistency.clocks import EpochPlan, RankClocks
from sparkps.coordinator.commands import Commands, Outcome
from sparkps.coordinator.core import CoordinatorCore
from sparkps.coordinator.ranks import Rank, Ranks
from sparkps.coordinator.run import Run
from sparkps.errors import SessionEnded
from sparkps.kernels import ledger as kernels
from sparkps.kernels.keys import cut
from sparkps.server import reads, writes
from sparkps.server.hosted import Hosted
from sparkps.server.named import Named
from sparkps.server.sessions import OpenSession, Sessions
from sparkps.server.staging import Staged
from sparkps.server.state import State
from sparkps.wire.messages import APPLIED, DUPLICATE, RemoveSession

#: (owner, name, what stands there instead)
Patch = tuple[Any, str, Any]


class Bug(NamedTuple):
    """A deliberate bug.

    Attributes
    ----------
    name
        In a few words.
    consistency
        Those under which it breaks an invariant.
    plan
        What it needs to show, as attributes of the plan.
    patches
        Makes what is replaced.
    """

    name: str
    consistency: tuple[str, ...]
    plan: dict[str, Any]
    patches: Callable[[], Iterable[Patch]]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the bug for a while."""
        before = []
        try:
            for owner, name, new in self.patches():
                before.append((owner, name, vars(owner)[name]))
                setattr(owner, name, new)
            yield
        finally:
            for owner, name, old in reversed(before):
                setattr(owner, name, old)


#: All of them, by name.
BUGS: Final[dict[str, Bug]] = {}


def _bug(
    name: str, *consistency: str, **plan: Any
) -> Callable[[Callable[[], Iterable[Patch]]], Callable[[], Iterable[Patch]]]:
    def add(patches: Callable[[], Iterable[Patch]]) -> Callable[[], Iterable[Patch]]:
        BUGS[name] = Bug(name, consistency, plan, patches)
        return patches

    return add


# --- the ledger


def _instead_of_check(check: Callable[..., int]) -> list[Patch]:
    """Replace the ledger's kernel in writes; seals keep theirs."""
    return [(writes, "kernels", SimpleNamespace(**{**vars(kernels), "check": check}))]


@_bug("no gap check", "asp", "ssp:1", "bsp")
def _no_gap_check() -> Iterable[Patch]:
    def check(pa: Any, ledger: Any, slices: Any, *rest: Any) -> int:
        forgetful = slices.copy()
        forgetful[:, 3:] = -1
        return kernels.check(pa, ledger, forgetful, *rest)

    return _instead_of_check(check)


@_bug("staged duplicates are not recognised", "bsp")
def _staged_duplicates() -> Iterable[Patch]:
    def check(pa: Any, ledger: Any, slices: Any, clock: int, seq: int, *rest: Any) -> int:
        _, staged, status = rest
        accepted = kernels.check(pa, ledger, slices, clock, seq, *rest)
        for i in np.flatnonzero(status == DUPLICATE).tolist() if staged else ():
            partition, piece = slices[i, :2].tolist()
            if [clock, seq << 32 | piece] > ledger[partition, 3:5].tolist():
                status[i] = APPLIED
                accepted += 1
        return accepted

    return _instead_of_check(check)


@_bug("one ledger update is skipped", "asp", "bsp")
def _skipped_update() -> Iterable[Patch]:
    def check(pa: Any, ledger: Any, slices: Any, clock: int, seq: int, *rest: Any) -> int:
        before = ledger.copy()
        accepted = kernels.check(pa, ledger, slices, clock, seq, *rest)
        if [clock, seq] == [1, 0] and accepted:
            last = slices[-1, 0]
            ledger[last] = before[last]
        return accepted

    return _instead_of_check(check)


@_bug("what is staged counts as applied", "bsp")
def _staged_as_applied() -> Iterable[Patch]:
    def check(pa: Any, ledger: Any, slices: Any, clock: int, seq: int, *rest: Any) -> int:
        sealed, _, status = rest
        return kernels.check(pa, ledger, slices, clock, seq, sealed, False, status)

    return _instead_of_check(check)


@_bug("a refusal is forgotten", "asp", memory=9000, cut=0.1)
def _forgotten_refusal() -> Iterable[Patch]:
    return [(writes.Entry, "recall", lambda self: None)]


# --- positions, and what is sent again


@_bug("one position for two slices", "asp", "bsp")
def _one_position() -> Iterable[Patch]:
    def careless(*args: Any) -> Any:
        slices = cut(*args)
        slices[:, 1] = 0
        return slices

    return [(split, "cut", careless)]


@_bug("one position for two writes", "asp", "bsp")
def _one_seq() -> Iterable[Patch]:
    add = Chain.add

    def careless(self: Chain, slices: Any, clock: int) -> int:
        if clock == self.clock:
            self.seq = max(self.seq - 1, -1)
        return add(self, slices, clock)

    return [(Chain, "add", careless)]


@_bug("writes are sent again in the wrong order", "asp", "bsp")
def _wrong_order() -> Iterable[Patch]:
    def resend(self: Any, lane: Any, effects: Any, requests: Any) -> None:
        for request in sorted(requests, key=lambda request: -request.number):
            self._take_off(lane, request)
            request.call.restart(request)
            self._send(lane, request, effects)

    return [(ClientCore, "_resend", resend)]


@_bug("only the newest write is sent again", "asp", "bsp")
def _only_newest() -> Iterable[Patch]:
    resend = ClientCore._resend

    def careless(self: Any, lane: Any, effects: Any, requests: Any) -> None:
        known = list(requests)
        newest = [request for request in known if request.call.write][-1:]
        reads_ = [request for request in known if not request.call.write]
        resend(self, lane, effects, [*reads_, *newest])

    return [(ClientCore, "_resend", careless)]


@_bug("a write is given up with its connection", "asp", "bsp")
def _given_up() -> Iterable[Patch]:
    lost = ClientCore.lost

    def careless(self: Any, server: int, reason: str, now: float) -> Any:
        effects = lost(self, server, reason, now)
        lane = self.lanes.get(server)
        for request in list(lane.flying.values()) if lane is not None else ():
            if request.call.write:
                self._drop(lane, request)
                request.call.left -= 1
        return effects

    return [(ClientCore, "lost", careless)]


# --- clocks and seals


@_bug("the final seal is missing", "bsp")
def _no_final_seal() -> Iterable[Patch]:
    return [(Run, "_seal", lambda self, clock, what, then: then())]


@_bug("a pull does not seal", "bsp")
def _no_seal_by_pull() -> Iterable[Patch]:
    def check_only(state: State, hosted: Hosted, message: Any) -> None:
        state.sessions.check(message.session, message.rank, message.token)

    return [(reads, "reader", check_only)]


@_bug("a seal of one clock too many", "bsp")
def _seal_too_much() -> Iterable[Patch]:
    seal = State.seal

    def eager(self: State, hosted: Hosted, session: OpenSession, clock: int) -> Staged:
        return seal(self, hosted, session, clock + 1)

    return [(State, "seal", eager)]


@_bug("a clock counts before it is acknowledged", "asp")
def _early_report() -> Iterable[Patch]:
    return [(Seat, "acknowledged", property(lambda self: self.clock))]


@_bug("a rank that has run out holds the others back", "bsp", "ssp:0")
def _run_out() -> Iterable[Patch]:
    acknowledge = RankClocks.acknowledge

    def one_by_one(self: RankClocks, rank: int, clock: int) -> bool:
        return acknowledge(self, rank, min(clock, self.acknowledged(rank) + 1))

    return [
        (EpochPlan, "effective", lambda self, clock, own: clock),
        (RankClocks, "acknowledge", one_by_one),
    ]


@_bug("a barrier opens when the first has come", "bsp", "ssp:0")
def _early_barrier() -> Iterable[Patch]:
    return [(RankClocks, "slowest", property(lambda self: self.fastest))]


@_bug("a copy never grows old", "ssp:0", "ssp:1")
def _old_copies() -> Iterable[Patch]:
    fresh = RowCache.fresh
    return [(RowCache, "fresh", lambda self, slots, oldest: fresh(self, slots, 0))]


# --- tokens and sessions


@_bug("a zombie with an old token is served", "asp", "bsp", troubles=4)
def _old_token() -> Iterable[Patch]:
    return [(Sessions, "check", lambda self, session, rank, token: self.find(session))]


@_bug("a token is given out before the servers refuse the old one", "asp", "bsp")
def _early_token() -> Iterable[Patch]:
    pass_on = Ranks._pass_on

    def hasty(self: Any, rank: Rank) -> None:
        before = rank.token
        pass_on(self, rank)
        if rank.token != before:
            self._confirmed(rank, rank.token, Outcome({}, None))

    return [(Ranks, "_pass_on", hasty)]


#: Most of this run is what its tasks do before they finish.
_FINISHING: Final[dict[str, Any]] = {"batches": (1, 1), "epochs": 1, "pace": (0.05, 0.05)}


@_bug("who was passed over does not notice", "asp", troubles=4, **_FINISHING)
def _not_noticed() -> Iterable[Patch]:
    return [(Mailbox, "check_token", lambda self: None)]


@_bug("a zombie is served after the end of its session", "asp", "bsp", driver_leaves=True)
def _closed_session() -> Iterable[Patch]:
    closed: dict[int, OpenSession] = {}
    close, check = Sessions.close, Sessions.check

    def remember(self: Sessions, session: int) -> None:
        if session in self._open:
            closed[session] = self._open[session]
        close(self, session)

    def forgive(self: Sessions, session: int, rank: int, token: int) -> OpenSession:
        try:
            return check(self, session, rank, token)
        except SessionEnded:
            if session not in closed:
                raise
            return closed[session]

    return [(Sessions, "close", remember), (Sessions, "check", forgive)]


@_bug("the end of a session is confirmed too early", "asp", "bsp")
def _early_end() -> Iterable[Patch]:
    send = Commands.send

    def hasty(self: Any, make: Any, what: str, then: Any = lambda _: None, **how: Any) -> None:
        if isinstance(make(0), RemoveSession):
            then(Outcome({}, None))
            send(self, make, what, **how)
        else:
            send(self, make, what, then, **how)

    return [(Commands, "send", hasty)]


@_bug("ledgers outlive their session", "asp", "bsp")
def _ledgers_left() -> Iterable[Patch]:
    close = Hosted.close_session

    def forget(self: Hosted, session: int, budget: Any) -> None:
        ledgers = dict(self.ledgers)
        close(self, session, budget)
        self.ledgers.update(ledgers)

    return [(Hosted, "close_session", forget)]


# --- vocabularies and keysets


@_bug("a missing row of a keyset is not looked up again", "asp", "bsp")
def _stale_keyset() -> Iterable[Patch]:
    resolve = Named.resolve

    def stale(self: Named, table: Any, create: bool) -> Any:
        if self.source is None or create or self.rows is None:
            return resolve(self, table, create)
        return self.rows

    return [(Named, "resolve", stale)]


# --- servers that come late


@_bug("a late server gets partitions that nothing carries over", "asp", "bsp", latecomers=2)
def _moved_rows() -> Iterable[Patch]:
    return [(CoordinatorCore, "_free", lambda self: True)]


@_bug("a late server is not told of the sessions", "bsp", latecomers=2)
def _unknown_session() -> Iterable[Patch]:
    return [(CoordinatorCore, "_introduce", lambda self, server: None)]


@_bug("losing a server that has no partition ends a run", "asp", "bsp", latecomers=2)
def _needless_end() -> Iterable[Patch]:
    def lost(self: Any, member: Any) -> Any:
        found = self._catalog.lose(member, self._members.view)
        self._sessions.lose(member.error())
        return found

    return [(CoordinatorCore, "_lost", lost)]
