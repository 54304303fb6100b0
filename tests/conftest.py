"""One SparkSession for all tests of a session: a JVM start costs seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

#: What Spark 3.5 warns of by itself on this Python; warnings are errors in the tests.
SPARK_35_WARNS = (
    # It compares versions with distutils, and ignores this warning when it is imported.
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    # It leaves the sockets that rows come through to the garbage collector.
    r"ignore:unclosed <socket\.socket .*raddr=\('127\.0\.0\.1':ResourceWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    if pyspark.__version__.startswith("3.5."):
        for line in SPARK_35_WARNS:
            config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Four task slots whose tasks may fail three times, as on a cluster."""
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        # Tasks find the package where the tests did, installed or not.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        session = (
            SparkSession.builder.master("local[4,4]")
            .appName("sparkps tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .config("spark.local.dir", str(directory / "local"))
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .getOrCreate()
        )
        yield session
        session.stop()
