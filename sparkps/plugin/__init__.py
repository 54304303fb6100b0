"""The Spark plugin: where its jar is and how Spark calls it.

The plugin itself is Java (``java/org/sparkps``), compiled when the package is built. It starts the
coordinator on the driver and the servers on the executors; ``spark.jars`` and ``spark.plugins``
name it to Spark. Nothing here needs pyspark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparkps.errors import JarMissing

#: What ``spark.plugins`` names.
PLUGIN: Final = "org.sparkps.SparkPSPlugin"
#: Keys under which Spark's configuration has what the plugin's driver half gives to executors.
ADDRESS_KEY: Final = f"spark.plugins.internal.conf.{PLUGIN}.address"
SECRET_KEY: Final = f"spark.plugins.internal.conf.{PLUGIN}.secret"
#: The file in the first of an executor's ``SPARK_LOCAL_DIRS`` that tells its Python workers both.
ENDPOINT_FILE: Final = "sparkps.json"

_JAR: Final = Path(__file__).with_name("sparkps.jar")


def jar_path() -> str:
    """Return the path of the plugin's jar, for ``spark.jars``.

    The same jar serves Spark 3.5 and 4.x.

    Raises
    ------
    JarMissing
        The package was not built: a checkout that was put on the path as it is, say.

    Examples
    --------
    >>> from pathlib import Path
    >>> import sparkps
    >>> Path(sparkps.jar_path()).name
    'sparkps.jar'
    """
    if not _JAR.is_file():
        raise JarMissing(path=str(_JAR))
    return str(_JAR)
