"""Where a context's servers come from: the plugin, the driver, or somebody else.

The rules:

* ``launch`` says it, or (``auto``) it is found out: *external* if a coordinator's address is given;
  *plugin* if the plugin is loaded in this Spark; else *local* on a local master. On any other
  master the servers belong beside the executors, and what to add to Spark is printed; it never
  falls back silently to servers beside the driver.
* A plugin that was configured on a session that existed already is not loaded, whatever
  ``spark.conf`` says: only the SparkContext's own configuration tells.
* What servers and coordinator need when they start cannot be changed by a context that finds them
  running.

Children of the driver are :mod:`sparkps.coordinator.launch`'s.
"""

from __future__ import annotations

import atexit
import os
from typing import Any, Final

from pyspark.sql import SparkSession

from sparkps import _log
from sparkps.client.keys import read_key
from sparkps.config import PREFIX, Settings, counts_memory, default_overhead, is_on, spark_memory
from sparkps.coordinator.launch import Launcher, LocalLauncher
from sparkps.errors import InvalidSetting, PSError
from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.net.endpoint import parse
from sparkps.plugin import ADDRESS_KEY, PLUGIN, SECRET_KEY
from sparkps.spark.configure import submit_arguments
from sparkps.spark.executors import asked_servers, is_local, slots_of
from sparkps.wire.auth import Secret

#: One server thread keeps up with the pulls and pushes of about four tasks that also compute.
SLOTS_PER_SERVER: Final = 4
MOST_SERVERS: Final = 8

_logger = _log.get("context")


class RunningLauncher(Launcher):
    """Servers that somebody else has started, and stops.

    Parameters
    ----------
    settings
        The context's settings.
    endpoint
        The coordinator's addresses.
    secret
        The application's key; None without security.
    own
        Whether they are this Spark application's, whose tables end with its context.
    """

    def __init__(self, settings: Settings, endpoint: str, secret: Secret | None, own: bool) -> None:
        self.settings, self.endpoint, self.secret, self.own = settings, endpoint, secret, own
        self.directory = ""
        self.origin = "beside the executors" if own else "of an external cluster"
        self._made = False

    def start(self) -> None:
        """Find a private directory; nothing is started."""
        socket = parse(self.endpoint.split(",")[0])
        beside = os.path.dirname(socket.path)
        # The coordinator of this application removes its directory whatever happens to us.
        self._made = not (self.own and os.path.isdir(beside))
        self.directory = runtime_directory() if self._made else beside
        atexit.register(self.stop)

    def stop(self) -> None:
        """Remove the directory, if it was made here."""
        if self._made:
            remove_directory(self.directory)
        atexit.unregister(self.stop)

    def why_lost(self) -> PSError | None:
        """None: the connection to the coordinator tells."""
        return None


