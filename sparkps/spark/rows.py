"""The rows of one rank, as they stream into its task: fixed order, fingerprint, batches of
``batch_rows``; rows for validation in batches of their own.

Spark sorts the rows of a rank by a hash of their columns and sends the hash along as the last
column (``HASH``). Here the hashes are folded into an order-dependent fingerprint, the column is cut
off, and the stream of Arrow batches, which has Spark's sizes, is cut into batches of ``batch_rows``
rows. A batch that lies within one Arrow batch is a view of it; one that crosses a boundary is
copied, and so is an Arrow batch that has rows of both kinds. An Arrow batch is let go as soon as
its last rows have been handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from sparkps.errors import InvalidInput, WrongType
from sparkps.kernels.keys import fingerprint
from sparkps.spark.batches import concatenated

#: Name of the column that carries the hash of a row to its task; never seen by the user's code.
HASH: Final = "__sparkps_row_hash__"


class Rows(NamedTuple):
    """A batch of rows, and whether they are for validation."""

    batch: pa.RecordBatch
    validating: bool


class RowStream:
    """Iterate over batches of ``batch_rows`` rows; the last one of a rank may be shorter, and the
    last one for validation.

    Parameters
    ----------
    batches
        As Spark sends them; their last column is the hash.
    batch_rows
    validation
        Name of the boolean column that is true in rows for validation; None where all rows are for
        training.

    Attributes
    ----------
    rows
        Rows for training handed out so far.
    fingerprint
        Of the hashes of all rows read so far; final when the stream has ended.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], batch_rows: int, validation: str | None = None
    ) -> None:
        self._batches = batches
        self._validation = validation
        self._training, self._validating = Cutter(batch_rows), Cutter(batch_rows)
        self.rows = 0
        self.fingerprint = 0

    def __iter__(self) -> Iterator[Rows]:
        for batch in map(self._fingerprinted, self._batches):
            training, validating = _divided(batch, self._validation)
            del batch
            yield from (Rows(cut, True) for cut in self._validating.put(validating))
            del validating
            yield from self._counted(self._training.put(training))
            del training
        yield from self._counted(self._training.rest())
        yield from (Rows(cut, True) for cut in self._validating.rest())

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Rows]:
        for batch in batches:
            self.rows += batch.num_rows
            yield Rows(batch, False)

    def _fingerprinted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        last = batch.num_columns - 1
        hashes = batch.column(last).to_numpy(zero_copy_only=False)
        self.fingerprint = fingerprint(hashes, self.fingerprint)
        return batch.remove_column(last)


class Cutter:
    """Cuts a stream of batches into batches of exactly ``rows`` rows; only the last one may have
    fewer.

    Examples
    --------
    >>> import pyarrow as pa
    >>> cutter = Cutter(4)
    >>> [[cut.num_rows for cut in cutter.put(pa.record_batch({"x": [0] * n}))] for n in (5, 0, 4)]
    [[4], [], [4]]
    >>> [cut.num_rows for cut in cutter.rest()]
    [1]
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._pieces: list[pa.RecordBatch] = []
        self._have = 0

    def put(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch in, and hand out those that are full."""
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, self._rows - self._have)
            self._pieces.append(piece)
            self._have += piece.num_rows
            start += piece.num_rows
            del piece
            if self._have == self._rows:
                self._have = 0
                yield concatenated(_taken(self._pieces))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Hand out what is left, if anything is."""
        if self._pieces:
            yield concatenated(_taken(self._pieces))


def _divided(batch: pa.RecordBatch, name: str | None) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows for training and those for validation, in their order; a copy if there are both."""
    nothing = batch.slice(0, 0)
    if name is None:
        return batch, nothing
    held_out = _indicator(batch, name)
    if held_out.true_count in (0, len(held_out)):
        return (nothing, batch) if held_out.true_count else (batch, nothing)
    return batch.filter(pc.invert(held_out)), batch.filter(held_out)


def _indicator(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column that says which rows are for validation."""
    column = batch.column(batch.schema.get_field_index(name))
    if not types.is_boolean(column.type):
        raise WrongType(what=f"column {name!r}", got=str(column.type), expected="a boolean")
    if column.null_count:
        reason = f"{column.null_count} of {len(column)} rows of a batch are null; fill them first"
        raise InvalidInput(where=f"column {name!r}", reason=reason)
    return column


def _taken(pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Empty the list, so that the generator keeps no batch alive while its consumer works."""
    taken = pieces[:]
    pieces.clear()
    return taken
