"""One training run, as the driver sees it.

A run is a session of the coordinator and one Spark action whose tasks are the session's ranks. The
order of things:

1. Arguments are checked and the plan is looked at (``plan``); what cannot work is refused before
   any job.
2. The user's functions are pickled. What cannot be is refused here.
3. The session is opened on every server.
4. The Spark action starts in a background thread; the calling thread handles what the coordinator
   tells: ends of epochs (where it runs ``on_epoch``), progress, warnings, the end. It is also where
   Ctrl-C arrives.
5. The session ends (its last writes sealed on every server), the action ends, the session is
   closed.

Whose error is raised:

* The session's, if it failed: a worker's own exception, as it was; or what the coordinator found (a
  stall, a lost server, an incomplete gang). Spark's exception, which says the same in more words,
  becomes its ``__cause__``.
* Otherwise Spark's own, if the action failed without any worker's doing (an unreadable file, say).
* An exception of ``on_epoch``, and Ctrl-C, end the session, cancel the action and pass through.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from pyspark.sql import DataFrame, SparkSession

from sparkps import _log
from sparkps.client.shell import Client
from sparkps.client.worker import as_params
from sparkps.config import Settings, is_on
from sparkps.errors import (
    InvalidArgument,
    InvalidInput,
    NotPicklable,
    PSError,
    PSTimeout,
    SessionEnded,
    SlotsTaken,
    WrongType,
    from_wire,
)
from sparkps.spark.history import History
from sparkps.spark.job import SparkJob
from sparkps.spark.plan import training_input
from sparkps.spark.progress import ProgressLine, style
from sparkps.spark.task import DONE_SCHEMA, Prepare, TrainingTask
from sparkps.spark.waiting import SlotWatch
from sparkps.spec import SessionSpec, no_column, parse_consistency
from sparkps.wire import userfn
from sparkps.wire.messages import (
    Continue,
    Ended,
    EpochEnded,
    Message,
    OpenSession,
    Progress,
    Warned,
)

#: Seconds for Spark to give up a stage whose worker has raised: it tries the task again some times,
#: each of which fails as soon as it has asked, and only then tells what the worker raised.
GIVING_UP: Final = 30.0
#: Seconds for an action to end that was cancelled: Spark kills the task's process after 2 s.
CANCELLING: Final = 10.0
#: Seconds between looks at whether the coordinator and Spark still live, when nothing is heard of
#: them.
PULSE: Final = 1.0

OnEpoch = Callable[[int, dict[str, Any]], Any]
_logger = _log.get("run")


class JobDone:
    """The event that the Spark action has ended."""


Event = Message | JobDone


class Running(Protocol):
    """What a run needs of its PSContext."""

    spark: SparkSession
    settings: Settings

    @property
    def client(self) -> Client:
        """The driver's client."""

    def subscribe(self, session: int) -> queue.SimpleQueue[Event]:
        """Return the queue of the session's messages."""

    def unsubscribe(self, session: int) -> None:
        """No more messages of the session are wanted."""

    def directory(self, kind: str) -> Path:
        """Make a directory that lives as long as the context."""

    def check_alive(self) -> None:
        """Raise if the coordinator or Spark is gone."""


