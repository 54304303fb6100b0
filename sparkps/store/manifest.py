"""What ``_sparkps.json`` says, and when a directory counts as a saved table.

A saved table is a directory with one Parquet file per partition and a manifest. The manifest is
written last: a directory without one is not a saved table, whatever else is in it. Spark ignores
names that begin with ``_``.

* A new table is **staged** in a hidden directory beside its path, on the same filesystem;
  :func:`commit` writes the manifest there and renames the directory into place. So a path holds a
  whole saved table or none.
* With ``overwrite`` the table before is renamed away first and removed last; a crash between the
  two renames leaves it beside, whole, under a hidden name.

All functions take local paths. Not here: the content of the files (``snapshot``).
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkps.errors import BrokenModel, PathExists
from sparkps.spec import InitSpec, OptimizerSpec, TableSpec

#: Version of the format. A reader refuses a newer one.
FORMAT: Final = 1
MANIFEST: Final = "_sparkps.json"


class SavedField(msgspec.Struct, frozen=True):
    """A field of every file: its column's name and type."""

    name: str
    dtype: str
    per_row: bool = False


class Entry(msgspec.Struct, frozen=True):
    """What the manifest says of one partition.

    ``log`` is its log number, ``applied`` the number of functions applied to it (``part.rng``
    continues there), and ``ledgers`` the applied positions as the server gives them.
    """

    partition: int
    file: str
    rows: int
    bytes: int
    sha256: str
    log: int = 0
    applied: int = 0
    ledgers: list[Any] = []


class Manifest(msgspec.Struct, frozen=True):
    """A saved table. If ``sealed``, all ledgers agree: it loads into any number of partitions."""

    spec: TableSpec
    fields: tuple[SavedField, ...]
    entries: tuple[Entry, ...]
    sealed: bool = True
    extra: dict[str, Any] = {}
    format: int = FORMAT

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(entry.rows for entry in self.entries)


def partition_file(partition: int) -> str:
    """Return the name of a partition's file: ``part-00007.parquet``."""
    return f"part-{partition:05}.parquet"


