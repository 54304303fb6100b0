"""Training without Spark: one process per rank, started again when it fails, and the driver's side
of a run.

It plays Spark's part (:class:`Workers`) and that of ``ps.run``, as far as a test needs: it handles
the events of the session in their order and calls ``on_epoch`` on the thread that waits. The rows
are given, not read.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from sparkps import _log
from sparkps.client.shell import Client, ClientInfo
from sparkps.client.worker import as_params
from sparkps.config import child_environment
from sparkps.errors import PSError, PSTimeout, SessionEnded, from_wire
from sparkps.spec import SessionSpec
from sparkps.wire import userfn
from sparkps.wire.messages import Continue, Ended, EpochEnded, Message, Progress, Warned

#: Spark's spark.task.maxFailures.
MAX_FAILURES: Final = 4
_PULSE: Final = 0.2
_logger: Final = _log.get("testing")

OnEpoch = Callable[[int, dict[str, Any]], Any]


class Task:
    """One attempt of a rank: a process."""

    def __init__(
        self, rank: int, attempt: int, payload: bytes, ended: Callable[[Task], None]
    ) -> None:
        self.rank = rank
        self.attempt = attempt
        self.code: int | None = None
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sparkps.testing.task"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            start_new_session=True,
        )
        self._payload = payload
        self._ended = ended
        self.thread = threading.Thread(target=self._watch, name=f"sparkps-task-{rank}", daemon=True)
        self.thread.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def _watch(self) -> None:
        stdin = self.process.stdin
        output = self.process.stdout
        if stdin is None or output is None:
            return
        with contextlib.suppress(BrokenPipeError):
            # Its stdin stays open as its leash: the length comes first.
            stdin.write(len(self._payload).to_bytes(8, "little") + self._payload)
            stdin.flush()
        self.output = output.read()
        self.code = self.process.wait()
        output.close()
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
        self._ended(self)


class Workers:
    """A run with one task process per rank.

    Parameters
    ----------
    client, info
        The driver's client, and how tasks reach the cluster.
    step, batches
        As of ``ps.run``; ``batches[rank]`` are the prepared batches of a rank.
    on_epoch
        ``on_epoch(epoch, metrics)``: ``"stop"``, a dict of params, or None.
    consistency, epochs, clock_every, seed, batch_rows
        As of ``ps.run``.
    rows
        Rows of each rank, for ``worker.clock_rows``; by default ``batch_rows`` per batch.
    attempts
        How often a rank is started before the run fails; 1 for no retry.

    Attributes
    ----------
    history : list of dict
        Rows so far.
    warnings : list of str
        What the coordinator warned of.
    tasks : dict of int to Task
        The newest attempt of each rank.
    progress : list of Progress
        What the coordinator told of the clocks.
    """

    def __init__(
        self,
        client: Client,
        info: ClientInfo,
        step: Any,
        batches: Sequence[Sequence[Any]],
        *,
        consistency: str = "bsp",
        epochs: int = 1,
        clock_every: Literal["batch", "epoch", "manual"] = "batch",
        on_epoch: OnEpoch | None = None,
        seed: int = 0,
        batch_rows: int = 1,
        rows: Sequence[int] | None = None,
        attempts: int = MAX_FAILURES,
    ) -> None:
        self._client = client
        self._info = info
        self._step = step
        self._batches = batches
        self._on_epoch = on_epoch
        self._attempts = attempts
        self._rows = list(rows) if rows is not None else [batch_rows * len(own) for own in batches]
        self.spec = SessionSpec(
            0,
            len(batches),
            consistency,
            epochs,
            clock_every,
            on_epoch is not None,
            batch_rows,
            seed,
        )
        self.token = 0
        self.history: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.progress: list[Progress] = []
        self.tasks: dict[int, Task] = {}
        self._all: list[Task] = []
        self._events: queue.SimpleQueue[Message | Task] = queue.SimpleQueue()
        self._closed = False
        self._before: Callable[[Message], object] | None = None
        self._on_message: Callable[[Message], object] | None = None

    def start(self) -> None:
        """Open the session and start the tasks."""
        session, self.token = self._client.open_session(self.spec)
        self.spec = SessionSpec(
            session, *(getattr(self.spec, name) for name in self.spec.__struct_fields__[1:])
        )
        before = self._before = self._client.on_message

        def on_message(message: Message) -> None:
            if getattr(message, "session", None) == session:
                self._events.put(message)
            elif before is not None:
                before(message)

        self._on_message = self._client.on_message = on_message
        for rank in range(self.spec.size):
            self.start_task(rank)

    def start_task(self, rank: int, attempt: int = 0) -> Task:
        """Start (another) task of a rank."""
        payload = userfn.dumps(
            (
                self._info,
                None if self._client.secret is None else self._client.secret.hex,
                self.spec,
                rank,
                attempt,
                self._step,
                self._batches[rank],
                self._rows[rank],
            )
        )
        task = Task(rank, attempt, payload, self._events.put)
        self.tasks[rank] = task
        self._all.append(task)
        return task

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to the newest task of a rank."""
        os.kill(self.tasks[rank].pid, number)

    def wait(self, timeout: float) -> list[dict[str, Any]]:
        """Handle events until the run is over; return the history, or raise what it failed with."""
        deadline = time.monotonic() + timeout
        complete = False
        while not (complete and all(task.code is not None for task in self.tasks.values())):
            try:
                event = self._events.get(timeout=min(_PULSE, max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    raise PSTimeout(seconds=timeout, what=f"a run; {self._states()}") from None
                continue
            if isinstance(event, Task):
                self._task_ended(event)
            elif isinstance(event, Ended):
                if event.code:
                    raise _error_of(event)
                complete = True
            else:
                self.handle(event)
        return self.history

    def handle(self, event: Message) -> None:
        """Handle an event of the driver that does not end the run."""
        if isinstance(event, EpochEnded):
            self.history.append(event.metrics)
            if event.wait:
                self._end_of_epoch(event)
        elif isinstance(event, Warned):
            self.warnings.append(event.text)
        elif isinstance(event, Progress):
            self.progress.append(event)

    def close(self) -> None:
        """Close the session, and kill the tasks that are left."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.spec.id and not self._client.closed:
                self._client.close_session(self.spec.id)
        except PSError as error:
            # The coordinator may be what the test has killed; the tasks end below all the same.
            _logger.info("the session could not be closed: %s", error)
        finally:
            if self._client.on_message is self._on_message:
                self._client.on_message = self._before
            for task in self._all:
                if task.code is None:
                    task.process.kill()
            for task in self._all:
                task.thread.join()

    def _end_of_epoch(self, event: EpochEnded) -> None:
        said = None
        if self._on_epoch is not None:
            with self._client.in_run(self.spec, self.token, event.clock):
                said = self._on_epoch(event.epoch, event.metrics)
        params = as_params(said) if isinstance(said, dict) else None
        self._client.request(
            lambda number: Continue(number, self.spec.id, event.epoch, params, said == "stop")
        )

    def _task_ended(self, task: Task) -> None:
        if task.code == 0 or task is not self.tasks[task.rank]:
            return
        if task.attempt + 1 < self._attempts:
            self.start_task(task.rank, task.attempt + 1)
            return
        kept = self._client.close_session(self.spec.id)
        if kept is not None and kept["error"]:
            raise userfn.load_error(kept["error"])
        output = task.output.decode("utf-8", "replace")
        raise SessionEnded(
            session=self.spec.id, reason=f"rank {task.rank} ended with {task.code}:\n{output}"
        )

    def _states(self) -> str:
        return ", ".join(
            f"rank {rank} attempt {task.attempt} "
            + ("runs" if task.code is None else f"ended with {task.code}: {task.output[-2000:]!r}")
            for rank, task in sorted(self.tasks.items())
        )


def _error_of(event: Ended) -> BaseException:
    return userfn.load_error(event.error) if event.error else from_wire(event.code, event.fields)
