"""Run :mod:`tests.plugin.driver` with the fake children, and see what they write down."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkps.plugin import PLUGIN, jar_path
from tests.spark.processes import of_session

HERE = Path(__file__).parent
#: Seconds for anything that a test waits for; a JVM starts in five on a free machine.
PATIENCE = 90.0


def until(what: str, found: Callable[[], Any]) -> Any:
    """Wait until ``found`` gives something true; return it."""
    deadline = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        threading.Event().wait(0.05)
    return result


class Application:
    """A driver in a session of its own, so that what it leaves behind can be found."""

    def __init__(self, directory: Path, master: str, **sparkps: str) -> None:
        self.directory = directory
        # Java makes sockets' directories elsewhere where this has too long a name.
        self.temporary = Path(tempfile.mkdtemp(prefix="d-"))
        others = sparkps.pop("conf", "{}")
        conf = {
            "spark.master": master,
            "spark.app.name": "plugin",
            "spark.jars": jar_path(),
            "spark.plugins": PLUGIN,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={self.temporary}",
            "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={self.temporary}",
            "spark.local.dir": str(directory / "local"),
            "spark.log.level": "WARN",
            "spark.ui.port": "0",
            "spark.ui.showConsoleProgress": "false",
            "spark.authenticate": "true",
            "spark.authenticate.secret": "of this test",
            "spark.sparkps.test.dir": str(directory),
            **{f"spark.sparkps.{key.replace('_', '.')}": value for key, value in sparkps.items()},
            **json.loads(others),
        }
        environment = {
            **os.environ,  # noqa: TID251
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(HERE / "children"),
        }
        self.errors = directory / "stderr"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "driver.py"), json.dumps(conf)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, env=environment, start_new_session=True, cwd=directory,
            )  # fmt: skip

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in of_session(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def answer(self) -> Any:
        """The next line of the driver."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()[-6000:]
        return json.loads(line)

    def ask(self, command: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> int:
        """Let the driver stop Spark and end; return its exit status."""
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode

    def children(self, role: str) -> list[dict[str, Any]]:
        """What the children of a role have written, in the order of their start."""
        paths = sorted(self.directory.glob(f"{role}-*.json"), key=lambda path: path.stat().st_mtime)
        return [json.loads(path.read_text()) for path in paths]

    def living(self) -> list[dict[str, Any]]:
        """The servers that live."""
        alive = of_session(self.process.pid)
        return [child for child in self.children("server") if child["pid"] in alive]

    def events(self, kind: str) -> list[Any]:
        """What the coordinator was told."""
        path = self.directory / "events"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return [event[kind] for event in events if kind in event]
