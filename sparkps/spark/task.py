"""What runs inside a Spark task of a training stage.

The order of events of a rank (SEMANTICS §4): register and wait for the gang; then read the rows and
prepare them, batch by batch; report their number and fingerprint; train; hand back the result. The
connection to the coordinator ends with the task, however it ends. A task whose rank another attempt
has finished returns at once.

One row goes back to Spark, so that the driver can tell a stage that has run from one that Spark
found nothing to do for. Everything else that a worker has to say goes through the coordinator.
"""

from __future__ import annotations

import os
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.taskcontext import TaskContext

from sparkps.client.shell import ClientInfo
from sparkps.client.training import join_run
from sparkps.client.worker import Worker
from sparkps.errors import InvalidSetting, WrongType
from sparkps.spark.prepared import PreparedBatches
from sparkps.spark.rows import RowStream
from sparkps.spec import SessionSpec

#: Schema of what a task returns, for Spark and for Arrow.
DONE_SCHEMA: Final = "rank int, rows long"
_DONE_ARROW: Final = pa.schema([("rank", pa.int32()), ("rows", pa.int64())])

Prepare = Callable[[Worker, pa.RecordBatch], Any]


@dataclass(frozen=True)
class TrainingTask:
    """Everything that a task needs to train; it travels by pickle.

    Attributes
    ----------
    info, session
        How to reach the coordinator, and which run this is.
    step, prepare
        The user's.
    validation
        The column that says which rows are for validation, or None.
    prepared_max_bytes
        Memory of prepared batches; beyond, they are mapped from a file.
    rows_directory
        Where the rows that ``step.finish`` returns are written.
    """

    info: ClientInfo
    session: SessionSpec
    step: Any
    prepare: Prepare | None
    validation: str | None
    prepared_max_bytes: int
    rows_directory: str

    def train(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Train on the rows of this task; the function of ``mapInArrow``."""
        context = TaskContext.get()
        if context is None:
            raise WrongType(
                what="TrainingTask.train", got="a call outside of Spark", expected="a Spark task"
            )
        rank = context.partitionId()
        rows = self._train(batches, rank, context.taskAttemptId(), context.attemptNumber() == 0)
        yield pa.RecordBatch.from_arrays(
            [pa.array([rank], pa.int32()), pa.array([rows])], schema=_DONE_ARROW
        )

    def _train(self, batches: Iterator[pa.RecordBatch], rank: int, task: int, first: bool) -> int:
        host = socket.gethostname()
        stream = RowStream(from_spark(batches), self.session.batch_rows, self.validation)
        joined = join_run(self.info, self.session, rank, host=host, task=task, first=first)
        with joined as run, told(rank, host):
            if run.finished:
                return Left.read(run.result).rows
            run.wait_for_gang()
            prepared = PreparedBatches(self.prepared_max_bytes)
            training: list[Any] = []
            held_out: list[Any] = []
            for batch, run.worker.validating in stream:
                prepared.append(batch if self.prepare is None else self.prepare(run.worker, batch))
                (held_out if run.worker.validating else training).append(prepared[-1])
            run.worker.validating = False
            # Arrow keeps the memory of the batches that are gone, for others that do not come.
            pa.default_memory_pool().release_unused()
            run.train(
                training,
                self.step,
                rows=stream.rows,
                fingerprint=stream.fingerprint,
                validation=None if self.validation is None else held_out,
                encode_result=RowsWriter(self.rows_directory, rank, stream.rows),
            )
        return stream.rows


@contextmanager
def told(rank: int, host: str) -> Iterator[None]:
    """Note on an exception where it was raised: its traceback does not travel, a note does."""
    try:
        yield
    except Exception as error:
        lines = "".join(traceback.format_exception(error)).rstrip()
        note = f"Raised in rank {rank} on {host} (pid {os.getpid()}):\n{lines}"
        if hasattr(error, "add_note"):  # since Python 3.11
            error.add_note(note)
        raise


class InputFailed(BaseException):
    """Spark could not give this task its rows. Spark knows why, and whether to try again.

    No ``Exception``: what failed is not the worker's code, so it must not end the run as a worker's
    own error does.
    """


def from_spark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass the batches on; an error in reading them becomes :class:`InputFailed`."""
    while True:
        try:
            batch = next(batches, None)
        except Exception as error:
            raise InputFailed("its rows could not be read; Spark's own error says why") from error
        if batch is None:
            return
        yield batch
        del batch


class Left(msgspec.Struct, array_like=True):
    """What the coordinator keeps of a rank that has finished: its rows read, and its file of rows
    written.
    """

    rows: int = 0
    file: str = ""

    @classmethod
    def read(cls, data: bytes) -> Left:
        """Decode what :class:`RowsWriter` returned."""
        return msgspec.msgpack.decode(data, type=cls)


@dataclass(frozen=True)
class RowsWriter:
    """Writes what ``step.finish`` returned to a file, whole or not at all; a repeated attempt
    replaces it.
    """

    directory: str
    rank: int
    rows: int

    def __call__(self, left: Any) -> bytes:
        name = "" if left is None else self._write(left)
        return msgspec.msgpack.encode(Left(self.rows, name))

    def _write(self, left: Any) -> str:
        if not isinstance(left, pa.RecordBatch):
            expected = "a pyarrow.RecordBatch, or None"
            raise WrongType(
                what="the result of step.finish", got=type(left).__name__, expected=expected
            )
        if not Path(self.directory).is_dir():
            raise InvalidSetting(
                name="rows.dir",
                value=self.directory,
                reason="the rows of step.finish go to a directory that the driver and all workers "
                f"share, and it is not on {socket.gethostname()}; set spark.sparkps.rows.dir",
            )
        name = f"rank-{self.rank:05}.parquet"
        handle, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=self.directory)
        try:
            with open(handle, "wb") as file:
                pq.write_table(pa.Table.from_batches([left]), file)
            os.replace(temporary, Path(self.directory, name))
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return name
