"""What a user asks a PSContext for, turned into settings and specs, checked."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from sparkps.config import PREFIX, Settings
from sparkps.errors import InvalidArgument, WrongType
from sparkps.optim.base import Optimizer
from sparkps.spark.launch import network_is_encrypted
from sparkps.spec import DEFAULT_PARTITIONS, InitSpec, TableSpec, check_name
from sparkps.store.init import as_init


def context_settings(spark: SparkSession, options: dict[str, Any]) -> tuple[Settings, Settings]:
    """Return the settings of a context: ``options`` over ``spark.sparkps.*`` over the defaults; and
    those that Spark started with.

    Raises
    ------
    InvalidSetting
        A setting is wrong.
    """
    known = dict(spark.sparkContext.getConf().getAll())
    if network_is_encrypted(known):
        known.setdefault(f"{PREFIX}security", "encrypt")
    at_start = {key: value for key, value in known.items() if key.startswith(PREFIX)}
    # With what was set after Spark started. In SQL, as spark.conf.getAll is not in Spark 3.5.
    later = {row.key: row.value for row in spark.sql("SET").collect()}
    conf = at_start | {key: value for key, value in later.items() if key.startswith(PREFIX)}
    return Settings.load(conf, **options), Settings.load(at_start)


def use_this_python(spark: SparkSession) -> None:
    """Where Spark runs on this machine alone, let tasks run the driver's Python, elsewhere that of
    ``spark.pyspark.python``, unless another was asked for.

    Without ``PYSPARK_PYTHON`` Spark takes the first ``python3`` on the path, which is not that of
    the virtual environment whose Python runs the driver, and lacks what is installed there; and
    only spark-submit looks at its setting.
    """
    context = spark.sparkContext
    if context.pythonExec == "python3":
        ours = sys.executable if context.master.startswith("local") else None
        context.pythonExec = context.getConf().get("spark.pyspark.python") or ours or "python3"


def table_spec(
    name: Any,
    *,
    width: Any = 1,
    dim: Any = None,
    dtype: Any = "float32",
    optimizer: Any = None,
    init: float | InitSpec = 0.0,
    seed: Any = 0,
    partitions: Any = None,
    allow_nonfinite: Any = False,
) -> TableSpec:
    """Return the spec of ``ps.table(...)``.

    Raises
    ------
    InvalidArgument, WrongType
        That name the argument.

    Examples
    --------
    >>> table_spec("bias", dim=1).partitions
    1
    """
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise WrongType(
            what="optimizer",
            got=repr(optimizer),
            expected="an object of sparkps.optim, as AdaGrad(lr=0.1)",
        )
    if dim is not None:
        dim = _whole("dim", dim)
    if not isinstance(allow_nonfinite, bool):
        raise InvalidArgument(
            name="allow_nonfinite", value=allow_nonfinite, reason="must be True or False"
        )
    if partitions is None:
        partitions = DEFAULT_PARTITIONS if dim is None else max(1, min(DEFAULT_PARTITIONS, dim))
    spec = TableSpec(
        name=check_name(name),
        width=_whole("width", width),
        dim=dim,
        dtype=_dtype(dtype),
        optimizer=None if optimizer is None else optimizer.spec(),
        init=as_init(init),
        seed=_whole("seed", seed),
        partitions=_whole("partitions", partitions),
        allow_nonfinite=allow_nonfinite,
    ).check()
    if optimizer is not None:
        optimizer.check_table(spec)
    return spec


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(name=name, value=value, reason="must be a whole number")
    return int(value)


def _dtype(dtype: Any) -> Any:
    """``"float32"``, ``numpy.float32``, ``numpy.dtype("f4")``: all are called ``float32``."""
    return dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
