"""The examples in the docstrings of the Spark floor; they may use ``spark``."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
from pyspark.sql import SparkSession

import sparkps.spark

pytestmark = pytest.mark.spark

MODULES = [module.name for module in pkgutil.iter_modules(sparkps.spark.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(spark: SparkSession, name: str) -> None:
    module = importlib.import_module(f"sparkps.spark.{name}")
    assert doctest.testmod(module, extraglobs={"spark": spark}).failed == 0
