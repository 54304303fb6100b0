"""What ``prepare`` returned for each batch of a worker, kept for all epochs.

Batches stay in memory up to a limit. Beyond it their numpy arrays and Arrow batches move to a
temporary file that has no name (so nothing is left of it, however the worker ends) and are mapped
into memory from there: the kernel's page cache decides what stays. Everything else of a batch stays
in memory. Mapped arrays can be written like any others; what is written stays private to the
worker.

Arrays are found in tuples, lists, dicts and dataclasses; those inside other objects are neither
counted nor moved.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Any, overload

import numpy as np
import pyarrow as pa


class PreparedBatches(Sequence[Any]):
    """A list that spills.

    Parameters
    ----------
    limit
        Bytes of arrays to keep in memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: list[Any] = []
        self._file: IO[bytes] | None = None
        self.memory_bytes = 0
        self.file_bytes = 0

    def append(self, batch: Any) -> None:
        """Add what ``prepare`` returned."""
        size = nbytes(batch)
        if self.memory_bytes + size > self._limit:
            batch = _mapped(batch, self._write)
        else:
            self.memory_bytes += size
        self._batches.append(batch)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._batches[index]

    def __len__(self) -> int:
        return len(self._batches)

    def _write(self, data: memoryview) -> mmap.mmap:
        """Append to the file, at a page's beginning, and map what was written."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as self
            weakref.finalize(self, self._file.close)
        start = -(-self.file_bytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        descriptor, done = self._file.fileno(), 0
        while done < data.nbytes:
            done += os.pwrite(descriptor, data[done:], start + done)
        self.file_bytes = start + data.nbytes
        return mmap.mmap(descriptor, data.nbytes, access=mmap.ACCESS_COPY, offset=start)


def nbytes(value: Any) -> int:
    """Return the bytes of the arrays in a batch, as far as they are found."""
    if isinstance(value, (np.ndarray, pa.RecordBatch)):
        return int(value.nbytes)
    return sum(nbytes(child) for child in _children(value))


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, (tuple, list)):
        return value
    if isinstance(value, dict):
        return list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value) if field.init]
    return ()


def _mapped(value: Any, write: Callable[[memoryview], mmap.mmap]) -> Any:
    """Return ``value`` with its arrays in mapped memory."""
    if isinstance(value, np.ndarray):
        if value.nbytes == 0 or value.dtype.hasobject:
            return value
        flat = np.ascontiguousarray(value)
        pages = write(flat.reshape(-1).view(np.uint8).data)
        return np.frombuffer(pages, value.dtype).reshape(value.shape)
    if isinstance(value, pa.RecordBatch):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as stream:
            stream.write_batch(value)
        pages = write(memoryview(sink.getvalue()))
        return pa.ipc.open_stream(pa.py_buffer(pages)).read_next_batch()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(child, write) for child in value))
    if type(value) in (tuple, list):
        return type(value)(_mapped(child, write) for child in value)
    if type(value) is dict:
        return {key: _mapped(child, write) for key, child in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(
            value, **{name: _mapped(getattr(value, name), write) for name in names}
        )
    return value
