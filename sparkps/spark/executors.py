"""Executors, as far as servers and workers need them: how many there will be, and asking for more.

Servers of the plugin come and go with executors, so a context waits for the servers of all
executors that Spark was asked for. How many those are is known from the configuration, or else by
looking: on a standalone master an application gets what is free.

Under dynamic allocation Spark takes away executors that are idle, and starts none that no task
needs. So executors are asked for here when servers are needed, and when a run needs more task slots
than there are. (Executors whose servers hold tables are kept by the plugin.)
"""

from __future__ import annotations

import math
import re
import threading
import time
from typing import Any, Final

from pyspark.sql import SparkSession

from sparkps.config import Settings, is_on

#: Executors that come by themselves come together: so long after the last one no more are expected.
_SETTLED: Final = 2.0
#: Seconds between two looks.
_LOOK: Final = 0.1
#: Seconds to wait for executors before more workers than slots are refused: a lost one was replaced
#: after 3 to 5 s on an idle machine.
EXECUTORS_COME: Final = 20.0


def is_local(master: str) -> bool:
    """Whether the driver is the only executor."""
    return master == "local" or master.startswith("local[")


def slots_of(spark: SparkSession) -> int:
    """Return how many tasks Spark can run at the same time now."""
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def executors_of(spark: SparkSession) -> int:
    """Return how many executors have registered; a local master has one."""
    known = int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size())
    return known if is_local(spark.sparkContext.master) else known - 1


def is_dynamic(spark: SparkSession) -> bool:
    """Whether Spark starts and takes away executors as tasks need them."""
    wanted = spark.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "")
    return is_on(wanted) and not is_local(spark.sparkContext.master)


def asked_servers(spark: SparkSession, settings: Settings) -> int:
    """Return how many servers of the plugin there will be; ask for executors if none would come."""
    each = settings.servers_per_executor
    if is_dynamic(spark):
        conf = spark.sparkContext.getConf()
        keys = ("minExecutors", "initialExecutors")
        wanted = [int(conf.get(f"spark.dynamicAllocation.{key}", "0")) for key in keys]
        if settings.servers is not None:
            wanted = [math.ceil(settings.servers / each)]
        executors = max(1, *wanted)
        _ask(spark, executors - executors_of(spark))
    else:
        executors = _expected(spark, settings)
    return settings.servers or executors * each


def slots_to_come(spark: SparkSession, wanted: int) -> int:
    """Wait until there are so many task slots, for a while, asking for executors where Spark waits
    to be asked; return how many there are.
    """
    slots = slots_of(spark)
    if slots >= wanted or is_local(spark.sparkContext.master):
        return slots
    if is_dynamic(spark):
        each = max(1, slots // max(1, executors_of(spark)))
        _ask(spark, math.ceil((wanted - slots) / each))
    deadline, pause = time.monotonic() + EXECUTORS_COME, threading.Event()
    while slots < wanted and time.monotonic() < deadline:
        pause.wait(_LOOK)
        slots = slots_of(spark)
    return slots


def most_slots(spark: SparkSession) -> int:
    """Return how many task slots there may be: those there are, or what dynamic allocation allows
    where it has a limit.
    """
    slots = slots_of(spark)
    if not is_dynamic(spark):
        return slots
    most = spark.sparkContext.getConf().get("spark.dynamicAllocation.maxExecutors", "")
    if not most or int(most) >= 2**31 - 1:
        return slots
    each = max(1, slots // max(1, executors_of(spark)))
    return max(slots, int(most) * each)


def _expected(spark: SparkSession, settings: Settings) -> int:
    context = spark.sparkContext
    conf = context.getConf()
    if is_local(context.master):
        return 1
    match = re.match(r"local-cluster\[\s*(\d+)", context.master)
    if match is not None:
        return int(match[1])
    asked = conf.get("spark.executor.instances", "")
    if asked:
        return int(asked)
    cores, each = conf.get("spark.cores.max", ""), conf.get("spark.executor.cores", "")
    if cores and each:
        return max(1, int(cores) // int(each))
    return settled_executors(spark, settings.start_timeout)


def settled_executors(spark: SparkSession, timeout: float) -> int:
    """Wait until no more executors come; return how many there are, but at least one."""
    deadline = time.monotonic() + timeout
    pause, count, since = threading.Event(), 0, time.monotonic()
    while (now := time.monotonic()) < deadline:
        found = executors_of(spark)
        if found != count:
            count, since = found, now
        elif count and now - since >= _SETTLED:
            break
        pause.wait(_LOOK)
    return max(1, count)


def _ask(spark: SparkSession, executors: int) -> None:
    """Ask Spark for more executors."""
    if executors > 0:
        spark.sparkContext._jsc.sc().requestExecutors(executors)
