"""Tables as DataFrames and as files: what a table handle can do on the driver beyond the client's.

``to_df`` and ``save`` are one scan operation each, of all servers, and hold the table as of the
call: every server forks a child that writes its partitions to Parquet files while training goes on.
Nothing model-sized passes through the driver. A saved table is a directory with a manifest
(``sparkps.store.manifest`` has the rules of when it counts, and how it takes its place at once);
``spark.read.parquet`` opens it, too.

``load`` makes a new table of a saved one with all its fields, so that training goes on as if it had
not stopped. It is a sequence of writes of the driver, one saved partition in memory at a time.

Paths are local to the machine of the driver and the servers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    LongType,
    StructField,
    StructType,
)

from sparkps.client.shell import Client
from sparkps.client.table import Table
from sparkps.errors import BrokenModel, InvalidArgument, SnapshotFailed, WrongType
from sparkps.optim.base import from_spec
from sparkps.spec import TableInfo, TableSpec
from sparkps.store import manifest as manifests
from sparkps.store.manifest import SavedField
from sparkps.store.snapshot import make_manifest, read_partition
from sparkps.wire import userfn
from sparkps.wire.messages import SaveTable

#: Bound of a save, in seconds. The coordinator ends one earlier when a server is lost or falls
#: silent, so this is
#: only there because no wait is without a bound.
SAVE_TIMEOUT: Final = 24 * 3600.0

_SCALARS: Final[dict[str, type[DataType]]] = {
    "float32": FloatType,
    "float64": DoubleType,
    "int64": LongType,
}


class Home(Protocol):
    """What a table needs of its PSContext."""

    spark: SparkSession

    @property
    def client(self) -> Client:
        """The driver's client."""

    def directory(self, kind: str) -> Path:
        """Make a directory that lives as long as the context."""


class DriverTable(Table):
    """A table handle on the driver. In a closure it travels as a plain handle, without ``to_df``
    and ``save``.
    """

    def __init__(self, home: Home, info: TableInfo) -> None:
        super().__init__(home.client, info)
        self._home = home

    def to_df(self) -> DataFrame:
        """Return the table as of now as a DataFrame, which is read lazily and may be read many
        times.

        Returns
        -------
        DataFrame
            ``key`` bigint and ``value``: float, double or bigint as the table's dtype, an array of
            them where the width is above 1. In no order. It can be read until the PSContext stops.

        Raises
        ------
        ServerLost
            A server with a part of the table is lost.
        SnapshotFailed
            A server could not write its part.
        """
        directory = self._home.directory("tables")
        self._write_to(directory)
        # The directory, not its files: Spark runs a job to look at more than 32 paths.
        return self._home.spark.read.schema(frame_schema(self.info.spec)).parquet(
            f"file://{directory}"
        )

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Save the table as of now, with all its fields, to a new directory.

        Parameters
        ----------
        path
            A local directory that is not there yet; missing parents are made.
        overwrite
            Replace a saved table (or an empty directory) at ``path``, and nothing else. What is
            there stays whole until the new one is complete.

        Raises
        ------
        PathExists
            Something is at ``path``. Checked before any server does any work.
        SnapshotFailed
            It cannot be written there.
        ServerLost
            A server with a part of the table is lost.
        """
        target = str(local_path(path))
        name = self.info.spec.name
        try:
            staging = manifests.begin(target, overwrite=overwrite)
            try:
                entries = self._write_to(Path(staging))
                manifest = make_manifest(self.info.spec, saved_fields(self.info.spec), entries)
                manifests.commit(staging, target, manifest, overwrite=overwrite)
            finally:
                manifests.abandon(staging)
        except OSError as error:
            if error.errno is None:  # one of ours, which says it better
                raise
            reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
            raise SnapshotFailed(table=name, path=target, reason=reason) from error

    def _write_to(self, directory: Path) -> Sequence[dict[str, Any]]:
        """Have all servers write their partitions there; return the manifest's entries."""
        entries: Sequence[dict[str, Any]] = self._home.client.request(
            lambda request: SaveTable(request, self.info.id, str(directory)), timeout=SAVE_TIMEOUT
        )
        return entries


def load_table(home: Home, path: str | os.PathLike[str], name: str | None) -> DriverTable:
    """Make a new table of a saved one; see :meth:`sparkps.PSContext.load`."""
    directory = str(local_path(path))
    manifest = manifests.read_manifest(directory)
    spec = (
        manifest.spec if name is None else msgspec.structs.replace(manifest.spec, name=name).check()
    )
    try:
        fields = saved_fields(spec)
    except Exception as error:  # a user's class may raise anything when it is unpickled
        reason = f"its optimizer cannot be made here: {userfn.words(error)}"
        raise BrokenModel(path=directory, reason=reason) from error
    if fields != manifest.fields:
        raise BrokenModel(path=directory, reason="its fields are not those of its optimizer")
    if spec.name in [info.spec.name for info in home.client.tables()]:
        reason = "a table has that name; drop that one, or give another name"
        raise InvalidArgument(name="name", value=spec.name, reason=reason)
    table = DriverTable(home, home.client.create_table(spec))
    try:
        for entry in manifest.entries:
            if entry.rows:
                arrays = read_partition(directory, manifest, entry.partition)
                table.restore(arrays.pop("key"), list(arrays.values()))
    except BaseException:
        table.drop()
        raise
    return table


def saved_fields(spec: TableSpec) -> tuple[SavedField, ...]:
    """Return the fields of a table with this spec, as its manifest names them."""
    value = SavedField("value", spec.dtype)
    if spec.optimizer is None:
        return (value,)
    optimizer = from_spec(spec.optimizer, userfn.loads)
    return (
        value,
        *(
            SavedField(field.name, "int64" if field.per_row else spec.dtype, field.per_row)
            for field in optimizer.fields()
        ),
    )


def frame_schema(spec: TableSpec) -> StructType:
    """Return the schema of a table's DataFrame.

    Examples
    --------
    >>> frame_schema(TableSpec("t", width=2)).simpleString()
    'struct<key:bigint,value:array<float>>'
    """
    number = _SCALARS[spec.dtype]()
    value = number if spec.width == 1 else ArrayType(number)
    return StructType([StructField("key", LongType()), StructField("value", value)])


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path of a plain path or a ``file:`` address; other schemes are refused."""
    try:
        text = os.fsdecode(path)
        text.encode()
    except TypeError:
        expected = "a string or a pathlib.Path"
        raise WrongType(what="path", got=type(path).__name__, expected=expected) from None
    except UnicodeEncodeError:
        reason = "has bytes that are no text in UTF-8"
        raise InvalidArgument(name="path", value=path, reason=reason) from None
    if "://" in text or text.startswith("file:"):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise InvalidArgument(
                name="path", value=text, reason="only local paths can be saved to and loaded from"
            )
        text = unquote(parts.path)
    if not text or "\0" in text:
        reason = "has a zero byte" if text else "is empty"
        raise InvalidArgument(name="path", value=text, reason=reason)
    return Path(text).absolute()
