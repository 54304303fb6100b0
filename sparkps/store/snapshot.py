"""A partition's file: what the snapshot child of a server writes, and what a load reads.

One Parquet file per partition with the column ``key`` (int64) and one per field, rows in row order.
Fields of width k are lists of k numbers, which Spark reads as arrays. :func:`write_partition`
returns the partition's entry of the manifest, with the checksum of the file's bytes;
:func:`read_partition` refuses a file that does not have it.

pyarrow is imported by the functions that need it, since a server must never load it: it is forked,
and the child, which has one thread, imports it for itself. Nothing here starts a thread.

Not here: the manifest and the directory (``manifest``), forking (``sparkps.server``), whose rows
these are (``table``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparkps.errors import BrokenModel
from sparkps.spec import TableSpec
from sparkps.store.manifest import Entry, Manifest, SavedField, partition_file
from sparkps.store.table import KEY, Table

Array = NDArray[Any]

#: Numbers of one row group and column at most: bounds the memory that the child takes beside the
#: table's own.
GROUP_NUMBERS: Final = 1 << 20
#: Weights have no pattern to find; fields at 0 and keys of dense tables have, and snappy costs
#: little.
COMPRESSION: Final = "snappy"


def saved_fields(table: Table) -> tuple[SavedField, ...]:
    """Return the manifest's description of a table's fields."""
    return tuple(
        SavedField(field.name, "int64" if field.per_row else table.spec.dtype, field.per_row)
        for field in table.field_specs
    )


def save_partition(
    directory: str, table: Table, partition: int, ledgers: Sequence[Any] = ()
) -> dict[str, Any]:
    """Write a partition of a table; see :func:`write_partition`."""
    return write_partition(
        directory,
        partition,
        table.arrays(partition),
        log=int(table.array.log(partition)),
        applied=int(table.applied[partition]),
        ledgers=ledgers,
    )


def write_partition(
    directory: str,
    partition: int,
    arrays: Mapping[str, Array],
    *,
    log: int = 0,
    applied: int = 0,
    ledgers: Sequence[Any] = (),
) -> dict[str, Any]:
    """Write one partition to ``part-<number>.parquet`` and return its ``Entry`` as a dict.

    Parameters
    ----------
    directory
        An existing local directory. A file of that name there is replaced.
    partition
        Its number.
    arrays
        ``key`` int64 ``(rows,)``, then every field, ``(rows,)`` or ``(rows, width)``, as
        ``Table.arrays`` gives them.
    log, applied, ledgers
        Go into the entry.

    Raises
    ------
    OSError
        If the disk is full or the directory is gone.
    """
    import pyarrow as pa  # noqa: PLC0415 - the snapshot child imports pyarrow itself
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows = len(arrays[KEY])
    types = {name: _arrow_type(pa, array) for name, array in arrays.items()}
    schema = pa.schema([pa.field(name, types[name], nullable=False) for name in arrays])
    widest = max(array[:1].size for array in arrays.values()) if rows else 1
    step = max(1, GROUP_NUMBERS // widest)
    path = Path(directory) / partition_file(partition)
    with path.open("wb") as file:
        sink = _Hashing(file)
        with pq.ParquetWriter(
            sink,
            schema,
            compression=COMPRESSION,
            # A dictionary of distinct weights is as large as the weights.
            use_dictionary=False,
            write_statistics=[KEY],
        ) as writer:
            for start in range(0, rows, step):
                columns = [
                    _arrow_array(pa, array[start : start + step], types[name])
                    for name, array in arrays.items()
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        file.flush()
        os.fsync(file.fileno())
    entry = Entry(
        partition, path.name, rows, sink.size, sink.hash.hexdigest(), log, applied, list(ledgers)
    )
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return plain


def read_partition(
    path: str, manifest: Manifest, partition: int, fields: Sequence[str] | None = None
) -> dict[str, Array]:
    """Read one partition of the saved table at ``path``.

    Parameters
    ----------
    path
        The directory.
    manifest
        As :func:`~sparkps.store.manifest.read_manifest` gave it.
    partition
        Its number.
    fields
        Names of the fields wanted; all by default.

    Returns
    -------
    dict
        ``key`` and the fields, in row order: fresh arrays as ``Table.load`` takes them.

    Raises
    ------
    BrokenModel
        If the file is missing, its checksum differs, or its columns are not what the manifest says.
    """
    import pyarrow as pa  # noqa: PLC0415 - the snapshot child imports pyarrow itself
    import pyarrow.parquet as pq  # noqa: PLC0415

    entry = manifest.entries[partition]
    try:
        data = (Path(path.removeprefix("file://")) / entry.file).read_bytes()
    except OSError as error:
        raise BrokenModel(path=path, reason=f"{entry.file}: {error.strerror}") from None
    if len(data) != entry.bytes or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise BrokenModel(path=path, reason=f"{entry.file} is not what was saved (checksum)")
    wanted = [field for field in manifest.fields if fields is None or field.name in fields]
    try:
        table = pq.read_table(
            pa.BufferReader(data), columns=[KEY, *(f.name for f in wanted)], use_threads=False
        )
        arrays = {KEY: _numpy(table.column(KEY), "int64", entry.rows, 1)}
        for field in wanted:
            width = 1 if field.per_row else manifest.spec.width
            arrays[field.name] = _numpy(table.column(field.name), field.dtype, entry.rows, width)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise BrokenModel(path=path, reason=f"{entry.file}: {error}") from None
    return arrays


def make_manifest(
    spec: TableSpec,
    fields: Sequence[SavedField],
    entries: Sequence[Mapping[str, Any]],
    *,
    sealed: bool = True,
    extra: Mapping[str, Any] | None = None,
) -> Manifest:
    """Return the manifest of the entries that the servers reported, in any order."""
    made = sorted((msgspec.convert(e, Entry) for e in entries), key=lambda e: e.partition)
    return Manifest(spec, tuple(fields), tuple(made), sealed, dict(extra or {}))


class _Hashing:
    """A file that pyarrow writes to, which hashes what passes: the file need not be read again."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self.hash.update(data)
        written = self._file.write(data)
        self.size += written
        return written

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """The file is closed by who opened it."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _arrow_type(pa: Any, array: Array) -> Any:
    scalar = pa.from_numpy_dtype(array.dtype)
    return scalar if array.ndim == 1 else pa.list_(pa.field("item", scalar, nullable=False))


def _arrow_array(pa: Any, array: Array, kind: Any) -> Any:
    if array.ndim == 1:
        return pa.array(array, kind, from_pandas=False)
    rows, width = array.shape
    offsets = pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(array.reshape(-1)), type=kind)


def _numpy(column: Any, dtype: str, rows: int, width: int) -> Array:
    """A column as a fresh array, whatever chunks it came in; ValueError if it does not fit."""
    array = column.combine_chunks()
    if column.null_count:
        raise ValueError(f"{column.null_count} nulls in a column")
    if width > 1:
        array = array.flatten()
    numbers: Array = np.array(array.to_numpy(zero_copy_only=False))
    if numbers.dtype != dtype or numbers.size != rows * width:
        raise ValueError(f"{numbers.size} numbers of {numbers.dtype}; {rows} x {width} of {dtype}")
    return numbers if width == 1 else numbers.reshape(rows, width)
