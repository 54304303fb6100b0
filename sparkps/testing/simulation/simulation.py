"""A whole cluster and a run on it, from a seed: who is started, what goes wrong, when it is over.

One event at a time; after each, with some probability, a trouble: a task is killed, gets a double,
is paused until its rank is given away, or is cut off from the coordinator while its writes go on,
which it may not notice for long; a server or the coordinator is paused. The last may end the run:
a server dies, the driver closes the session or vanishes, while whoever does not know goes on.
Spark's part is played here: a task that ended before its work was done is started again.

The simulation is over when the driver has closed the run, nobody runs any more and no request is
unanswered; then what is left is looked at.
"""

from __future__ import annotations

import traceback
from collections import Counter
from functools import partial
from typing import Any, Final

from sparkps.net.loopback import Network
from sparkps.spec import SessionSpec, TableInfo
from sparkps.testing.simulation.driver import Driver, Reader
from sparkps.testing.simulation.history import History, Violation
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
from sparkps.wire.messages import Granted

#: Fake seconds after which a run that is not over never will be.
DEADLINE: Final = 30.0
#: Events after which a run that is not over never will be; usual are 150 to 4,000.
LIMIT: Final = 20_000
#: Probability of a trouble after an event, while some are left: spread over most of a run.
_TROUBLE: Final = 0.008
#: Fake seconds in which a task may not notice that it is cut off: most of a run.
_DEAF: Final = 1.0
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
        self._closed = False
        self.history.at_grant = self._check_grant
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
        try:
            return self._play()
        except Violation:
            raise
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-2:])
            what = f"{type(error).__name__}: {error}, {where}"
            raise self.history.fail("crash", what) from error

    def _play(self) -> Counter[str]:
        network, history, counts = self.network, self.history, self.history.counts
        while not self._over():
            counts["steps"] += 1
            if not network.step() or network.now > DEADLINE or counts["steps"] > LIMIT:
                raise history.fail("end", f"it comes to no end: {self._state()}")
            history.now = network.now
            if self.driver.closed and not self._closed:
                self._closed = True
                self._check_closed()
            if self._run is not None and self.driver.running and not self.driver.closed:
                self._trouble()
        self._check_clients()
        for process in self._processes():
            process.die()
        until = network.now + _AFTER
        while network.now < until and network.step():
            history.now = network.now
        for server in self._alive():
            server.check_end()
        counts["runs that failed"] = self.driver.failed is not None or not self.driver.closed
        return counts

    # --- Spark

    def _opened(self, session: SessionSpec, tables: dict[str, TableInfo]) -> None:
        self._run = (session, tables)
        for rank in range(self.plan.size):
            self._start(rank)
        self.reader = Reader(self.network, self.plan, self.history, tables["counts"])
        random = self.network.random
        for number in range(self.plan.latecomers):
            server, when = self.plan.servers + number, self.network.now + random.uniform(0.0, 0.5)
            self.network.call_at(when, partial(self._join, server))

    def _join(self, server: int) -> None:
        """A server comes late; every other one leaves again, and takes nothing with it."""
        self.history.note("server {} comes", server)
        self.history.counts["servers that came late"] += 1
        self.servers.append(ServerMachine(self.network, self.plan, self.history, server))
        if server % 2:
            gone = self.network.now + self.network.random.uniform(0.0, 0.3)
            self.network.call_at(gone, partial(self._crash, server))

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
                    left=self._left,
                )
            )

    def _left(self, task: WorkerTask) -> None:
        """A task has ended. When its work is done the other copies of it are killed."""
        for other in self.tasks if task.done else ():
            if other.rank == task.rank and other.running:
                self.history.note("{} is killed, {} is done", other.name, task.name)
                self.history.counts["copies killed"] += 1
                other.die()
        self._restart(task)

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
        if not self._troubles and self._end_run():
            return
        tasks = [task for task in self.tasks if task.running and self._attempts(task) < _ATTEMPTS]
        kinds = ("kill", "double", "pause", "cut off", "deaf") if tasks else ()
        kind = random.choice((*kinds, "server", "coordinator"))
        if kind == "server":
            server = random.randrange(self.plan.servers)
            self._note_trouble(kind, server_name(server))
            if server not in self._crashed:
                self._pause(server_name(server), 0.05)
        elif kind == "coordinator":
            self._note_trouble(kind, COORDINATOR)
            self._pause(COORDINATOR, random.choice((0.05, 1.5)))
        else:
            task = random.choice(tasks)
            self._note_trouble(kind, task.name)
            self._trouble_for(task, kind)

    def _trouble_for(self, task: WorkerTask, kind: str) -> None:
        random = self.network.random
        if kind == "kill":
            task.die(hard=random.random() < 0.5)
            self._restart(task)
            return
        if kind == "cut off":
            self.network.cut(task.control)
            return
        self._start(task.rank)
        if kind == "pause":
            self._pause(task.name, random.uniform(0.1, 3 * SETTINGS.dead))
        elif kind == "deaf":
            self.network.cut(task.control, deaf=random.uniform(0.0, _DEAF))

    def _end_run(self) -> bool:
        """Let the run end in the middle, if it is planned so."""
        plan, random = self.plan, self.network.random
        if plan.server_dies:
            self._crash(random.randrange(plan.servers))
        elif plan.driver_leaves:
            self._note_trouble("the driver leaves", self.driver.name)
            self.driver.leave()
        elif plan.driver_dies:
            self._note_trouble("the driver dies", self.driver.name)
            self.driver.die(hard=random.random() < 0.5)
        else:
            return False
        return True

    def _note_trouble(self, kind: str, whose: str) -> None:
        self.history.note("trouble: {} ({})", kind, whose)
        self.history.counts[f"trouble: {kind}"] += 1

    def _attempts(self, task: WorkerTask) -> int:
        return sum(other.rank == task.rank for other in self.tasks)

    def _pause(self, name: str, seconds: float) -> None:
        self.network.pause(name)
        self._paused += 1

        def resume() -> None:
            self._paused -= 1
            if all(name != server_name(server) for server in self._crashed):
                self.network.resume(name)

        self.network.call_at(self.network.now + seconds, resume)

    def _crash(self, server: int) -> None:
        self._note_trouble("a server dies", server_name(server))
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
            server.faults.quiet = True
        for process in self._processes():
            process.faults.quiet = True
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
        meant = self.plan.may_fail
        require(failed is None or meant, "end", f"the run has failed: {failed!r}, {driver.kept}")
        require(driver.error is None or meant, "end", f"the driver has failed: {driver.error!r}")
        for process in self._processes():
            if process.alive:
                backlog = process.core.backlog
                require(not backlog, "end", f"{process.name} keeps {backlog}")
                sizes = [lane.size for lane in process.core.lanes.values()]
                require(not any(sizes), "end", f"{process.name} counts {sizes} bytes in flight")

    # --- the servers

    def _alive(self) -> list[ServerMachine]:
        return [server for server in self.servers if server.server not in self._crashed]

    def _check_grant(self, granted: Granted) -> None:
        """No server takes the token before any more."""
        for server in self._alive():
            token = server.token(granted.session, granted.rank)
            what = f"{granted} is told, server {server.server} takes token {token}"
            ignorant = server.server >= self.plan.servers and not token  # it takes none at all
            self.history.require(token == granted.token or ignorant, "token", what)

    def _check_closed(self) -> None:
        """The driver was told that its session is closed."""
        for server in self._alive():
            server.check_closed()