def begin(path: str, *, overwrite: bool = False) -> str:
    """Make and return the staging directory for a table that will be saved at ``path``.

    Raises
    ------
    PathExists
        If there is something at ``path`` and ``overwrite`` is false, or it is no saved table and
        must not be removed.
    """
    target = _target(path)
    _check_free(target, overwrite=overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = _beside(target)
    staging.mkdir()
    return str(staging)


def commit(staging: str, path: str, manifest: Manifest, *, overwrite: bool = False) -> None:
    """Write the manifest into the staging directory and put that in place.

    Raises
    ------
    PathExists
        As :func:`begin`, if something has come to ``path`` since.
    BrokenModel
        If an entry or its file is missing.
    """
    target, source = _target(path), Path(staging)
    _check(manifest, path)
    for entry in manifest.entries:
        file = source / entry.file
        if not file.is_file() or file.stat().st_size != entry.bytes:
            raise BrokenModel(path=path, reason=f"{entry.file} is missing or cut off")
    write_manifest(staging, manifest)
    _check_free(target, overwrite=overwrite)
    if target.exists():
        before = _beside(target)
        target.rename(before)
        try:
            source.rename(target)
        except OSError:
            before.rename(target)
            raise
        shutil.rmtree(before)
    else:
        source.rename(target)
    _sync(target.parent)


def abandon(staging: str) -> None:
    """Remove a staging directory; it may be gone already."""
    shutil.rmtree(staging, ignore_errors=True)


def write_manifest(directory: str, manifest: Manifest) -> None:
    """Write ``_sparkps.json``, whole or not at all."""
    final = Path(directory) / MANIFEST
    fresh = final.with_name(f"{MANIFEST}.{secrets.token_hex(4)}")
    data = msgspec.json.format(msgspec.json.encode(_to_json(manifest)), indent=1)
    try:
        with fresh.open("wb") as file:
            file.write(data + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(final)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        raise
    _sync(final.parent)


def read_manifest(path: str) -> Manifest:
    """Read and check the manifest of the saved table at ``path``.

    Raises
    ------
    BrokenModel
        If there is none, it is of a newer format, or it does not name every partition once.
    """
    file = _target(path) / MANIFEST
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        reason = (
            f"it has no {MANIFEST}; the save did not end, or this is another directory, or none"
        )
        raise BrokenModel(path=path, reason=reason) from None
    except OSError as error:
        raise BrokenModel(path=path, reason=f"{MANIFEST}: {error.strerror}") from None
    try:
        manifest = _from_json(msgspec.json.decode(data))
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise BrokenModel(path=path, reason=f"{MANIFEST} does not make sense: {error}") from None
    _check(manifest, path)
    return manifest


def _check(manifest: Manifest, path: str) -> None:
    if not 1 <= manifest.format <= FORMAT:
        reason = f"its format is {manifest.format}, this sparkps reads 1 to {FORMAT}"
        raise BrokenModel(path=path, reason=reason)
    found = [entry.partition for entry in manifest.entries]
    if found != list(range(manifest.spec.partitions)):
        reason = f"{len(found)} entries, in this order, for {manifest.spec.partitions} partitions"
        raise BrokenModel(path=path, reason=reason)
    for entry in manifest.entries:
        # Never a path: a manifest may not name files elsewhere.
        if entry.file != partition_file(entry.partition):
            raise BrokenModel(path=path, reason=f"partition {entry.partition} is in {entry.file!r}")
    if not manifest.fields or manifest.fields[0].name != "value":
        raise BrokenModel(path=path, reason="its first field is not 'value'")


def _to_json(manifest: Manifest) -> dict[str, Any]:
    """Everything by name: the structs of ``spec`` encode as arrays, which nobody could read."""
    spec = {name: getattr(manifest.spec, name) for name in manifest.spec.__struct_fields__}
    optimizer, init = manifest.spec.optimizer, manifest.spec.init
    spec["init"] = {"kind": init.kind, "a": init.a, "b": init.b}
    if optimizer is not None:
        source = optimizer.source
        spec["optimizer"] = {
            "name": optimizer.name,
            "numbers": dict(optimizer.numbers),
            "source": None if source is None else base64.b64encode(source).decode(),
        }
    return {
        "format": manifest.format,
        "spec": spec,
        "fields": manifest.fields,
        "sealed": manifest.sealed,
        "extra": manifest.extra,
        "entries": manifest.entries,
    }


def _from_json(data: dict[str, Any]) -> Manifest:
    spec = dict(data["spec"])
    spec["init"] = InitSpec(**spec["init"])
    optimizer = spec["optimizer"]
    if optimizer is not None:
        source = optimizer["source"]
        spec["optimizer"] = OptimizerSpec(
            optimizer["name"],
            tuple((name, float(number)) for name, number in optimizer["numbers"].items()),
            None if source is None else base64.b64decode(source),
        )
    return Manifest(
        # Once more through MessagePack: constructors of structs check no types.
        spec=msgspec.msgpack.decode(
            msgspec.msgpack.encode(TableSpec(**spec)), type=TableSpec
        ).check(),
        fields=msgspec.convert(data["fields"], tuple[SavedField, ...]),
        entries=msgspec.convert(data["entries"], tuple[Entry, ...]),
        sealed=msgspec.convert(data["sealed"], bool),
        extra=msgspec.convert(data["extra"], dict[str, Any]),
        format=msgspec.convert(data["format"], int),
    )


def _target(path: str) -> Path:
    """The directory itself: a link is followed, so that what it points to is replaced, not it."""
    return Path(path.removeprefix("file://")).resolve()


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}")


def _check_free(target: Path, *, overwrite: bool) -> None:
    if not target.exists():
        return
    if not overwrite:
        raise PathExists(path=str(target), advice="pass overwrite=True to replace it")
    # Overwriting removes the directory, so it must be one of ours (or empty).
    if not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        advice = "it is no saved table, so it is not replaced; remove it yourself"
        raise PathExists(path=str(target), advice=advice)


def _sync(directory: Path) -> None:
    """Make renames in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
