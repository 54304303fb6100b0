"""One training run, from its first task to its end: ready, begin, clocks, barriers, epochs, finish.

The rules:

* **Begin.** When every rank has read its rows (once: a rank taken over later does not hold the
  others back), the clocks of an epoch are known and all begin. A later attempt of a rank must
  report the same rows, or the run fails with NonDeterministicInput. It begins at the rank's
  acknowledged clock, as soon as that clock is open.
* **Ticks** carry the acknowledged clock, which never goes back.
* **bsp**: clock c is *open* when all ranks have acknowledged the clocks below it; whoever waits at
  c is released with the sums of clock c - 1. **ssp**: the slowest clock is published whenever it
  moves. **asp**: nothing.
* **An epoch's end**, where it is a barrier: all have ended -> in bsp every server has sealed the
  epoch -> the driver is told -> with ``barrier_epochs`` the driver has answered Continue ->
  release, with new params. Otherwise the driver is told when the last rank has ended the epoch, and
  nobody waits. ``stop`` makes it the last epoch.
* **The end.** When all ranks have finished (and, in bsp, all servers have sealed everything) the
  run is complete.
* **Errors.** A worker's own exception, not fatal: it is kept until another attempt has read its
  rows, the rank is free, and Spark decides whether one comes. A fatal one, a lost server, a command
  that failed, a gang that did not come or a worker that stalls end the run at once: every task of
  it, now or later, is told the same error.

What the driver is told, and in which order, stands in :mod:`sparkps.coordinator.sessions`; who
holds a rank in ``ranks``, which clock is open in ``gate``, what the numbers become in ``history``,
who is too slow in ``stalls``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from sparkps.consistency.clocks import NEVER
from sparkps.coordinator.commands import Commands, Outcome
from sparkps.coordinator.gate import Gate
from sparkps.coordinator.history import History
from sparkps.coordinator.hub import Hub, Peer
from sparkps.coordinator.progress import ProgressTeller
from sparkps.coordinator.ranks import Rank, Ranks, difference
from sparkps.coordinator.stalls import find_stalls
from sparkps.errors import (
    InvalidArgument,
    InvalidInput,
    MalformedRequest,
    NonDeterministicInput,
    PSError,
    SessionEnded,
)
from sparkps.spec import SessionSpec
from sparkps.wire.messages import (
    Begin,
    Continue,
    Ended,
    EpochEnded,
    Failed,
    Finish,
    Granted,
    Message,
    Ready,
    RegisterRank,
    Released,
    Seal,
    Slowest,
    Tick,
    Warned,
)

#: Seconds between two looks for stalls, which take tens of seconds to be any.
STALLS_EVERY: Final = 1.0


class Run:
    """One session with workers.

    Parameters
    ----------
    hub, commands
        Shared state, and the way to the servers.
    spec
        What was asked for.
    driver
        The connection that opened it.
    new_token
        Gives the next token.
    ended
        Called once, when the run has failed or is closed.
    """

    def __init__(
        self,
        hub: Hub,
        commands: Commands,
        spec: SessionSpec,
        driver: Peer,
        *,
        new_token: Callable[[], int],
        ended: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._commands = commands
        self._ended = ended
        self.spec = spec
        self.driver = driver
        self.gate = Gate(spec)
        self.ranks = Ranks(
            hub, commands, spec, new_token=new_token, granted=self._granted, failed=self.fail
        )
        self._history = History(spec.size, keep_clocks=self.gate.bsp)
        self._awaiting: int | None = None
        self._params: dict[str, Any] = {}
        self._epoch_since = 0.0
        self._looked = hub.now
        self._progress = ProgressTeller(hub, driver, spec.id)
        self.complete = False
        self._told_complete = False
        #: How it ended, for tasks that come later; None while it goes on.
        self.end: Ended | None = None
        #: The last error that a worker reported (the first fatal one), for the driver; none, once
        #: another attempt of that rank goes on.
        self.kept: dict[str, Any] | None = None

    # -- what tasks say ----------------------------------------------------------------------------

    def register(self, peer: Peer, message: RegisterRank) -> None:
        """A task comes for a rank."""
        if self.end is not None:
            self._hub.tell(peer, self.end)
        elif 0 <= message.rank < self.spec.size:
            self.ranks.register(peer, message)
        else:
            raise MalformedRequest(reason=f"rank {message.rank} of a run of {self.spec.size}")

    def left(self, peer: Peer, number: int) -> None:
        """A task's connection has ended."""
        rank = self.ranks[number]
        host, pid = rank.place()
        if self.ranks.left(peer, number) and self.end is None:
            self._warn(
                f"rank {number} lost its task on {host} (pid {pid}) at clock "
                f"{self.gate.acknowledged(rank)}; another attempt goes on from there"
            )

    def ready(self, peer: Peer, message: Ready) -> None:
        """A rank has read its rows."""
        rank = self._held(peer, message)
        if rank is None or rank.read:
            return
        if not (0 <= message.batches < NEVER and 0 <= message.rows < NEVER):
            raise MalformedRequest(reason=f"{message.batches} batches of {message.rows} rows")
        report = (message.batches, message.rows, message.fingerprint)
        if rank.ready is not None and rank.ready != report:
            reason = difference(rank.ready, report)
            self.fail(NonDeterministicInput(rank=rank.number, reason=reason))
            return
        rank.ready, rank.read, rank.since = report, True, self._hub.now
        if self.kept is not None and self.kept["rank"] == rank.number:
            self.kept = None  # this attempt goes on; what may fail later is another thing
        if not self.gate.begun:
            reports = [other.ready for other in self.ranks.all if other.ready is not None]
            if len(reports) < self.spec.size:
                return
            if not any(batches for batches, _, _ in reports):
                self.fail(InvalidInput(where="the training DataFrame", reason="it has no rows"))
                return
            self.gate.begin([batches for batches, _, _ in reports])
            self._epoch_since = self._hub.now
            self._hub.log(
                f"session {self.spec.id} begins: {self.gate.plan.clocks} clocks per epoch"
            )
            for other in self.ranks.all:
                other.since = self._hub.now
        self._begin_where_open()

    def tick(self, peer: Peer, message: Tick) -> None:
        """A rank's writes are acknowledged below a clock; maybe it waits there."""
        rank = self._held(peer, message)
        if rank is None or not rank.begun:
            return
        gate, number = self.gate, rank.number
        if not 0 <= message.clock < NEVER:
            raise MalformedRequest(reason=f"clock {message.clock}")
        try:
            for clock, numbers in message.numbers:
                self._history.note(number, clock, gate.epoch_of(clock), numbers)
        except InvalidArgument as error:
            self.fail(error.because(f"rank {number}"))
            return
        rank.state = message.state or rank.state
        ends = message.epoch_end and gate.manual and rank.ended <= gate.closed
        if message.clock > gate.acknowledged(rank) or ends:
            rank.since, rank.waiting = self._hub.now, None
        gate.clocks.acknowledge(number, message.clock)
        if ends:
            rank.ended = gate.closed + 1
            gate.clocks.end_epoch(number)
        if message.waiting and rank.waiting is None:
            rank.waiting, rank.waiting_since = gate.acknowledged(rank), self._hub.now
        self._advance()
        self._release(rank)

    def finish(self, peer: Peer, message: Finish) -> None:
        """A rank has done all its work."""
        rank = self._held(peer, message)
        if rank is None or rank.finished or not rank.begun:
            return
        rank.waiting_since = self._hub.now
        self.gate.clocks.finish(rank.number)
        self.ranks.finish(rank, message.result)
        self._advance()
        self._complete()

    def failed(self, peer: Peer, message: Failed) -> None:
        """A worker's exception."""
        rank = self._held(peer, message)
        if rank is None or rank.finished:
            return
        self.kept = {
            "rank": rank.number,
            "text": message.text,
            "error": message.error,
            "fatal": message.fatal,
        }
        host, pid = rank.place()
        self._warn(f"rank {rank.number} on {host} (pid {pid}) failed: {message.text}")
        if message.fatal:
            self.fail(self._worker_failed(), message.error)
        else:
            self.ranks.vacate(rank)

    # -- what the driver says ----------------------------------------------------------------------

    def go_on(self, message: Continue) -> None:
        """The driver has run ``on_epoch``. If the run has failed meanwhile, Ended says so."""
        if self.end is not None:
            return
        if self._awaiting is None or self._awaiting != message.epoch:
            raise InvalidArgument(
                name="epoch", value=message.epoch, reason=f"the run waits for {self._awaiting}"
            )
        self._awaiting = None
        if message.params is not None:
            self._params = message.params
        self.gate.stopped = message.stop
        self._reopen()

    def fail(self, error: PSError, pickled: bytes = b"") -> None:
        """End the run with an error; everyone is told."""
        if self.end is not None:
            return
        self._hub.log(f"session {self.spec.id} fails: {error}", logging.ERROR)
        end = Ended(self.spec.id, *error.to_wire(), pickled)
        if not self._told_complete:
            self._hub.tell(self.driver, end)
        self._finish(end)

    def close(self, code: str, fields: dict[str, Any]) -> None:
        """The driver closes it, or is gone."""
        if self.end is not None:
            return
        broken = self.kept is not None and not self.complete
        if not code:
            reason = "the run is over" if self.complete else "it was closed by the driver"
            closed = SessionEnded(session=self.spec.id, reason=reason)
            code, fields = (self._worker_failed() if broken else closed).to_wire()
        self._finish(
            Ended(self.spec.id, code, fields, self.kept["error"] if self.kept and broken else b"")
        )

    # -- time --------------------------------------------------------------------------------------

    def timer(self) -> None:
        """Time has passed."""
        if self.end is None:
            self.ranks.tick()
        if self.end is None and self._hub.now - self._looked >= STALLS_EVERY:
            self._look_for_stalls()
        if self.end is None and self.gate.begun and not self.complete:
            self._progress.tell(self.ranks.all, self.gate)

    def _look_for_stalls(self) -> None:
        self._looked = self._hub.now
        if not self.ranks.gang_complete or self.gate.closing or self.complete:
            return  # nobody waits for a rank
        stalls = find_stalls(self.ranks.all, self.gate, self._hub.settings, self._hub.now)
        for text in stalls.warnings:
            self._warn(text)
        if stalls.fatal:
            self.fail(stalls.fatal)

    def forgive(self) -> None:
        """The coordinator has slept: nobody else is late for that."""
        self.ranks.forgive()

    def status(self) -> dict[str, Any]:
        """Figures for ``ps.status()``."""
        ranks = self.ranks.all
        return {
            "id": self.spec.id,
            "size": self.spec.size,
            "consistency": self.spec.consistency,
            "epoch": self.gate.closed,
            "epochs": self.spec.epochs,
            "clocks": [self.gate.acknowledged(rank) for rank in ranks],
            "attempts": [rank.attempt for rank in ranks],
            "held": sum(rank.holder is not None for rank in ranks),
            "finished": sum(rank.finished for rank in ranks),
            "complete": self.complete,
        }

    @property
    def tokens(self) -> dict[int, int]:
        """The newest token of each rank that has one."""
        return {rank.number: rank.token for rank in self.ranks.all if rank.token}

    @property
    def slowest_clock(self) -> int:
        """The slowest acknowledged clock, or the largest where no rank has more to do."""
        clocks = self.gate.clocks
        return min(clocks.slowest, clocks.fastest)

    # -- clocks and epochs -------------------------------------------------------------------------

    def _begin_where_open(self) -> None:
        rows = tuple(rank.ready[1] if rank.ready else 0 for rank in self.ranks.all)
        gate = self.gate
        for rank in self.ranks.all:
            if (
                not rank.read
                or rank.begun
                or rank.finished
                or not rank.holder
                or not gate.may_begin(rank)
            ):
                continue
            rank.begun, rank.since = True, self._hub.now
            clock = gate.acknowledged(rank)
            self._hub.tell(
                rank.holder.peer,
                Begin(
                    self.spec.id,
                    gate.plan.clocks,
                    rows,
                    self._params,
                    gate.epoch_of(clock),
                    clock,
                    self._history.sums(clock - 1),
                    gate.stopped,
                ),
            )
            if gate.ssp:
                self._hub.tell(rank.holder.peer, Slowest(self.spec.id, gate.published))

    def _advance(self) -> None:
        """End the epochs that all ranks have ended; open and publish what the clocks allow."""
        gate = self.gate
        while not gate.closing and not gate.over and gate.has_ended(self.ranks.all):
            if not gate.barrier:
                self._tell_epoch(gate.end)
                gate.closed += 1
            elif self.ranks.all_finished:
                return
            else:
                self._close_epoch()
        clock = gate.can_open()
        if clock is not None:
            self._open(clock)
        slowest = gate.can_publish()
        if slowest is not None:
            gate.published = slowest
            for rank in self.ranks.all:
                if rank.begun and rank.holder and not rank.finished:
                    self._hub.tell(rank.holder.peer, Slowest(self.spec.id, slowest))
                    self._release(rank)
            if gate.begun and self.end is None:
                self._begin_where_open()

    def _close_epoch(self) -> None:
        """All ranks are at the barrier of the epoch's end."""
        gate = self.gate
        gate.closing = True
        end = gate.clocks.fastest if gate.manual else gate.end

        def closed() -> None:
            self._history.close_clocks(end)
            self._tell_epoch(end)
            if self.spec.barrier_epochs:
                self._awaiting = gate.closed
            else:
                self._reopen()

        if gate.bsp:
            self._seal(end, f"sealing epoch {gate.closed} of session {self.spec.id}", closed)
        else:
            closed()

    def _reopen(self) -> None:
        """The barrier of the epoch's end opens."""
        self._epoch_since = self._hub.now
        self._open(self.gate.reopen(self.ranks.all))
        self._advance()
        self._complete()

    def _open(self, clock: int) -> None:
        """Clock ``clock`` may start: release who waits there."""
        self.gate.open = clock
        self._history.close_clocks(clock)
        for rank in self.ranks.all:
            self._release(rank)
        self._history.forget_clocks(clock - 1)
        self._begin_where_open()

    def _release(self, rank: Rank) -> None:
        """Let a rank that waits go on, if it may."""
        gate = self.gate
        if (
            rank.waiting is None
            or rank.holder is None
            or self.end is not None
            or not gate.may_pass(rank)
        ):
            return
        rank.waiting, rank.since = None, self._hub.now
        clock = gate.acknowledged(rank)
        boundary = gate.is_boundary(clock)
        if gate.bsp or boundary:
            self._hub.tell(
                rank.holder.peer,
                Released(
                    self.spec.id,
                    clock,
                    self._history.sums(clock - 1),
                    self._params if boundary else None,
                    gate.stopped,
                ),
            )

    def _complete(self) -> None:
        """Everything is done, if all ranks have finished."""
        if (
            self.complete
            or self.end is not None
            or self.gate.closing
            or not self.ranks.all_finished
        ):
            return
        self.complete = True

        def complete() -> None:
            self._told_complete = True
            self._hub.log(f"session {self.spec.id} is complete")
            self._hub.tell(self.driver, Ended(self.spec.id))

        if self.gate.bsp:
            self._seal(self.gate.clocks.fastest + 1, f"sealing session {self.spec.id}", complete)
        else:
            complete()

    def _seal(self, clock: int, what: str, then: Callable[[], None]) -> None:
        session = self.spec.id

        def sealed(outcome: Outcome) -> None:
            if self.end is not None:
                return
            if outcome.error:
                self.fail(outcome.error)
            else:
                then()

        self._commands.send(
            lambda op: Seal(op, session, clock), what, sealed, limit=self._hub.settings.stall_fatal
        )

    # -- telling -----------------------------------------------------------------------------------

    def _granted(self, rank: Rank) -> Message:
        clock = self.gate.acknowledged(rank)
        return Granted(
            self.spec.id,
            rank.number,
            rank.token,
            max(rank.attempt, 0),
            clock,
            self.spec,
            rank.state,
            rank.finished,
            rank.result,
            self._history.sums(clock - 1),
        )

    def _tell_epoch(self, clock: int) -> None:
        epoch = self.gate.closed
        row = self._history.row(epoch)
        row["epoch"] = epoch
        row["seconds"] = self._hub.now - self._epoch_since
        self._epoch_since = self._hub.now
        self._hub.tell(
            self.driver, EpochEnded(self.spec.id, epoch, row, self.spec.barrier_epochs, clock)
        )

    def _warn(self, text: str) -> None:
        self._hub.log(f"session {self.spec.id}: {text}", logging.WARNING)
        self._hub.tell(self.driver, Warned(self.spec.id, text))

    # -- inside ------------------------------------------------------------------------------------

    def _held(self, peer: Peer, message: Ready | Tick | Finish | Failed) -> Rank | None:
        """The rank of a message, if its sender holds it; otherwise the sender is told why not."""
        if self.end is not None:
            self._hub.tell(peer, self.end)
            return None
        if not self.ranks.holds(peer, message.rank, message.token):
            return None
        return self.ranks[message.rank]

    def _worker_failed(self) -> SessionEnded:
        kept = self.kept or {}
        return SessionEnded(
            session=self.spec.id, reason=f"rank {kept.get('rank')} failed: {kept.get('text')}"
        )

    def _finish(self, end: Ended) -> None:
        self.end = end
        self.ranks.close()
        for task in self.ranks.everyone():
            self._hub.tell(task.peer, end)
        self._ended()
