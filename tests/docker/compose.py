"""A compose project of the tests: its containers, their processes, and Spark's own pages.

Nothing here waits for a time: :func:`until` asks until it is so, or fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker/compose.yaml"

#: Seconds that anything may take that takes seconds on a machine that does nothing else.
PATIENCE = 300.0

T = TypeVar("T")


def run(*command: str, timeout: float = PATIENCE, more: Mapping[str, str] | None = None) -> str:
    """Run a command with more environment; return what it printed, or fail with it."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        text=True, timeout=timeout, check=False, env={**os.environ, **(more or {})},  # noqa: TID251
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-4000:]}"
    return done.stdout


def compose_command() -> list[str]:
    """Compose v2 where it is installed, or else docker-compose 1.29."""
    v2 = ["docker", "compose"]
    found = subprocess.run([*v2, "version"], capture_output=True, check=False)
    return ["docker-compose"] if found.returncode else v2


def until(question: Callable[[], T | None], what: str, timeout: float = PATIENCE) -> T:
    """Return the first answer that is neither None nor empty."""
    deadline = time.monotonic() + timeout
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        threading.Event().wait(0.2)


class Project:
    """One cluster under a name of its own, which collides with no other.

    Parameters
    ----------
    name
        Of the compose project.
    image
        That its containers run.
    data
        What they see as ``data/``; jobs that only tests use are put there.
    """

    def __init__(self, name: str, image: str, data: Path) -> None:
        self.name, self.image, self.data = name, image, data
        self.network = f"{name}_default"
        self._command = [*compose_command(), "-p", name, "-f", str(FILE)]
        self._environment = {
            "SPARKPS_IMAGE": image,
            "SPARKPS_DATA": str(data),
            "SPARKPS_MASTER_UI": "0",  # any free port
            "SPARKPS_APP_UI": "0",
        }

    def compose(self, *arguments: str) -> str:
        return run(*self._command, *arguments, more=self._environment)

    def up(self, workers: int) -> None:
        """Start what is missing, and wait until every container is healthy."""
        self.compose("up", "-d", "--no-build", "--no-recreate", "--scale", f"worker={workers}")
        until(lambda: self._healthy(workers), f"{workers} healthy workers\n{self._states()}")

    def down(self) -> None:
        self.compose("down", "--timeout", "5")

    def submit(self, *arguments: str) -> Submitted:
        """Run a job as a user does."""
        return Submitted([*self._command, "run", "--rm", "submit", *arguments], self._environment)

    def containers(self, service: str) -> list[str]:
        """Ids of a service's containers that run."""
        labels = {"project": self.name, "service": service, "oneoff": "False"}
        filters = [f"--filter=label=com.docker.compose.{key}={labels[key]}" for key in labels]
        return run("docker", "ps", "-q", "--no-trunc", *filters).split()

    def servers(self, container: str) -> list[int]:
        """Parents (their ids on this host) of a container's servers: one per server."""
        rows = [row for row in processes(container) if "-m sparkps.server" in row[2]]
        executors = {
            pid for pid, _, text in processes(container) if "CoarseGrainedExecutorBackend" in text
        }
        strangers = [row for row in rows if row[1] not in executors]
        assert not strangers, f"servers that are no executor's children: {strangers}"
        return [parent for _, parent, _ in rows]

    def page(self, path: str) -> Any:
        """Ask the master, through the port that it publishes; None if it has no such page."""
        (master,) = self.containers("master")
        address = run("docker", "port", master, "8080").split()[0]
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def training_for(self, seconds: float) -> bool:
        """Whether an application has a stage that has run for so long, by its own page."""
        for app in (self.page("/json/") or {}).get("activeapps", []):
            path = f"/proxy/{app['id']}/api/v1/applications/{app['id']}/stages?status=active"
            for stage in self.page(path) or []:
                age = stage["executorRunTime"] or 0
                began = stage.get("firstTaskLaunchedTime")
                if began and (age or _age(began)) >= seconds:
                    return True
        return False

    def _healthy(self, workers: int) -> bool:
        states = self._states().split()
        return len(states) == workers + 1 and set(states) == {"healthy"}

    def _states(self) -> str:
        ids = [*self.containers("master"), *self.containers("worker")]
        return run("docker", "inspect", "-f", "{{.State.Health.Status}}", *ids) if ids else ""


def _age(moment: str) -> float:
    """Seconds since a moment as Spark writes it: 2026-01-31T12:00:00.000GMT."""
    began = time.strptime(moment.partition(".")[0], "%Y-%m-%dT%H:%M:%S")
    return time.mktime(time.gmtime()) - time.mktime(began)


def processes(container: str) -> Sequence[tuple[int, int, str]]:
    """(process, parent, command line) of what runs in a container."""
    try:
        text = run("docker", "top", container, "-eo", "pid,ppid,args")
    except AssertionError:
        return []  # it has ended
    rows = [line.split(maxsplit=2) for line in text.splitlines()[1:]]
    return [(int(row[0]), int(row[1]), row[2]) for row in rows if len(row) == 3]


class Submitted:
    """A job that was submitted: ``output`` and ``status`` after :meth:`wait`."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            text=True, env={**os.environ, **environment},  # noqa: TID251
        )  # fmt: skip
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def running(self) -> bool:
        """True, or a failure with what it printed."""
        assert self._process.poll() is None, f"the job has ended:\n{self.output[-4000:]}"
        return True

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end; return its exit status."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {timeout:.0f} s:\n{self.output[-4000:]}") from None
        self._reader.join()
        return status

    def stop(self) -> None:
        """End it as Ctrl-C does; compose removes its container."""
        if self._process.poll() is None:
            self._process.terminate()
        self.wait()
