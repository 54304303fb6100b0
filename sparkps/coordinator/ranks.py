"""Who holds each rank of a run: the gang, tokens, stand-bys.

The rules:

* A rank is held through a *token*, a number never given twice. A task that registers for a rank
  whose holder lives waits as a *stand-by*, in order of arrival; it never fences a live holder.
* The token passes when the holder's connection ends, when it reports an error of its attempt, or,
  if somebody stands by, when its heartbeats have stopped; it finishes only once. A holder that was
  passed over and is still connected is told ``TokenGone`` and becomes the last stand-by.
* Spark may give up a stage that has read from a lost executor and start it anew, with all its
  ranks, and let the old tasks run on, their outcome ignored. They hold task slots that the new ones
  may need, and would hold their ranks: so the *first* task of a rank in a later attempt of the
  stage takes the rank over, and whoever came before, or comes late, is told that it is over for it.
* A token is *granted* only after every server has confirmed that it takes no other for that rank. A
  server that does not confirm in ``request.timeout`` fails the run.
* The gang is complete when every rank has a granted holder at the same time, once. Until then
  nobody reads a row. It must be complete within ``gang.timeout`` of the first registration.
  Afterwards a rank that is taken over goes ahead alone while the others wait at their clocks.
* A task that comes for a finished rank gets the recorded result.

Not here: what the holders do with their ranks (:mod:`sparkps.coordinator.run`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from sparkps.coordinator.commands import Commands, Outcome
from sparkps.coordinator.hub import Hub, Peer
from sparkps.errors import GangIncomplete, PSError, SessionEnded
from sparkps.spec import SessionSpec
from sparkps.wire.messages import Ended, GangComplete, Message, RegisterRank, SetToken, TokenGone

#: What a rank says when it has read its rows: batches, rows, fingerprint.
Report: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Task:
    """A Spark task that has come for a rank."""

    peer: Peer
    host: str
    pid: int
    number: int


@dataclass(slots=True)
class Rank:
    """One rank: its holder, who stands by, and how far it is."""

    number: int
    holder: Task | None = None
    last: Task | None = None
    token: int = 0
    attempt: int = -1
    granted: bool = False
    standbys: deque[Task] = field(default_factory=deque)
    #: Spark's number of the first task in the present attempt of the stage.
    first: int = 0
    #: As the first attempt reported it.
    ready: Report | None = None
    #: Whether the present holder has read its rows, and whether it was told to begin.
    read: bool = False
    begun: bool = False
    #: The clock that the holder waits for, and since when.
    waiting: int | None = None
    waiting_since: float = 0.0
    #: Manual clocks: how many epochs it has ended.
    ended: int = 0
    #: When it last did something that counts.
    since: float = 0.0
    warned: float = -1.0
    state: bytes = b""
    finished: bool = False
    result: bytes = b""

    def place(self) -> tuple[str, int]:
        """Host and pid of the holder, or of the last one."""
        task = self.holder or self.last
        return (task.host, task.pid) if task else ("?", 0)


class Ranks:
    """The ranks of one run.

    Parameters
    ----------
    hub, commands
        Shared state, and the way to the servers.
    spec
        The run.
    new_token
        Gives the next token.
    granted
        Called with a rank whose new holder may be told so; returns the message.
    failed
        Called with the error when the run cannot go on.
    """

    def __init__(
        self,
        hub: Hub,
        commands: Commands,
        spec: SessionSpec,
        *,
        new_token: Callable[[], int],
        granted: Callable[[Rank], Message],
        failed: Callable[[PSError], None],
    ) -> None:
        self._hub = hub
        self._commands = commands
        self._spec = spec
        self._new_token = new_token
        self._granted = granted
        self._failed = failed
        self.all = [Rank(number) for number in range(spec.size)]
        self.gang_complete = False
        self._first: float | None = None
        self._closed = False

    def __getitem__(self, number: int) -> Rank:
        return self.all[number]

    def register(self, peer: Peer, message: RegisterRank) -> None:
        """A task comes for a rank."""
        rank = self.all[message.rank]
        task = Task(peer, message.host, message.pid, message.task)
        if rank.finished:
            self._hub.tell(peer, self._granted(rank))
            return
        known = [other.peer for other in rank.standbys] + [
            rank.holder.peer if rank.holder else None
        ]
        if peer in known:
            return
        if self._first is None:
            self._first = self._hub.now
        if task.number < rank.first:
            self._left_behind(rank, task)
            return
        before = self._before(rank, task) if message.first else []
        rank.first = task.number if message.first else rank.first
        for other in before:
            self._left_behind(rank, other)
        rank.standbys = deque(other for other in rank.standbys if other not in before)
        rank.standbys.append(task)
        if rank.holder in before:
            self.vacate(rank)
        else:
            self._pass_on(rank)

    def left(self, peer: Peer, number: int) -> bool:
        """A task's connection has ended. Return whether it held the rank."""
        rank = self.all[number]
        rank.standbys = deque(task for task in rank.standbys if task.peer != peer)
        if rank.holder is None or rank.holder.peer != peer:
            return False
        self.vacate(rank)
        return not rank.finished

    def vacate(self, rank: Rank) -> None:
        """The holder is no holder any more; the next stand-by takes over."""
        rank.last, rank.holder = rank.holder, None
        rank.granted = rank.read = rank.begun = False
        rank.waiting = None
        rank.since = self._hub.now
        self._pass_on(rank)

    def holds(self, peer: Peer, number: int, token: int) -> bool:
        """Whether the peer holds the rank with this token; if not, it is told so and stands by."""
        if not 0 <= number < len(self.all):
            return False
        rank = self.all[number]
        if rank.holder and rank.holder.peer == peer and rank.token == token and rank.granted:
            return True
        if not rank.finished:
            self._hub.tell(peer, TokenGone(self._spec.id, number, token))
        return False

    def finish(self, rank: Rank, result: bytes) -> None:
        """The rank has done its work: whoever stands by gets the result."""
        rank.finished, rank.result = True, result
        rank.waiting = None
        while rank.standbys:
            self._hub.tell(rank.standbys.popleft().peer, self._granted(rank))

    def tick(self) -> None:
        """Pass over silent holders for whom somebody stands by; end a gang that does not come
        together.
        """
        for rank in self.all:
            if rank.standbys and rank.holder and self._hub.is_silent(rank.holder.peer):
                silent = rank.holder
                self._hub.tell(silent.peer, TokenGone(self._spec.id, rank.number, rank.token))
                rank.standbys.append(silent)
                self.vacate(rank)
        seconds = self._hub.settings.gang_timeout
        if self.gang_complete or self._first is None or self._hub.now - self._first < seconds:
            return
        came = sum(rank.holder is not None for rank in self.all)
        self._failed(GangIncomplete(came=came, size=self._spec.size, seconds=round(seconds, 3)))

    @property
    def all_finished(self) -> bool:
        """Whether every rank has done its work."""
        return all(rank.finished for rank in self.all)

    @property
    def has_come(self) -> bool:
        """Whether any task has come at all."""
        return self._first is not None

    def forgive(self) -> None:
        """The coordinator has slept: time limits start anew."""
        if self._first is not None:
            self._first = self._hub.now
        for rank in self.all:
            rank.since = rank.waiting_since = self._hub.now

    def everyone(self) -> list[Task]:
        """Holders and stand-bys."""
        holders = [rank.holder for rank in self.all if rank.holder]
        return holders + [task for rank in self.all for task in rank.standbys]

    def close(self) -> None:
        """The run is over: nothing is granted any more."""
        self._closed = True

    # -- inside ------------------------------------------------------------------------------------

    def _before(self, rank: Rank, task: Task) -> list[Task]:
        """Who has come for the rank from earlier attempts of the stage, now that ``task`` begins
        one.
        """
        holder = [rank.holder] if rank.holder else []
        return [other for other in (*holder, *rank.standbys) if other.number < task.number]

    def _left_behind(self, rank: Rank, task: Task) -> None:
        reason = f"Spark has started the stage anew, and rank {rank.number} with it"
        self._hub.log(f"session {self._spec.id}: {reason}; task {task.number} is left behind")
        over = SessionEnded(session=self._spec.id, reason=reason)
        self._hub.tell(task.peer, Ended(self._spec.id, *over.to_wire()))

    def _pass_on(self, rank: Rank) -> None:
        if self._closed or rank.holder or rank.finished or not rank.standbys:
            return
        rank.holder = rank.standbys.popleft()
        rank.token = token = self._new_token()
        rank.attempt += 1
        rank.since = self._hub.now
        session, number = self._spec.id, rank.number
        self._commands.send(
            lambda op: SetToken(op, session, number, token),
            f"confirming a token of rank {number}",
            lambda outcome: self._confirmed(rank, token, outcome),
        )

    def _confirmed(self, rank: Rank, token: int, outcome: Outcome) -> None:
        if self._closed:
            return
        if outcome.error:
            self._failed(outcome.error)
            return
        if rank.token != token or rank.holder is None:
            return
        rank.granted = True
        rank.since = self._hub.now
        self._hub.tell(rank.holder.peer, self._granted(rank))
        if self.gang_complete:
            self._hub.tell(rank.holder.peer, GangComplete(self._spec.id))
        elif all(other.granted for other in self.all):
            self.gang_complete = True
            self._hub.log(f"session {self._spec.id}: all {self._spec.size} ranks have come")
            for other in self.all:
                if other.holder:
                    self._hub.tell(other.holder.peer, GangComplete(self._spec.id))


def difference(before: Report, now: Report) -> str:
    """Say how the rows that two attempts of a rank have read differ."""
    if before[1] != now[1]:
        return f"{now[1]} rows, {before[1]} before"
    if before[0] != now[0]:
        return f"{now[0]} batches, {before[0]} before"
    return f"{now[1]} rows as before, but others or in another order"
