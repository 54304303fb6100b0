"""A whole cluster and a run on it, from a seed: who is started, what goes wrong, when it is over.

One event at a time; after each, with some probability, a trouble: a task is killed, gets a double,
is paused until its rank is given away, or is cut off from the coordinator while its writes go on; a
server or the coordinator is paused. Spark's part is played here: a task that ended before its work
was done is started again.

The simulation is over when the driver has closed the run, nobody runs any more and no request is
unanswered; then what is left is looked at.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from sparkps.net.loopback import Network
from sparkps.spec import SessionSpec, TableInfo
from sparkps.testing.simulation.driver import Driver, Reader
from sparkps.testing.simulation.history import History
from sparkps.testing.simulation.machines import (
    COORDINATOR,
    SETTINGS,
    CoordinatorMachine,
    ServerMachine,
    server_name,
)
from sparkps.testing.simulation.plan import Plan
from sparkps.testing.simulation.process import Process
from sparkps.testing.simulation.worker import WorkerTask

#: Fake seconds after which a run that is not over never will be.
DEADLINE: Final = 30.0
#: Probability of a trouble after an event, while some are left.
_TROUBLE: Final = 0.01
#: Fake seconds in which the servers hear that the clients have gone.
_AFTER: Final = 0.3
#: Attempts of a rank before troubles leave it alone: Spark would give the job up.
_ATTEMPTS: Final = 4


class Simulation:
    """One run of a plan.

    Attributes
    ----------
    history : History
        What happened.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.network = Network(plan.seed)
        self.history = History(plan)
        self.coordinator = CoordinatorMachine(self.network, plan, self.history)
        self.servers = [
            ServerMachine(self.network, plan, self.history, server)
            for server in range(plan.servers)
        ]
        self.tasks: list[WorkerTask] = []
        self.reader: Reader | None = None
        self._run: tuple[SessionSpec, dict[str, TableInfo]] | None = None
        self._troubles = plan.troubles
        self._paused = 0
        self._crashed: set[int] = set()
        self.driver = Driver(self.network, plan, self.history, self._opened)

    def run(self) -> Counter[str]:
        """Run it to its end.

        Returns
        -------
        Counter
            How often things happened.

        Raises
        ------
        Violation
            An invariant does not hold, or nothing comes to an end.
        """
        network, history = self.network, self.history
        steps = 0
        while not self._over():
            if not network.step() or network.now > DEADLINE:
                raise history.fail(f"it comes to no end: {self._state()}")
            steps += 1
            history.now = network.now
            if self._run is not None and not self.driver.closed:
                self._trouble()
        self._check_clients()
        for process in self._processes():
            process.die()
        until = network.now + _AFTER
        while network.now < until and network.step():
            history.now = network.now
        self._check_servers()
        history.counts["steps"] = steps
        history.counts["runs that failed"] = self.driver.failed is not None
        return history.counts

    # --- Spark

    def _opened(self, session: SessionSpec, tables: dict[str, TableInfo]) -> None:
        self._run = (session, tables)
        for rank in range(self.plan.size):
            self._start(rank)
        self.reader = Reader(self.network, self.plan, self.history, tables["counts"])

    def _start(self, rank: int) -> None:
        if self._run is not None:
            session, tables = self._run
            name = f"task {len(self.tasks)} of rank {rank}"
            self.history.note("{} starts", name)
            self.tasks.append(
                WorkerTask(
                    self.network,
                    self.plan,
                    self.history,
                    name,
                    rank=rank,
                    session=session,
                    tables=tables,
                    left=self._restart,
                )
            )

    def _restart(self, task: WorkerTask) -> None:
        """Start another task for the rank of one that has ended before its work was done; in the
        end give the job up."""
        tasks = [other for other in self.tasks if other.rank == task.rank]
        over = self.driver.closed or self.driver.failed is not None
        if over or any(other.running or other.done for other in tasks):
            return
        if len(tasks) < 2 * _ATTEMPTS:
            self._start(task.rank)
        else:
            self.driver.leave()

    # --- troubles

    def _trouble(self) -> None:
        random = self.network.random
        if not self._troubles or random.random() >= _TROUBLE:
            return
        self._troubles -= 1
        plan = self.plan
        if plan.server_dies and not self._crashed:
            self._crash(random.randrange(plan.servers))
            return
        if plan.driver_leaves and self.driver.failed is None:
            self.driver.leave()
            return
        task = random.choice(self.tasks)
        attempts = sum(other.rank == task.rank for other in self.tasks)
        kind = random.choice(("kill", "double", "pause", "cut off", "server", "coordinator"))
        self.history.note("trouble: {} ({})", kind, task.name)
        self.history.counts[f"trouble: {kind}"] += 1
        if kind == "server":
            server = random.randrange(plan.servers)
            if server not in self._crashed:
                self._pause(server_name(server), 0.05)
        elif kind == "coordinator":
            self._pause(COORDINATOR, random.choice((0.05, 1.5)))
        elif not task.running or attempts >= _ATTEMPTS:
            return
        elif kind == "kill":
            task.die()
            self._restart(task)
        elif kind == "cut off":
            self.network.cut(task.control)
        else:
            self._start(task.rank)
            if kind == "pause":
                self._pause(task.name, random.uniform(0.1, 3 * SETTINGS.dead))

    def _pause(self, name: str, seconds: float) -> None:
        self.network.pause(name)
        self._paused += 1

        def resume() -> None:
            self._paused -= 1
            self.network.resume(name)

        self.network.call_at(self.network.now + seconds, resume)

    def _crash(self, server: int) -> None:
        self.history.note("trouble: server {} dies", server)
        self.history.counts["trouble: server dies"] += 1
        self._crashed.add(server)
        self.network.crash(server_name(server))
        self.network.call_at(self.network.now + 0.01, lambda: self.coordinator.exited(server))

    # --- the end

    def _processes(self) -> list[Process]:
        readers = [self.reader] if self.reader is not None else []
        return [self.driver, *readers, *self.tasks]

    def _over(self) -> bool:
        if self.driver.running or self._paused:
            return False
        if self.reader is not None:
            self.reader.stopped = True
        for server in self.servers:
            server.quiet = True
        for process in self._processes():
            process.quiet = True
        return not any(process.running or process.busy for process in self._processes())

    def _state(self) -> dict[str, Any]:
        return {
            process.name: [process.error or "runs" if process.running else process.error]
            + [
                (lane.server, lane.up, len(lane.flying), len(lane.queue), len(lane.again))
                for lane in process.core.lanes.values()
                if lane.busy
            ]
            for process in self._processes()
            if process.running or process.busy
        }

    def _check_clients(self) -> None:
        require = self.history.require
        driver, failed = self.driver, self.driver.failed
        meant = self.plan.server_dies or self.plan.driver_leaves or self.plan.memory < 1 << 30
        require(failed is None or meant, f"the run has failed: {failed!r}, {driver.kept}")
        require(driver.error is None or meant, f"the driver has failed: {driver.error!r}")
        for process in self._processes():
            if process.alive:
                require(process.core.backlog == 0, f"{process.name} keeps {process.core.backlog}")
                sizes = [lane.size for lane in process.core.lanes.values()]
                require(not any(sizes), f"{process.name} counts {sizes} bytes in flight")

    def _check_servers(self) -> None:
        if self.driver.closed:
            for server in self.servers:
                if server.server not in self._crashed:
                    server.check_end()
