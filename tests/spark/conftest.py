"""A PSContext for the tests of a module, and tables in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import cloudpickle
import pytest
from pyspark import cloudpickle as pyspark_cloudpickle
from pyspark.sql import SparkSession

from sparkps import PSContext
from sparkps.spark.frames import DriverTable


@pytest.fixture(scope="module", autouse=True)
def module_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Functions of a test's module travel by value, as those of a user's script do."""
    for pickler in (cloudpickle, pyspark_cloudpickle):
        pickler.register_pickle_by_value(request.module)
    yield
    for pickler in (cloudpickle, pyspark_cloudpickle):
        pickler.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="module")
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
