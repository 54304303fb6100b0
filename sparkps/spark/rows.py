"""The rows of one rank, as they stream into its task: fixed order, fingerprint, batches of
``batch_rows``.

Spark sorts the rows of a rank by a hash of their columns and sends the hash along as the last
column (``HASH``). Here the hashes are folded into an order-dependent fingerprint, the column is cut
off, and the stream of Arrow batches, which has Spark's sizes, is cut into batches of ``batch_rows``
rows. A batch that lies within one Arrow batch is a view of it; one that crosses a boundary is
copied, and nothing else is. An Arrow batch is let go as soon as its last rows have been handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from sparkps.kernels.keys import fingerprint
from sparkps.spark.batches import concatenated

#: Name of the column that carries the hash of a row to its task; never seen by the user's code.
HASH: Final = "__sparkps_row_hash__"


class RowStream:
    """Iterate over batches of ``batch_rows`` rows; the last one of a rank may be shorter.

    Attributes
    ----------
    rows
        Rows handed out so far.
    fingerprint
        Of the hashes of all rows read so far; final when the stream has ended.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], batch_rows: int) -> None:
        self._batches = batches
        self._batch_rows = batch_rows
        self.rows = 0
        self.fingerprint = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in resliced(map(self._fingerprinted, self._batches), self._batch_rows):
            self.rows += batch.num_rows
            yield batch

    def _fingerprinted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        last = batch.num_columns - 1
        hashes = batch.column(last).to_numpy(zero_copy_only=False)
        self.fingerprint = fingerprint(hashes, self.fingerprint)
        return batch.remove_column(last)


def resliced(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut a stream of batches into batches of exactly ``rows`` rows; only the last one may have
    fewer.

    Examples
    --------
    >>> import pyarrow as pa
    >>> batches = [pa.record_batch({"x": list(range(n))}) for n in (5, 0, 4)]
    >>> [batch.num_rows for batch in resliced(batches, 4)]
    [4, 4, 1]
    """
    pieces: list[pa.RecordBatch] = []
    have = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, rows - have)
            pieces.append(piece)
            have += piece.num_rows
            start += piece.num_rows
            del piece
            if have == rows:
                yield concatenated(_taken(pieces))
                have = 0
        del batch
    if pieces:
        yield concatenated(_taken(pieces))


def _taken(pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Empty the list, so that the generator keeps no batch alive while its consumer works."""
    taken = pieces[:]
    pieces.clear()
    return taken
