"""What the re-tried reports share: a9a, and one context for those that need Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext

A9A = Path(__file__).parents[2] / "jobs" / "data" / "a9a"


@pytest.fixture(scope="module")
def ps(spark: SparkSession) -> Iterator[PSContext]:
    with PSContext(spark, servers=2, progress=False) as context:
        yield context
