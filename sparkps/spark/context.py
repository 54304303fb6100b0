"""The context: what a user's driver holds to use the servers.

It starts the coordinator and the servers (through a launcher), makes tables, runs training and
stops everything. One context lives in a process at a time, because one SparkContext does. Rules:

* Servers run where the launch mode says (:mod:`.launch`), and a context waits for them
  (:mod:`.servers`). Those of an external cluster, and their tables, outlive it; those of the plugin
  live as long as Spark, and the tables as long as the context.
* Everything else ends with the driver: at ``stop()``, at the end of a ``with`` block, when Spark
  stops, at interpreter exit, and by the children's leashes however else the driver ends.
* Messages of the coordinator to this driver arrive in the control link's thread; each run takes its
  own from a queue.
"""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from sparkps import _log
from sparkps.client.shell import Client
from sparkps.config import Settings
from sparkps.errors import (
    ContextExists,
    ContextStopped,
    InvalidArgument,
    InvalidSetting,
    NotPicklable,
    WrongType,
)
from sparkps.optim.base import Optimizer
from sparkps.spark import frames
from sparkps.spark.arguments import (
    context_settings,
    table_spec,
    use_this_python,
)
from sparkps.spark.frames import DriverTable
from sparkps.spark.history import History
from sparkps.spark.run import Event, OnEpoch, RunOptions, train
from sparkps.spark.servers import Servers
from sparkps.spark.task import Prepare
from sparkps.spec import InitSpec
from sparkps.wire.messages import Message, Warned

#: Seconds between looks at whether Spark still runs. A stopped Spark tells nobody, and driver
#: Python may live on.
WATCH: Final = 0.5


_logger = _log.get("context")


