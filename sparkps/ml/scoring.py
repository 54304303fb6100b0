"""How a fitted linear model scores rows: its weights go to each executor once, as files that tasks
map into memory.

A :class:`SparseWeights` stands on its own: it needs no server, survives ``ps.stop()``, and is small
in a closure (the names of its files alone). Keys are kept in ascending order, and a row's keys are
found by binary search; a key that the model has not seen has weight 0.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkFiles

from sparkps.errors import InvalidInput, InvalidSetting
from sparkps.spark.batches import csr
from sparkps.store import functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkps.spark.context import PSContext
    from sparkps.spark.frames import DriverTable as Table


#: An int64 key and its weight.
_BYTES_PER_WEIGHT = 12


class SparseWeights:
    """Non-zero weights by key.

    Parameters
    ----------
    keys : int64 array (n,), ascending and distinct
    values : float array (n,)
        Both may be memory maps.
    """

    def __init__(self, keys: npt.NDArray[np.int64], values: npt.NDArray[np.floating]) -> None:
        self.keys = keys
        self.values = values
        self._shipped: dict[str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def lookup(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Weights of ``keys`` (n,), 0 where the model has none, as float64."""
        found = np.zeros(len(keys), np.float64)
        if len(self.keys):
            at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            hit = self.keys[at] == keys
            found[hit] = self.values[at[hit]]
        return found

    def ship(self, spark: SparkSession) -> tuple[str, str]:
        """Make the weights reach every executor once per application; return the names of the two
        files.
        """
        context = spark.sparkContext
        application = context.applicationId
        if application not in self._shipped:
            # Spark removes its own directory even where this process is killed.
            parent = SparkFiles.getRootDirectory()
            directory = Path(tempfile.mkdtemp(prefix="sparkps-model-", dir=parent))
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            stem = uuid.uuid4().hex
            names = (f"{stem}.keys.npy", f"{stem}.values.npy")
            for name, array in zip(names, (self.keys, self.values), strict=True):
                np.save(directory / name, array)
                context.addFile(str(directory / name))
            self._shipped[application] = names
        return self._shipped[application]


def fetch_weights(table: Table, context: PSContext) -> SparseWeights:
    """The non-zero weights of a fitted table.

    Up to the setting ``model.localBytes`` they are held in memory. More than that are saved to
    ``model.dir`` and mapped from a file there, so that no process holds them all.
    """
    nonzero = int(table.reduce(functions.nnz))
    settings = context.settings
    if nonzero * _BYTES_PER_WEIGHT <= settings.model_local_bytes:
        keys, values = table.collect()
        kept = np.flatnonzero(values)
        return SparseWeights(keys[kept], values[kept])
    if settings.model_dir is None:
        raise InvalidSetting(
            name="spark.sparkps.model.dir",
            value=None,
            reason=f"the model has {nonzero} weights, more than spark.sparkps.model.localBytes "
            "allows in memory; set a directory for large models",
        )
    directory = Path(settings.model_dir) / uuid.uuid4().hex
    table.save(str(directory))
    return _sorted_on_disk(directory, nonzero, str(table.dtype))


def _sorted_on_disk(directory: Path, nonzero: int, dtype: str) -> SparseWeights:
    """Make two files of ascending keys and their weights from a saved table."""
    keys = np.lib.format.open_memmap(directory / "keys.npy", "w+", np.int64, (nonzero,))
    values = np.lib.format.open_memmap(directory / "values.npy", "w+", dtype, (nonzero,))
    filled = 0
    for path in sorted(directory.glob("*.parquet")):
        columns = pq.read_table(path, columns=["key", "value"])
        found = columns.column("value").to_numpy()
        kept = np.flatnonzero(found)
        keys[filled : filled + len(kept)] = columns.column("key").to_numpy()[kept]
        values[filled : filled + len(kept)] = found[kept]
        filled += len(kept)
    order = np.argsort(keys, kind="stable")
    keys[:] = keys[order]
    values[:] = values[order]
    return SparseWeights(keys, values)


def mapped(names: tuple[str, str]) -> SparseWeights:
    """In a task: the shipped weights, mapped and not read."""
    keys, values = (np.load(SparkFiles.get(name), mmap_mode="r") for name in names)
    return SparseWeights(keys, values)


def margin_function(
    names: tuple[str, str],
    features: str,
    values: str | None,
    intercept: float,
    output: str,
    size: int | None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that appends the margin x·w + b of every row as column
    ``output``.

    ``size`` is the length of the feature vectors that the model was fitted on, or None for columns
    of ids.
    """

    def add_margins(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        weights = mapped(names)
        for batch in batches:
            rows = csr(batch, features, values)
            if size is not None and rows.size != size:
                raise InvalidInput(
                    name=features,
                    value=rows.size,
                    where=f"column {features!r}",
                    reason=f"the model has {size} features and this row {rows.size}",
                )
            margins = rows.dot(weights.lookup(rows.distinct)) + intercept
            column = pa.array(margins, pa.float64())
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, column], names=[*batch.schema.names, output]
            )

    return add_margins