def launcher_for(
    spark: SparkSession, settings: Settings, at_start: Settings
) -> tuple[Launcher, int]:
    """Return the launcher of a context, not started, and how many servers it will have.

    Parameters
    ----------
    settings
        The context's settings.
    at_start
        Those that Spark's configuration had when it started.

    Raises
    ------
    InvalidSetting
        No servers can be started so; the sentence says what to add.
    """
    master = str(spark.sparkContext.master)
    conf = spark.sparkContext.getConf()
    # What the driver's half of the plugin hands on; not there if it was told to start nothing.
    address, secret = conf.get(ADDRESS_KEY, ""), conf.get(SECRET_KEY, "")
    launch = _which(spark, settings, bool(address))
    if launch == "external":
        return _external(settings), settings.servers or 1
    if launch == "plugin":
        if not address:
            raise InvalidSetting(name="launch", value="plugin", reason=_not_loaded(spark))
        differing = settings.at_start(at_start)
        if differing:
            reason = (
                "the servers are running already and needed it when they started; give it to Spark "
                f"as {differing[0]} (--conf, or the builder's config)"
            )
            name = differing[0].removeprefix(PREFIX)
            raise InvalidSetting(name=name, value="(an option of PSContext)", reason=reason)
        warn_of_overhead(dict(conf.getAll()), settings)
        if settings.security != "none" and not master.startswith("local"):
            _warn_of_open_spark(dict(conf.getAll()))
        key = None if settings.security == "none" else Secret(secret)
        running = RunningLauncher(settings, address, key, own=True)
        return running, asked_servers(spark, settings)
    host = "" if master.startswith("local") else str(conf.get("spark.driver.host", ""))
    count = settings.servers or max(1, min(MOST_SERVERS, slots_of(spark) // SLOTS_PER_SERVER))
    return LocalLauncher(settings, count, host, _key_of_hosts(settings, host)), count


def warn_of_overhead(conf: dict[str, str], settings: Settings) -> None:
    """Warn where a container is watched and has no room for the servers' memory."""
    if not counts_memory(conf.get("spark.master", "")):
        return
    _, overhead = spark_memory(conf)
    others = default_overhead(conf)
    needed = (settings.server_memory or 0) * settings.servers_per_executor
    key = "spark.executor.memoryOverhead"
    if needed and overhead < needed + others:
        _logger.warning(
            "%s is %d MiB, and the servers of an executor may use %d MiB (%sserver.memory): the "
            "cluster manager would kill the executor with them. Set %s=%dm",
            key, overhead >> 20, needed >> 20, PREFIX, key, (needed + others) >> 20,
        )  # fmt: skip
    elif not needed and key not in conf:
        _logger.warning(
            "%s is not set, so the servers of an executor share %d MiB. Set it, and "
            "%sserver.memory, to what the model needs",
            key, overhead >> 21, PREFIX,
        )  # fmt: skip


def _warn_of_open_spark(conf: dict[str, str]) -> None:
    """Warn where whoever reaches the driver's port may ask Spark for the key."""
    if not is_on(conf.get("spark.authenticate", "")):
        _logger.warning(
            "spark.authenticate is off, so whoever reaches the driver's port is told the key of "
            "the servers with Spark's settings; turn it on where the network is not yours"
        )


def _which(spark: SparkSession, settings: Settings, loaded: bool) -> str:
    if settings.launch != "auto":
        return settings.launch
    if settings.coordinator is not None:
        return "external"
    if loaded:
        return "plugin"
    master = str(spark.sparkContext.master)
    configured = PLUGIN in str(spark.conf.get("spark.plugins", "") or "")
    if is_local(master):
        if configured:
            _logger.warning("%s; servers are children of the driver", _not_loaded(spark))
        return "local"
    reason = (
        _not_loaded(spark)
        if configured
        else f"on master {master} the servers belong beside the executors. Start Spark with\n"
        f"    {' '.join(submit_arguments({}))}\n"
        "(python -m sparkps conf prints it; sparkps.configure(SparkSession.builder) sets it), or "
        'say launch="local" for servers beside the driver, where every task must reach them and '
        "find their key (key_file=)"
    )
    raise InvalidSetting(name="launch", value=settings.launch, reason=reason)


def _not_loaded(spark: SparkSession) -> str:
    known = PLUGIN in str(spark.sparkContext.getConf().get("spark.plugins", "") or "")
    if known:
        return "the plugin is loaded, but spark.sparkps.launch told it to start nothing"
    return (
        f"{PLUGIN} is not loaded in this Spark: spark.plugins and spark.jars must be set before "
        "Spark starts, and on a session that exists already they are ignored. Stop it "
        "(spark.stop()), or set them with spark-submit (python -m sparkps conf)"
    )


def _external(settings: Settings) -> RunningLauncher:
    if settings.coordinator is None:
        raise InvalidSetting(
            name="coordinator",
            value=None,
            reason="an external cluster has an address: python -m sparkps cluster prints it",
        )
    for address in settings.coordinator.split(","):
        parse(address)
    secret = None
    if settings.security != "none" and settings.key_file is not None:
        secret = read_key(settings.key_file)
    return RunningLauncher(settings, settings.coordinator, secret, own=False)


def _key_of_hosts(settings: Settings, host: str) -> Secret | None:
    """The key of servers beside the driver that tasks on other hosts reach. What Spark itself hands
    to tasks is in its event log, so they must find it in a file.
    """
    if not host or settings.security == "none":
        return None
    if settings.key_file is None:
        reason = (
            "tasks on other hosts need the key of servers beside the driver: write 64 random hex "
            "digits (openssl rand -hex 32) into a file that only you can read, on every host"
        )
        raise InvalidSetting(name="key.file", value=None, reason=reason)
    return read_key(settings.key_file)


def network_is_encrypted(conf: dict[str, Any]) -> bool:
    """Whether Spark encrypts its own connections."""
    keys = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    return any(is_on(str(conf.get(key, ""))) for key in keys)
