"""The servers of a context: found or started, waited for, and let go.

Rules:

* A context waits until as many servers are up as it will have, for ``start.timeout``. One that did
  not start ends the wait at once, with what its launcher says of it.
* Under dynamic allocation Spark takes idle executors away with their servers, whenever it likes. So
  executors are asked for while it waits, and again when a table is made and no server is left; and
  a server that did not start long ago, perhaps on an executor that is gone, ends no wait early.
* With the context go its tables, unless the cluster is somebody else's.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from sparkps import _log
from sparkps.client.keys import forget, remember
from sparkps.client.shell import Client, ClientInfo, client_for
from sparkps.config import Settings
from sparkps.errors import PSError, RequestTimeout, ServerLost, ServersMissing
from sparkps.spark.executors import asked_servers, is_dynamic
from sparkps.spark.launch import RunningLauncher, launcher_for
from sparkps.wire.messages import Message

Result = TypeVar("Result")

#: Seconds after which dynamic allocation is asked for executors again.
ASK_AGAIN: Final = 1.0
#: How often something is made on servers that leave at that moment.
TRIES: Final = 3

_logger = _log.get("context")


class Servers:
    """See the module.

    Parameters
    ----------
    spark, settings
        The context's.
    at_start
        The settings that Spark started with.
    on_message
        Gets what the coordinator says unasked, in the control link's thread.

    Attributes
    ----------
    client : Client
        The driver's.
    endpoint : str
        The coordinator's addresses.

    Raises
    ------
    InvalidSetting, LaunchFailed, ServersMissing, KeyMissing
        There are no servers; nothing is left of what was started.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        at_start: Settings,
        on_message: Callable[[Message], None],
    ) -> None:
        self._spark, self._settings = spark, settings
        self._directories: list[Path] = []
        self.launcher, count = launcher_for(spark, settings, at_start)
        #: Whether they are the plugin's: executors bring them.
        self.plugin = isinstance(self.launcher, RunningLauncher) and self.launcher.own
        self.launcher.start()
        with contextlib.ExitStack() as started:
            started.callback(self.launcher.stop)
            self.endpoint = self.launcher.endpoint
            if self.launcher.secret is not None:
                remember(self.endpoint, self.launcher.secret)
                started.callback(forget, self.endpoint)
            info = ClientInfo(self.endpoint, tuple(settings.to_dict().items()))
            self.client: Client = client_for(info, role="driver")
            started.callback(self.let_go)
            self.client.on_message = on_message
            self._gather(count)
            started.pop_all()

    def make(self, make: Callable[[], Result]) -> Result:
        """Make something that needs servers, with some there."""
        if not (self.plugin and is_dynamic(self._spark)):
            return make()
        for _ in range(TRIES):
            if not self.client.status()["servers_up"]:
                self._gather(asked_servers(self._spark, self._settings))
            with contextlib.suppress(ServerLost):
                return make()
        return make()

    def directory(self, kind: str) -> Path:
        """Make a directory that is removed when the servers are let go."""
        parent = Path(self._settings.rows_dir or self.launcher.directory, kind)
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=parent))
        if self._settings.rows_dir:
            self._directories.append(made)
        return made

    def let_go(self) -> None:
        """End what is this context's."""
        try:
            if self.plugin and self._spark.sparkContext._jsc is not None:
                with contextlib.suppress(PSError):  # the servers outlive us
                    for info in self.client.tables():
                        self.client.drop_table(info.id)
            self.client.close()
        finally:
            forget(self.endpoint)
            for directory in self._directories:
                shutil.rmtree(directory, ignore_errors=True)
            self.launcher.stop()

    def _gather(self, count: int) -> None:
        """Wait until so many are up."""
        self.client.link()  # joining has errors of its own
        seconds = self._settings.start_timeout
        began = time.monotonic()
        asks = self.plugin and is_dynamic(self._spark)
        while True:
            waited = time.monotonic() - began
            left = max(0.0, seconds - waited)
            last = not asks or left <= ASK_AGAIN
            # A last look takes a second, however short start.timeout is: an answer takes a while.
            timeout, since = (max(left, ASK_AGAIN), math.inf) if last else (ASK_AGAIN, waited)
            try:
                view = self.client.gather(count, timeout, since)
                break
            except RequestTimeout:
                if last:
                    came = self.client.status()["servers_up"]
                    raise ServersMissing(
                        what="servers", came=came, asked=count, seconds=f"{seconds:g}"
                    ) from None
            asked_servers(self._spark, self._settings)  # one may have left meanwhile
        found = (len(view.servers), self.launcher.origin, self.endpoint)
        _logger.info("%d servers, %s; coordinator at %s", *found)