class PSContext:
    """Parameter servers for one Spark application.

    Parameters
    ----------
    spark
        The session whose tasks will train.
    servers
        Number of server processes. By default, on a local master, one per four task slots, at least
        1, at most 8; with the plugin, those of the executors that Spark was asked for.
    **options
        Settings by name (``server_memory="2g"``); they override ``spark.sparkps.*`` of the session.
        What the plugin's servers need when they start can only be set there.

    Raises
    ------
    ContextExists
        There is one already.
    InvalidSetting
        A setting is wrong; or servers cannot be started on this master.
    LaunchFailed
        A coordinator or a server did not start.
    ServersMissing
        Fewer servers than asked for came within ``start.timeout``.

    Examples
    --------
    >>> with PSContext(spark, servers=2) as ps:
    ...     counts = ps.table("counts", dtype="int64")
    ...     counts.push([7, 2**40, 7], [1, 1, 1])
    ...     counts.collect()
    (array([            7, 1099511627776]), array([2, 1]))
    """

    _lock: ClassVar[threading.RLock] = threading.RLock()
    _current: ClassVar[PSContext | None] = None

    def __init__(self, spark: SparkSession, servers: int | None = None, **options: Any) -> None:
        if is_remote():
            raise InvalidSetting(
                name="launch",
                value="local",
                reason="a Spark Connect session cannot start servers beside its driver",
            )
        if not isinstance(spark, SparkSession):
            raise WrongType(what="spark", got=type(spark).__name__, expected="a SparkSession")
        if spark.sparkContext._jsc is None:
            reason = "was stopped; make a new one with SparkSession.builder.getOrCreate()"
            raise InvalidArgument(name="spark", value="a SparkSession", reason=reason)
        self.spark = spark
        self.settings, at_start = context_settings(spark, {"servers": servers, **options})
        self._spark_context = spark.sparkContext
        use_this_python(spark)
        self._stopping = threading.Event()
        self._why_stopped = ""
        self._subscribers: dict[int, queue.SimpleQueue[Event]] = {}
        with PSContext._lock:
            PSContext._live_one(refuse=True)
            self._servers = Servers(spark, self.settings, at_start, self._deliver)
            PSContext._current = self
        self._watcher = threading.Thread(target=self._watch, name="sparkps-watch", daemon=True)
        self._watcher.start()

    @classmethod
    def get_or_create(
        cls, spark: SparkSession, servers: int | None = None, **options: Any
    ) -> PSContext:
        """Return the context that lives, or a new one.

        Raises
        ------
        InvalidArgument
            There is one and it was made with other options than are asked for here.
        """
        with cls._lock:
            current = cls._live_one()
            if current is None:
                return cls(spark, servers, **options)
            for name, value in {"servers": servers, **options}.items():
                have = getattr(current.settings, name, None)
                wanted = getattr(Settings.load(None, **{name: value}), name)
                if value is not None and have != wanted:
                    how = "without it" if have is None else f"with {have!r}"
                    reason = f"the PSContext that is there was made {how}; stop it first"
                    raise InvalidArgument(name=name, value=value, reason=reason)
            return current

    @classmethod
    def connect(
        cls,
        address: str,
        spark: SparkSession | None = None,
        *,
        key_file: str | None = None,
        **options: Any,
    ) -> PSContext:
        """Use a cluster that runs already: ``python -m sparkps cluster`` starts one.

        Parameters
        ----------
        address
            Of its coordinator, as it prints it.
        spark
            The session whose tasks will train; by default the active one, or a new one.
        key_file
            File with its key, on every host; or the setting ``key.file``.
        **options
            Settings by name.

        Raises
        ------
        KeyMissing
            The cluster's ports ask for a key, and none is here.
        CoordinatorLost
            Nobody listens there, or it is of another key.
        """
        session = spark or SparkSession.builder.getOrCreate()
        return cls(session, coordinator=address, key_file=key_file, launch="external", **options)

    # -- tables

    def table(
        self,
        name: str,
        width: int | None = None,
        dim: int | None = None,
        dtype: Any = None,
        optimizer: Optimizer | None = None,
        init: float | InitSpec | None = None,
        seed: int | None = None,
        partitions: int | None = None,
        replace: bool = False,
        allow_nonfinite: bool | None = None,
    ) -> DriverTable:
        """Return a table: the one of that name, or a new one.

        A bare name gives the existing table. With anything else than the name, the table is made if
        there is none, and an existing one must have exactly that spec.

        Parameters
        ----------
        name
            1 to 255 bytes of printable characters.
        width
            Numbers per row; 1 by default.
        dim
            Dense: keys are ``0 <= key < dim`` and every row exists. None: any int64 key, rows come
            with their first write.
        dtype
            ``"float32"`` (the default), ``"float64"``, or ``"int64"``, which counts exactly.
        optimizer
            One of ``sparkps.optim``, or your own subclass; pushes are its gradients. None: pushes
            add.
        init
            What a new row holds: a number, ``sparkps.init.Normal(std)`` or
            ``sparkps.init.Uniform(a, b)``.
        seed
            Of random initial values.
        partitions
            Fixed for the life of the table; 64 by default, or ``dim`` where that is less.
        replace
            Drop an existing table of that name and begin anew.
        allow_nonfinite
            Let NaN and infinities be pushed.

        Raises
        ------
        TableNotFound
            A bare name that no table has.
        TableExists
            There is one with another spec.
        InvalidArgument
            An argument is wrong.
        """
        given = {
            "width": width,
            "dim": dim,
            "dtype": dtype,
            "optimizer": optimizer,
            "init": init,
            "seed": seed,
            "partitions": partitions,
            "allow_nonfinite": allow_nonfinite,
        }
        asked = {word: value for word, value in given.items() if value is not None}
        if not asked and not replace:
            return DriverTable(self, self.client.find_table(name))
        spec = table_spec(name, **asked)
        return self._servers.make(
            lambda: DriverTable(self, self.client.create_table(spec, replace))
        )

    def tables(self) -> list[DriverTable]:
        """Return handles of all tables, in the order in which they were made."""
        return [DriverTable(self, info) for info in self.client.tables()]

    def load(self, path: str | os.PathLike[str], name: str | None = None) -> DriverTable:
        """Make a new table of one that was saved, with its optimizer and all its fields.

        Parameters
        ----------
        path
            A local directory that ``table.save`` has written.
        name
            Name of the new table; by default the name it was saved under.

        Raises
        ------
        InvalidArgument
            There is a table of that name.
        BrokenModel
            The directory is no complete saved table, or a file is not what was saved.

        Notes
        -----
        A saved table whose optimizer is a user's own class holds that class as a pickle. Load
        such files only from where you would run code from.
        """
        return self._servers.make(lambda: frames.load_table(self, path, name))

    # -- runs

    def run(
        self,
        df: DataFrame,
        step: Any,
        *,
        epochs: int = 1,
        consistency: str = "bsp",
        workers: int | None = None,
        batch_rows: int = 4096,
        prepare: Prepare | None = None,
        on_epoch: OnEpoch | None = None,
        clock_every: str = "batch",
        seed: int = 0,
        ordered: bool = False,
        distribute: bool = False,
        validation: str | None = None,
    ) -> History:
        """Train: run ``step`` over the rows of ``df`` in Spark tasks that pull from the tables and
        push to them.

        Parameters
        ----------
        df
            The rows. They are put in a fixed pseudo-random order within each worker.
        step
            ``step(worker, batch)`` is called for every batch in every epoch; it returns metrics to
            be summed (a dict of numbers), or None. It may be an object that also has
            ``start(worker)``, ``validate(worker, batch)``, ``end_epoch(worker)`` and
            ``finish(worker)``; a ``pyarrow.RecordBatch`` that ``finish`` returns comes to
            ``history.rows``.
        epochs
            Passes over the rows.
        consistency
            ``"bsp"``: all workers in step, the same bits every time. ``"ssp:3"``: a worker may be 3
            clocks ahead of the slowest, and may see rows as it pulled them 3 clocks ago, without
            its own updates since; with ``on_epoch`` every epoch begins with fresh ones. ``"asp"``:
            nobody waits.
        workers
            Tasks that train at once; by default as many as there are task slots and input
            partitions for.
        batch_rows
            Rows of a batch.
        prepare
            ``prepare(worker, record_batch)`` is called once per batch; ``step`` gets what it
            returns, in every epoch. Without it ``step`` gets the ``pyarrow.RecordBatch``.
        on_epoch
            ``on_epoch(epoch, metrics)`` is called here after every epoch, while the workers wait.
            ``"stop"`` ends the run, a dict becomes ``worker.params``. The workers keep their task
            slots: a Spark job in it (``df.count()``) needs others, so train with fewer workers
            then, or the run ends with SlotsTaken after ``stall.fatal``.
        clock_every
            When a worker's clock ticks: after each ``"batch"``, each ``"epoch"``, or in
            ``worker.tick()`` only (``"manual"``).
        seed
            Of ``worker.rng`` and of the order of rows.
        ordered
            The rows of each input partition come in a fixed order already; do not sort them.
        distribute
            Place the rows on workers by their hash, by a shuffle: then the result depends on the
            rows and the number of workers alone, not on how the input is partitioned.
        validation
            Name of a boolean column. Rows in which it is true are no part of any batch of
            ``step``: they stay on their worker in batches of their own, ``prepare`` sees them
            with ``worker.validating``, and at the end of every epoch ``step.validate(worker,
            batch)``, which may pull and not push, returns numbers of them. They are summed like a
            step's, and with those of the step that have the same name: give them names of their
            own. With ``clock_every="batch"`` validation has a clock of its own, and in bsp sees all
            updates of the epoch; with ``"epoch"`` it sees what the epoch's steps saw, which is
            without them.

        Returns
        -------
        History
            A list with one dict of metrics per epoch.

        Raises
        ------
        NotEnoughSlots
            Before anything has run: more workers than task slots.
        InvalidInput
            The input has no rows.
        Exception
            A worker's own exception, as it was raised there. An ``OSError`` (a lost connection, an
            unreadable file) ends the run only when Spark has tried the task as often as
            ``spark.task.maxFailures`` says; any other ends it at once.
        """
        options = RunOptions(
            epochs,
            consistency,
            workers,
            batch_rows,
            prepare,
            on_epoch,
            clock_every,
            seed,
            ordered,
            distribute,
            validation,
        )
        self.check_alive()
        return train(self, df, step, options)

    # -- the context itself

    @property
    def client(self) -> Client:
        """The driver's client; raises ContextStopped after ``stop()``."""
        if self._stopping.is_set():
            raise ContextStopped(reason=self._why_stopped)
        return self._servers.client

    def status(self) -> dict[str, Any]:
        """Return what the coordinator knows: servers, tables, sessions."""
        return self.client.status()

    def stop(self) -> None:
        """Stop the servers and the coordinator; return when nothing of them is left. May be called
        twice.
        """
        self._stop("stop() was called")

    def check_alive(self) -> None:
        """Raise if this context was stopped, Spark has stopped, or the coordinator is lost."""
        if self._spark_context._jsc is None:
            self._stop("Spark was stopped")
        if self._stopping.is_set():
            raise ContextStopped(reason=self._why_stopped)
        lost = self._servers.launcher.why_lost()
        if lost is not None:
            raise lost

    def subscribe(self, session: int) -> queue.SimpleQueue[Event]:
        """Return the queue of a session's messages. For runs."""
        return self._subscribers.setdefault(session, queue.SimpleQueue())

    def unsubscribe(self, session: int) -> None:
        """No more messages of a session are wanted."""
        self._subscribers.pop(session, None)

    def directory(self, kind: str) -> Path:
        """Make a directory that is removed when the context stops."""
        self.client  # noqa: B018 - raises after stop(): nobody would remove it
        return self._servers.directory(kind)

    def __enter__(self) -> PSContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __reduce__(self) -> NoReturn:
        raise NotPicklable

    def __repr__(self) -> str:
        if self._stopping.is_set():
            return f"<PSContext stopped: {self._why_stopped}>"
        return f"<PSContext of {self._spark_context.applicationId} at {self._servers.endpoint}>"

    # -- inside

    def _deliver(self, message: Message) -> None:
        """Hand a message to its run; in the control link's thread."""
        events = self._subscribers.get(getattr(message, "session", 0))
        if events is not None:
            events.put(message)
        elif isinstance(message, Warned):
            _logger.warning(message.text)

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH):
            if self._spark_context._jsc is None:
                self._stop("Spark was stopped")

    def _stop(self, reason: str) -> None:
        with PSContext._lock:
            if self._stopping.is_set():
                return
            self._why_stopped = reason
            self._stopping.set()
            if PSContext._current is self:
                PSContext._current = None
            self._servers.let_go()

    @classmethod
    def _live_one(cls, *, refuse: bool = False) -> PSContext | None:
        """The context that lives; one whose Spark has stopped is stopped first."""
        current = cls._current
        if current is not None and current._spark_context._jsc is None:
            current._stop("Spark was stopped")
        if refuse and cls._current is not None:
            raise ContextExists
        return cls._current
