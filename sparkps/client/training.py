"""A rank's way through a run: register, read, train, finish. No Spark.

How a task uses it::

    with join_run(info, session, rank, task=number) as run:   # may wait as a stand-by
        if run.finished:
            return run.result                # an earlier attempt has done the work
        run.wait_for_gang()                  # then read the rows and prepare the batches
        result = run.train(batches, step, rows=rows, fingerprint=fingerprint)

Rules (SEMANTICS §4, §5):

* A task has a connection of its own to the coordinator, closed however it ends; that frees the
  rank.
* An epoch has N clocks, N = the largest number of batches of any rank. A rank whose batches have
  run out ends the rest of the epoch's clocks at once. With a clock per epoch N is 1. With manual
  clocks the step ticks, the end of an epoch ends one more clock and is a barrier, and the next
  begins at the largest clock reached.
* Where batches have clocks, validation has one more at the end of the epoch to itself: in bsp it
  sees all that the epoch has pushed. Otherwise it sees what the epoch's steps saw.
* In bsp, with manual clocks, and where the driver runs ``on_epoch``, the end of an epoch is a
  barrier.
* A task that finds its token gone becomes a stand-by: it waits, and begins where the rank then is,
  with the batches that it has; also when it finds so only after it has told its end, which then
  does not count.
* An exception is told to the coordinator before the task ends. The user's own and our errors are
  fatal: they end the run. Two are not, and the rank waits for another attempt: an interruption of
  the task, and an ``OSError`` of the user's code (a lost connection, an unreadable file), which may
  have gone away by then.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from sparkps.client import current
from sparkps.client.mailbox import Mailbox
from sparkps.client.seat import Seat
from sparkps.client.shell import ClientInfo, client_for
from sparkps.client.worker import Worker, add_numbers
from sparkps.errors import ContextStopped, PSError, TokenLost, WrongType
from sparkps.net.control import ControlLink
from sparkps.spec import SessionSpec, parse_consistency
from sparkps.wire import userfn
from sparkps.wire.messages import (
    VERSION,
    Begin,
    Failed,
    Finish,
    GetView,
    Granted,
    Join,
    Message,
    Ready,
    RegisterRank,
)

#: ``step(worker, batch)``, or an object that has more methods besides.
Step = Any


class Work(NamedTuple):
    """What is done in every epoch: ``step(worker, batch)`` for each batch, then
    ``step.validate(worker, batch)`` for each of those for validation."""

    step: Step
    batches: Sequence[Any]
    validation: Sequence[Any] | None


def join_run(
    info: ClientInfo,
    session: SessionSpec,
    rank: int,
    *,
    host: str = "",
    task: int = 0,
    first: bool = False,
) -> Run:
    """Return a run; entering it registers this task for a rank and waits until it holds it.

    Parameters
    ----------
    info
        The cluster.
    session
        The run, with the id that it was opened under.
    rank
        This task's.
    host
        Where it runs, for messages to people.
    task, first
        Spark's number of this task, and whether it is the first of its rank in this attempt of the
        stage.
    """
    return Run(info, session, rank, host=host or socket.gethostname(), task=task, first=first)


class Run:
    """One task's part in a run; see the module.

    Attributes
    ----------
    finished : bool
        An earlier attempt has done the work of this rank.
    result : bytes
        What it left.
    worker : Worker
        What ``prepare`` and ``step`` see.
    """

    worker: Worker

    def __init__(
        self,
        info: ClientInfo,
        session: SessionSpec,
        rank: int,
        *,
        host: str,
        task: int,
        first: bool,
    ) -> None:
        self.finished = False
        self.result = b""
        self._info, self._session, self._rank = info, session, rank
        self._register = RegisterRank(session.id, rank, host, os.getpid(), task, first)
        self._consistency = parse_consistency(session.consistency)
        self._barrier = (
            self._consistency.mode == "bsp"
            or session.barrier_epochs
            or session.clock_every == "manual"
        )
        self._mailbox = Mailbox(session.id)
        self._seat: Seat | None = None
        self._link: ControlLink | None = None
        self._client = client_for(info)
        self._figures = (time.monotonic(), self._client.core.figures())

    # --- from joining to leaving

    def __enter__(self) -> Run:
        try:
            join = Join(VERSION, "worker", self._register.host, os.getpid())
            self._link = ControlLink(
                self._info.coordinator,
                join,
                self._told,
                self._mailbox.lost,
                timeout=self._client.settings.request_timeout,
                load=self._load,
                curve=self._client.curve,
            )
            self._client.lend(self._link)
            self._tell(self._register)
            self._take(self._mailbox.wait_granted())
        except BaseException as error:
            self._leave(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        try:
            if error is not None and self._seat is not None and not self._mailbox.over:
                text = userfn.words(error)
                pickled = userfn.dump_error(error) if isinstance(error, Exception) else b""
                fatal = isinstance(error, Exception) and not _may_go_away(error)
                self._tell(
                    Failed(self._session.id, self._rank, self._seat.token, pickled, text, fatal)
                )
        finally:
            if self._seat is not None:
                current.leave(self._seat)
            if self._link is not None:
                self._client.take_back(self._link)
                self._link.close()

    def _told(self, message: Message) -> None:
        self._mailbox.put(message)
        self._client.noted(message)

    def _tell(self, message: Message) -> None:
        if self._link is None:
            raise ContextStopped(reason="this run was left")
        self._link.tell(message)

    def _load(self) -> dict[str, float]:
        """Bytes per second since the last heartbeat, for the progress line."""
        now, figures = time.monotonic(), self._client.core.figures()
        (before, old), self._figures = self._figures, (now, figures)
        return {name: (figures[name] - old[name]) / max(now - before, 1e-3) for name in figures}

    def _take(self, granted: Granted) -> None:
        """Take a token, or the result of the attempt that has finished."""
        if granted.finished:
            self.finished, self.result = True, granted.result
            return
        if self._seat is None:
            mode, staleness = self._consistency
            self._seat = Seat(
                self._session.id,
                self._rank,
                granted.token,
                bsp=mode == "bsp",
                synchronous=False,
                staleness=staleness if mode == "ssp" else None,
            )
            self.worker = Worker(self._client, self._seat, self._mailbox, self._session, self._tell)
            current.enter(self._seat, self.worker)
        else:
            self._seat.renew(granted.token)
        self._seat.denied = "in prepare()"
        self.worker.resume(granted.attempt, granted.state, granted.last)

    def wait_for_gang(self) -> None:
        """Wait until every rank has come; only then read a row."""
        self._mailbox.wait_gang()

    # --- training

    def train(
        self,
        batches: Sequence[Any],
        step: Step,
        *,
        rows: int,
        fingerprint: int = 0,
        validation: Sequence[Any] | None = None,
        encode_result: Callable[[Any], bytes] | None = None,
    ) -> bytes:
        """Train on this rank's batches, for all epochs that are left.

        Parameters
        ----------
        batches
            What ``step`` gets, one by one; in the same order in every epoch and attempt.
        step
            ``step(worker, batch)``, maybe with ``start(worker)``, ``validate(worker, batch)``,
            ``end_epoch(worker)`` and ``finish(worker)``.
        rows
            Rows of all batches; all batches but the last have ``session.batch_rows``.
        fingerprint
            Of the rows in their order; another attempt must have the same.
        validation
            What ``step.validate`` gets at the end of each epoch, one by one; None where no rank of
            the run validates.
        encode_result
            Makes bytes of what ``finish`` returns, for the coordinator to keep.

        Returns
        -------
        bytes
            What is kept of this rank.
        """
        work = Work(step, batches, validation)
        while True:
            seat = self._seat
            if self.finished or seat is None:
                return self.result
            try:
                clocks = len(batches) + self._validates(work)
                self._tell(
                    Ready(self._session.id, self._rank, seat.token, clocks, rows, fingerprint)
                )
                return self._train(seat, work, encode_result)
            except TokenLost:
                self._take(self._mailbox.take_granted(seat.token))

    def _train(
        self,
        seat: Seat,
        work: Work,
        encode_result: Callable[[Any], bytes] | None,
    ) -> bytes:
        worker, step = self.worker, work.step
        begin = self._mailbox.wait_begin()
        worker.begin(begin)
        worker.full_clock_rows = max(1, self._clock_rows(begin, 0))
        seat.denied = ""
        _call(step, "start", worker)
        epochs = range(0) if begin.stop else range(begin.epoch, self._session.epochs)
        for epoch in epochs:
            self._epoch(epoch, begin, work)
            if worker.stopped:
                break
        worker.finish_reports()
        seat.denied = "in finish()"
        left = _call(step, "finish", worker)
        result = b"" if encode_result is None else encode_result(left)
        self._tell(Finish(self._session.id, self._rank, seat.token, result))
        self._confirm()
        return result

    def _confirm(self) -> None:
        """Wait until the coordinator has read what was told: it answers in order. A task must not
        end well before its end is known, since nobody would repeat it, nor when the end was
        refused: Spark would kill the task that holds the rank now.
        """
        if self._link is not None:
            self._link.request(GetView, self._client.settings.request_timeout)
            self._mailbox.check_token()

    def _validates(self, work: Work) -> bool:
        """Whether epochs have a clock for validation."""
        return work.validation is not None and self._session.clock_every == "batch"

    def _epoch(self, epoch: int, begin: Begin, work: Work) -> None:
        step, batches = work.step, work.batches
        worker, every = self.worker, self._session.clock_every
        end = (epoch + 1) * begin.clocks
        first = worker.clock - epoch * begin.clocks if every == "batch" else 0
        last = len(batches) - 1
        sums: dict[str, Any] = {}
        for number in range(first, len(batches)):
            worker.at(epoch, number, self._clock_rows(begin, number))
            add_numbers(sums, _metrics(step(worker, batches[number]), "step"))
            if every == "batch" and number < last:
                worker.end_clock(sums)
                sums = {}
        if first > last:
            worker.at(epoch, 0, self._clock_rows(begin, first))
        if self._validates(work) and worker.clock < end - 1:
            worker.end_clock(sums, to=end - 1)
            sums = {}
        self._validate(epoch, work, sums)
        _call(step, "end_epoch", worker)
        if every == "manual":
            worker.end_clock(sums, barrier=True, epoch_end=True)
        else:
            worker.end_clock(sums, to=end, barrier=self._barrier)

    def _validate(self, epoch: int, work: Work, sums: dict[str, Any]) -> None:
        """Add what ``step.validate`` returns for this rank's rows, which must train nothing."""
        worker, seat = self.worker, self._seat
        if not work.validation or seat is None:
            return
        seat.denied = "in validate()"
        for number, batch in enumerate(work.validation, len(work.batches)):
            worker.at(epoch, number, 1, validating=True)
            add_numbers(sums, _metrics(work.step.validate(worker, batch), "step.validate"))
        seat.denied, worker.validating = "", False

    def _clock_rows(self, begin: Begin, batch: int) -> int:
        """Rows of all ranks in a clock in bsp, of this rank otherwise."""
        ranks = (
            begin.rows
            if self._consistency.mode == "bsp"
            else begin.rows[self._rank : self._rank + 1]
        )
        size = self._session.batch_rows
        if self._session.clock_every != "batch" or size <= 0:
            return sum(ranks)
        return sum(min(size, max(0, rows - batch * size)) for rows in ranks)


def _may_go_away(error: Exception) -> bool:
    """Whether another attempt may do better. Who has lost the token has not failed at all."""
    own = isinstance(error, PSError)
    return isinstance(error, TokenLost) or (isinstance(error, OSError) and not own)


def _call(step: Any, name: str, worker: Worker) -> Any:
    """Call a method that a step object may have."""
    method = getattr(step, name, None)
    return method(worker) if callable(method) else None


def _metrics(returned: Any, function: str) -> Mapping[str, Any] | None:
    if returned is not None and not isinstance(returned, Mapping):
        raise WrongType(
            what=f"the result of {function}",
            got=type(returned).__name__,
            expected="a dict of numbers, or None",
        )
    return returned
