"""One PSContext for all tests of the Spark floor that do not need their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext
from sparkps.spark.frames import DriverTable


@pytest.fixture(scope="package")
def ps(spark: SparkSession) -> Iterator[PSContext]:
    with PSContext(spark, servers=2, progress=False) as context:
        yield context


@pytest.fixture
def make_table(ps: PSContext) -> Iterator[Callable[..., DriverTable]]:
    """Make tables with names of their own, dropped after the test."""
    made: list[DriverTable] = []

    def make(**spec: Any) -> DriverTable:
        made.append(ps.table(f"t{next(_numbers)}", replace=True, **spec))
        return made[-1]

    yield make
    for table in made:
        table.drop()


_numbers = count()