@dataclass(frozen=True)
class RunOptions:
    """The arguments of ``ps.run``, checked."""

    epochs: int = 1
    consistency: str = "bsp"
    workers: int | None = None
    batch_rows: int = 4096
    prepare: Prepare | None = None
    on_epoch: OnEpoch | None = None
    clock_every: str = "batch"
    seed: int = 0
    ordered: bool = False
    distribute: bool = False
    validation: str | None = None

    def __post_init__(self) -> None:
        parse_consistency(self.consistency)
        for name, low in (("epochs", 1), ("batch_rows", 1), ("seed", -(2**63))):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
                raise InvalidArgument(
                    name=name, value=value, reason=f"must be a whole number from {low}"
                )
        for name in ("prepare", "on_epoch"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise WrongType(what=name, got=type(value).__name__, expected="a function, or None")
        for name in ("ordered", "distribute"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidArgument(name=name, value=value, reason="must be True or False")
        if self.clock_every not in ("batch", "epoch", "manual"):
            reason = 'must be "batch", "epoch" or "manual"'
            raise InvalidArgument(name="clock_every", value=self.clock_every, reason=reason)

    def session(self, workers: int) -> SessionSpec:
        """The session to open, with a random number that nobody else has taken."""
        return SessionSpec(
            id=secrets.randbits(62) | 1,
            size=workers,
            consistency=str(parse_consistency(self.consistency)),
            epochs=self.epochs,
            clock_every=self.clock_every,  # type: ignore[arg-type]
            barrier_epochs=self.on_epoch is not None,
            batch_rows=self.batch_rows,
            seed=self.seed,
        )


def train(context: Running, df: DataFrame, step: Any, options: RunOptions) -> History:
    """Run ``step`` over the rows of ``df``; see :meth:`sparkps.PSContext.run`."""
    if not callable(step):
        raise WrongType(
            what="step", got=type(step).__name__, expected="a function step(worker, batch)"
        )
    plan = training_input(
        df,
        workers=options.workers,
        seed=options.seed,
        ordered=options.ordered,
        distribute=options.distribute,
    )
    if options.validation is not None:
        _check_validation(df, step, options.validation)
    spec = options.session(plan.workers)
    directory = context.directory("rows")
    task = TrainingTask(
        context.client.info,
        spec,
        step,
        options.prepare,
        options.validation,
        context.settings.prepared_max_bytes,
        str(directory),
    )
    frame = _shipped(plan.frame, task)
    token = _open(context, spec)
    history = History(context.spark, spec.id, plan.workers, directory)
    return _Run(context, spec, token, options.on_epoch, history).supervise(frame)


def _check_validation(df: DataFrame, step: Any, column: str) -> None:
    if column not in df.columns:
        raise InvalidArgument(name="validation", value=column, reason=no_column(column, df.columns))
    kind = df.schema[column].dataType.simpleString()
    if kind != "boolean":
        raise WrongType(what=f"column {column!r}", got=kind, expected="a boolean")
    if not callable(getattr(step, "validate", None)):
        expected = "an object with validate(worker, batch), for the rows for validation"
        raise WrongType(what="step", got=type(step).__name__, expected=expected)


def _shipped(frame: DataFrame, task: TrainingTask) -> DataFrame:
    """Pickle the task into the plan; Spark's word for what cannot be pickled hides ours."""
    try:
        return frame.mapInArrow(task.train, DONE_SCHEMA)
    except Exception as error:
        if isinstance(error.__context__, NotPicklable):
            raise error.__context__ from None
        raise


def _open(context: Running, spec: SessionSpec) -> int:
    """Open the session and return the driver's token in it.

    This waits while another run of the application gathers its workers.
    """
    settings = context.settings
    try:
        number, token = context.client.request(
            lambda request: OpenSession(request, spec),
            timeout=settings.gang_timeout + settings.request_timeout,
        )
    except BaseException:
        with contextlib.suppress(PSError):
            context.client.close_session(spec.id)
        raise
    if number != spec.id:
        context.client.close_session(number)
        raise InvalidArgument(name="session", value=spec.id, reason="is another run's; try again")
    return int(token)


class _Run:
    """The events of one run."""

    def __init__(
        self,
        context: Running,
        spec: SessionSpec,
        token: int,
        on_epoch: OnEpoch | None,
        history: History,
    ) -> None:
        self._context = context
        self._spec = spec
        self._token = token
        self._on_epoch = on_epoch
        self._history = history
        self._events = context.subscribe(spec.id)
        bar = is_on(context.spark.conf.get("spark.ui.showConsoleProgress", "false"))
        shown = style(sys.stderr, wanted=context.settings.progress, sparks_bar=bar)
        self._progress = ProgressLine(sys.stderr, spec.epochs, shown)
        #: Of the jobs that on_epoch runs.
        self._tag = f"sparkps-{spec.id:x}-on-epoch"

    def supervise(self, frame: DataFrame) -> History:
        """Run the action that collects ``frame`` and handle events until the run is over."""
        spec = self._spec
        text = f"sparkps: {spec.size} workers, {spec.epochs} epochs, {spec.consistency}"
        tag = None if self._on_epoch is None else self._tag
        job = SparkJob(
            frame,
            f"sparkps-{spec.id:x}",
            text,
            tag,
            lambda: self._events.put(JobDone()),
        )
        context = self._context.spark.sparkContext
        try:
            if tag is not None:
                context.addJobTag(tag)  # before the job: this thread calls no JVM while it runs
            job.start()
            self._until_done(job)
        except BaseException as error:
            self._abandon(job, error)
            raise
        finally:
            if tag is not None and context._jsc is not None:
                with contextlib.suppress(Exception):  # the JVM may be gone
                    context.removeJobTag(tag)
            self._progress.close()
            self._context.unsubscribe(spec.id)
        self._context.client.close_session(spec.id)
        return self._history

    def _until_done(self, job: SparkJob) -> None:
        """Handle events until session and action have come to a good end; raise otherwise."""
        ended, done, since = False, False, 0.0
        while not (ended and done):
            try:
                event = self._events.get(timeout=PULSE)
            except queue.Empty:
                self._context.check_alive()
                waited = time.monotonic() - since
                if done and waited > self._context.settings.stall_fatal:
                    what = "the coordinator to end the run, whose tasks are done"
                    raise PSTimeout(seconds=round(waited), what=what) from None
                continue
            if isinstance(event, JobDone):
                done, since = True, time.monotonic()
                self._check_job(job)
            elif isinstance(event, Ended):
                ended = True
                if event.code:
                    self._fail(job, event)
            else:
                self._handle(event)

    def _handle(self, event: Message) -> None:
        if isinstance(event, EpochEnded):
            self._history.append(dict(event.metrics))
            self._progress.epoch_ended(event.metrics)
            if event.wait:
                self._end_of_epoch(event)
        elif isinstance(event, Progress):
            self._progress.moved(event)
        elif isinstance(event, Warned):
            _logger.warning(event.text)

    def _end_of_epoch(self, event: EpochEnded) -> None:
        """Run ``on_epoch`` here, with this thread's table handles in the run; then all go on."""
        client = self._context.client
        said = None
        watch = self._watch()
        try:
            if self._on_epoch is not None:
                with watch, client.in_run(self._spec, self._token, event.clock):
                    said = self._on_epoch(event.epoch, dict(event.metrics))
            stop = isinstance(said, str) and said == "stop"
            if not (stop or said is None or isinstance(said, dict)):
                expected = '"stop", a dict of params, or None'
                raise WrongType(what="the result of on_epoch", got=repr(said), expected=expected)
            params = as_params(said) if isinstance(said, dict) else None
            client.request(
                lambda request: Continue(request, self._spec.id, event.epoch, params, stop)
            )
        except SessionEnded as error:
            if watch.error is not None:
                raise watch.error from error
            self._raise_why_ended(error)

    def _watch(self) -> SlotWatch:
        spec = self._spec

        def end(error: SlotsTaken) -> None:
            self._context.client.close_session(spec.id, *error.to_wire())

        context = self._context
        return SlotWatch(context.spark.sparkContext, context.settings, spec.size, self._tag, end)

    def _raise_why_ended(self, error: SessionEnded) -> NoReturn:
        """A server refused ``on_epoch`` because the run has failed meanwhile; the coordinator says
        why, a moment later.
        """
        deadline = time.monotonic() + PULSE
        while (left := deadline - time.monotonic()) > 0:
            try:
                event = self._events.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(event, Ended) and event.code:
                raise _error_of(event) from error
        raise error

    def _check_job(self, job: SparkJob) -> None:
        """The action has ended: raise if it failed, or if there was no row."""
        if job.error is not None:
            self._raise_of_job(job.error)
        if not any(row.rows for row in job.rows or ()):
            raise InvalidInput(where="the training DataFrame", reason="it has no rows to train on")

    def _raise_of_job(self, error: Exception) -> NoReturn:
        """Raise what lies behind a failed action.

        If the session failed, that was told before the answer to the closing of it; if a worker's
        errors were not fatal one by one but Spark has given up, the answer holds the last of them;
        else it is Spark's own failure.
        """
        kept = self._context.client.close_session(self._spec.id)
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, Ended) and event.code:
                raise _error_of(event) from error
        if kept is not None and kept["error"]:
            raise userfn.load_error(kept["error"]) from error
        raise error

    def _fail(self, job: SparkJob, event: Ended) -> NoReturn:
        """Raise the session's error, once its tasks have ended; Spark's words become its cause."""
        self._end(job, GIVING_UP if event.error else PULSE)
        raise _error_of(event) from job.error

    def _abandon(self, job: SparkJob, error: BaseException) -> None:
        """End what is left of a run that has failed here: its workers leave, its action ends."""
        ended = SessionEnded(session=self._spec.id, reason=userfn.words(error))
        try:
            self._context.client.close_session(self._spec.id, *ended.to_wire())
        except PSError as second:
            _logger.warning("the run's session could not be closed either: %s", second)
        self._end(job, 0 if isinstance(error, KeyboardInterrupt) else PULSE)

    def _end(self, job: SparkJob, seconds: float) -> None:
        """Let the action end by itself, for so long; then cancel it."""
        if not job.join(seconds):
            job.cancel()
            job.join(CANCELLING)


def _error_of(event: Ended) -> BaseException:
    """The exception that a session has ended with."""
    return userfn.load_error(event.error) if event.error else from_wire(event.code, event.fields)
