"""Saving and loading of estimators and models, in the layout of pyspark.ml: ``metadata/`` and
``data/``.

Params alone need nothing of ours. A model's weights are Parquet (``key`` bigint, ``weight``
double), written by tasks from the shipped files and not through a closure, so that a large model
needs no large driver. Works on any path that Spark can write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from sparkps.errors import BrokenModel
from sparkps.ml.scoring import SparseWeights, mapped

RL = TypeVar("RL")

#: Rows of one file of a saved model: 16 MiB of keys and weights.
_ROWS_PER_FILE = 1 << 20


class ParamsWriter(MLWriter):
    """Writes the metadata of an instance whose state is its Params."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:
        DefaultParamsWriter.saveMetadata(self.instance, path, self.sparkSession.sparkContext)


class ParamsReader(MLReader[RL], Generic[RL]):
    """Reads what :class:`ParamsWriter` has written."""

    def __init__(self, kind: type[RL]) -> None:
        super().__init__()
        self.kind = kind

    def load(self, path: str) -> RL:
        metadata = DefaultParamsReader.loadMetadata(
            path, self.sparkSession.sparkContext, _name(self.kind)
        )
        instance = self.kind()
        instance._resetUid(metadata["uid"])  # type: ignore[attr-defined]
        DefaultParamsReader.getAndSetParams(instance, metadata)
        return instance


class LinearModelWriter(ParamsWriter):
    """Writes Params, intercept, number of features and weights of a linear model."""

    def saveImpl(self, path: str) -> None:
        model, spark = self.instance, self.sparkSession
        extra = {
            "intercept": model.intercept,
            "numFeatures": model.numFeatures,
            "weights": len(model.weights),
        }
        DefaultParamsWriter.saveMetadata(
            model, path, spark.sparkContext, extraMetadata={"sparkps": extra}
        )
        names = model.weights.ship(spark)
        files = max(1, -(-len(model.weights) // _ROWS_PER_FILE))

        def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            weights = mapped(names)
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    rows = slice(part * _ROWS_PER_FILE, (part + 1) * _ROWS_PER_FILE)
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array(weights.keys[rows]),
                            pa.array(weights.values[rows].astype(np.float64)),
                        ],
                        names=["key", "weight"],
                    )

        frame = spark.range(0, files, 1, files).mapInArrow(rows_of, "key bigint, weight double")
        frame.write.parquet(f"{path}/data")


class LinearModelReader(ParamsReader[RL]):
    """Reads what :class:`LinearModelWriter` has written."""

    def load(self, path: str) -> RL:
        spark = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, spark.sparkContext, _name(self.kind))
        extra = metadata.get("sparkps")
        if extra is None:
            raise BrokenModel(
                path=path, reason="its metadata has no intercept and weights of a linear model"
            )
        table = spark.read.parquet(f"{path}/data").orderBy("key").toPandas()
        if len(table) != extra["weights"]:
            raise BrokenModel(
                path=path, reason=f"{len(table)} of {extra['weights']} weights are there"
            )
        weights = SparseWeights(
            table["key"].to_numpy(np.int64), table["weight"].to_numpy(np.float64)
        )
        model = self.kind(weights, extra["intercept"], extra["numFeatures"])  # type: ignore[call-arg]
        model._resetUid(metadata["uid"])  # type: ignore[attr-defined]
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"
