"""What a user asks a PSContext for, turned into settings and specs, checked."""

from __future__ import annotations

import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from sparkps.config import PREFIX, Settings
from sparkps.errors import InvalidArgument, InvalidSetting, WrongType
from sparkps.optim.base import Optimizer
from sparkps.spark.plan import slots_of
from sparkps.spec import DEFAULT_PARTITIONS, InitSpec, TableSpec, check_name
from sparkps.store.init import as_init

#: One server thread keeps up with the pulls and pushes of about four tasks that also compute.
SLOTS_PER_SERVER: Final = 4
MOST_SERVERS: Final = 8

#: What to add to a Spark that is not local: the two settings of the plugin.
_PLUGIN: Final = "--conf spark.plugins=org.sparkps.SparkPSPlugin --jars <the jar of sparkps>"


def context_settings(spark: SparkSession, servers: int | None, options: dict[str, Any]) -> Settings:
    """Return the settings of a context: ``options`` over ``spark.sparkps.*`` over the defaults.

    Raises
    ------
    InvalidSetting
        A setting is wrong, or no servers can be started on this master.
    """
    known = dict(spark.sparkContext.getConf().getAll())
    # What was set after Spark started; a property since Spark 4.0.
    known.update(getattr(spark.conf, "getAll", {}))
    conf = {key: value for key, value in known.items() if key.startswith(PREFIX)}
    aloud = options.get("launch") is not None or f"{PREFIX}launch" in conf
    settings = Settings.load(conf, servers=servers, **options)
    master = str(spark.sparkContext.master)
    if settings.launch != "local":
        reason = 'is not there yet; "local" starts the servers beside the driver'
        raise InvalidSetting(name="launch", value=settings.launch, reason=reason)
    if not (aloud or master == "local" or master.startswith("local[")):
        reason = (
            f"on master {master} the servers belong beside the executors. Start Spark with\n"
            f"    {_PLUGIN}\n"
            'or say launch="local" for servers beside the driver, where every task must reach them'
        )
        raise InvalidSetting(name="launch", value=settings.launch, reason=reason)
    return settings


def use_this_python(spark: SparkSession) -> None:
    """Where Spark runs on this machine alone, let tasks run the driver's Python, unless another was
    asked for.

    Without ``PYSPARK_PYTHON`` Spark takes the first ``python3`` on the path, which is not that of
    the virtual environment whose Python runs the driver, and lacks what is installed there.
    """
    context = spark.sparkContext
    if context.master.startswith("local") and context.pythonExec == "python3":
        context.pythonExec = sys.executable


def server_count(spark: SparkSession, settings: Settings) -> int:
    """Return how many servers to start: as the settings say, or by the number of task slots."""
    if settings.servers is not None:
        return settings.servers
    return max(1, min(MOST_SERVERS, slots_of(spark) // SLOTS_PER_SERVER))


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
