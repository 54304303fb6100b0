"""What Spark needs to load the plugin: for a session builder, and for spark-submit's command line.

Both add to what the user has set, since ``spark.jars`` and ``spark.plugins`` are lists that others
are in, too. Spark does not run ``sys.executable``, and executors on other hosts do not see the
driver's environment. So Spark's own two keys say which Python tasks and servers run, and which the
driver and the coordinator: as the user has set them, or ``PYSPARK_PYTHON`` and
``PYSPARK_DRIVER_PYTHON``, or else this one. (``./environment/bin/python`` of ``--archives`` is good
for the first only.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import SparkSession

from sparkps.config import driver_python, spark_python
from sparkps.plugin import PLUGIN, jar_path

#: What tasks and servers run, and what the driver and the coordinator run.
PYTHON: Final = "spark.pyspark.python"
DRIVER_PYTHON: Final = "spark.pyspark.driver.python"


def plugin_settings(have: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings that load the plugin, added to those of ``have``.

    Raises
    ------
    JarMissing
        sparkps was not built.
    """
    python = have.get(PYTHON) or spark_python() or sys.executable
    driver = have.get(DRIVER_PYTHON) or driver_python() or spark_python() or sys.executable
    return {
        "spark.jars": _with(have.get("spark.jars", ""), jar_path()),
        "spark.plugins": _with(have.get("spark.plugins", ""), PLUGIN),
        PYTHON: python,
        DRIVER_PYTHON: driver,
    }


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Let a session that is not there yet start servers beside its executors.

    Parameters
    ----------
    builder
        What it has of ``spark.jars`` and ``spark.plugins`` is kept.

    Returns
    -------
    SparkSession.Builder
        The same.

    Raises
    ------
    JarMissing
        sparkps was not built.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> import sparkps
    >>> builder = sparkps.configure(SparkSession.builder.appName("clicks"))
    """
    have = {key: str(value) for key, value in dict(getattr(builder, "_options", {})).items()}
    have.setdefault(DRIVER_PYTHON, sys.executable)  # the driver runs already
    for key, value in plugin_settings(have).items():
        builder = builder.config(key, value)
    return builder


def submit_arguments(have: Mapping[str, str]) -> list[str]:
    """Return the arguments of spark-submit that load the plugin, added to the settings of
    ``have``.
    """
    settings = plugin_settings(have)
    arguments = ["--jars", settings.pop("spark.jars")]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    return arguments


def _with(text: str, one: str) -> str:
    """A list in Spark's spelling, with one more if it is not in it."""
    return ",".join(dict.fromkeys([*_entries(text), one]))


def _entries(text: str) -> Iterable[str]:
    return (entry.strip() for entry in text.split(",") if entry.strip())
