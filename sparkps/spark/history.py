"""What a run has given: one dict of metrics per epoch, and the rows that the workers wrote at its
end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


class History(list[dict[str, Any]]):
    """The metrics of each epoch, summed over batches and workers.

    Attributes
    ----------
    workers
        Number of workers that trained.
    session
        Number of the run, as it stands in the logs.
    """

    def __init__(self, spark: SparkSession, session: int, workers: int, directory: Path) -> None:
        super().__init__()
        self._spark = spark
        self._directory = directory
        self.session = session
        self.workers = workers

    @property
    def rows(self) -> DataFrame | None:
        """The rows that ``finish(worker)`` of the step returned, of all workers; None if none
        returned any.

        They were written once, when the workers finished, and are there until the PSContext stops.
        """
        if not any(self._directory.glob("*.parquet")):
            return None
        return self._spark.read.parquet(f"file://{self._directory}")
