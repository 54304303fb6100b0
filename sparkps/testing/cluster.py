"""A real cluster on this machine: a coordinator, servers and training tasks as processes, without
Spark.

What it adds to the local launcher is what tests need: signals, training tasks that are started
again when they fail (Spark's part), and a look around at the end that nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from sparkps.client.keys import remember
from sparkps.client.shell import Client, ClientInfo, client_for
from sparkps.client.table import Table
from sparkps.config import Settings
from sparkps.coordinator.launch import LocalLauncher
from sparkps.errors import PSTimeout
from sparkps.optim.base import Optimizer
from sparkps.spec import DEFAULT_PARTITIONS, InitSpec, TableSpec
from sparkps.store.init import as_init
from sparkps.testing.workers import Workers

#: Bound of every wait of a test, in seconds, unless it says otherwise.
PATIENCE: Final = 60.0


class LocalCluster:
    """Servers and a coordinator as child processes; this process is the driver.

    Parameters
    ----------
    servers
        How many servers.
    **settings
        Settings by field name, as ``dead="2s"``; with ``bind_host="127.0.0.1"`` all listen by tcp
        as well.

    Examples
    --------
    >>> with LocalCluster(servers=2) as cluster:
    ...     table = cluster.table("counts", dtype="int64")
    ...     table.push([3, 5, 3], [1, 1, 1])
    ...     table.pull([3, 4, 5]).tolist()
    [2, 0, 1]
    """

    def __init__(self, servers: int = 2, **settings: Any) -> None:
        self.settings = Settings.load(None, **settings)
        self.launcher = LocalLauncher(self.settings, servers)
        self._runs: list[Workers] = []
        self._pids: dict[str, int] = {}
        self._client: Client | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; return when all servers are up."""
        self.launcher.start()
        self._pids = self.launcher.pids()

    def close(self) -> None:
        """Stop everything, and look whether anything is left."""
        for run in self._runs:
            run.close()
        if self._client is not None:
            self._client.close()
        for name, pid in self.launcher.pids().items():
            if name != "coordinator":
                with contextlib.suppress(ProcessLookupError):  # it may end at this moment
                    os.kill(pid, signal.SIGCONT)
        self.launcher.stop()
        left = self.left_behind()
        if left:
            raise RuntimeError(f"left behind: {', '.join(left)}")

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def left_behind(self) -> list[str]:
        """Processes, directories and threads of this cluster that are still there."""
        left = [f"{name} (pid {pid})" for name, pid in self._pids.items() if _lives(pid)]
        if os.path.exists(self.launcher.directory):
            left.append(self.launcher.directory)
        for thread in self.launcher.threads:
            thread.join(PATIENCE)
            if thread.is_alive():
                left.append(f"thread {thread.name}")
        return left

    # -- use ---------------------------------------------------------------------------------------

    @property
    def info(self) -> ClientInfo:
        """How other processes reach this cluster."""
        settings = tuple(self.settings.to_dict().items())
        if self.launcher.secret is not None:
            remember(self.launcher.endpoint, self.launcher.secret)
        return ClientInfo(self.launcher.endpoint, settings)

    def client(self) -> Client:
        """The driver's client, of this process."""
        if self._client is None or self._client.closed:
            self._client = client_for(self.info, "driver")
        return self._client

    def table(
        self,
        name: str,
        *,
        width: int = 1,
        dim: int | None = None,
        dtype: Any = "float32",
        optimizer: Optimizer | None = None,
        init: float | InitSpec = 0.0,
        seed: int = 0,
        partitions: int | None = None,
        replace: bool = False,
        allow_nonfinite: bool = False,
    ) -> Table:
        """Create a table (or take the equal one that is there), as ``ps.table`` does."""
        spec = TableSpec(
            name,
            width,
            dim,
            dtype,
            optimizer.spec() if optimizer else None,
            as_init(init),
            seed,
            partitions or min(DEFAULT_PARTITIONS, dim or DEFAULT_PARTITIONS),
            allow_nonfinite,
        )
        return Table(self.client(), self.client().create_table(spec, replace))

    def start_workers(self, step: Any, batches: Sequence[Sequence[Any]], **options: Any) -> Workers:
        """Start one training task (a process) per element of ``batches``; see :class:`Workers`."""
        workers = Workers(self.client(), self.info, step, batches, **options)
        self._runs.append(workers)
        workers.start()
        return workers

    def run_workers(
        self,
        step: Any,
        batches: Sequence[Sequence[Any]],
        *,
        timeout: float = PATIENCE,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Train to the end; return the history, one dict of metrics per epoch.

        Parameters
        ----------
        step
            ``step(worker, batch)``, or a step object, as for ``ps.run``.
        batches
            For each rank its batches, of any picklable kind.
        timeout
            Seconds; then PSTimeout.
        **options
            Of :class:`Workers`: ``consistency``, ``epochs``, ``clock_every``, ``on_epoch``,
            ``seed``, ...
        """
        workers = self.start_workers(step, batches, **options)
        try:
            return workers.wait(timeout)
        finally:
            workers.close()

    # -- harm --------------------------------------------------------------------------------------

    def pids(self) -> dict[str, int]:
        """``{"coordinator": pid, "server 0": pid, ...}`` of the processes that live."""
        return self.launcher.pids()

    def kill(self, who: int | str, number: int = signal.SIGKILL) -> str:
        """Kill a server (by its id), or ``"coordinator"``; return its exit status, once it is
        certified.
        """
        name = _name(who)
        os.kill(self.pids()[name], number)
        status = self.launcher.await_exit(name, PATIENCE)
        if not status:
            raise PSTimeout(seconds=PATIENCE, what=f"the exit of {name}")
        return status

    def stop(self, who: int | str) -> None:
        """Stop a server (SIGSTOP): it lives and answers nothing until :meth:`cont`."""
        os.kill(self.pids()[_name(who)], signal.SIGSTOP)

    def cont(self, who: int | str) -> None:
        """Let a stopped server go on."""
        os.kill(self.pids()[_name(who)], signal.SIGCONT)


def _name(who: int | str) -> str:
    return f"server {who}" if isinstance(who, int) else who


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
