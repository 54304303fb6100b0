"""Drivers in processes of their own, which do what a test tells them, line by line.

A test of what survives a kill cannot be the driver itself. The driver here reads statements and
expressions from a named pipe (spark-submit gives a driver no stdin), and answers each with a line
of JSON on its stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.spark.processes import of_session

ROOT: Final = Path(__file__).parents[2]
#: Seconds for an answer, a JVM's start among them, on a machine that does much else.
PATIENCE: Final = 180.0
#: Seconds in which all must be gone after an end (the issue's own figure), and what the machine of
#: a test may be slower.
GONE: Final = 5.0

_SCRIPT = """
import json, os, signal, sys, threading

def repl():
    names = {}
    for line in open(sys.argv[1]):
        text = json.loads(line)
        try:
            try:
                code = compile(text, "<test>", "eval")
            except SyntaxError:
                exec(compile(text, "<test>", "exec"), names)
                answer = {"result": None}
            else:
                answer = {"result": eval(code, names)}
        except BaseException as error:
            answer = {"error": type(error).__name__, "text": str(error)}
            kind = type(error).__mro__
            answer["kinds"] = [each.__name__ for each in kind]
        print(json.dumps(answer, default=str), flush=True)

repl()
"""


class Raised(Exception):
    """What a statement raised in the driver.

    Attributes
    ----------
    kinds
        Names of its class and of those above.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{answer['error']}: {answer['text']}")
        self.kinds: list[str] = answer["kinds"]


class Driver:
    """A driver process.

    Parameters
    ----------
    directory
        Where it runs. Its temporary files, and Java's, are in a directory of a shorter name.
    command
        What comes before the script: a Python, or spark-submit with its arguments.
    environment
        Added to that of the test.
    """

    def __init__(
        self,
        directory: Path,
        command: Sequence[str] = (sys.executable,),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Names of sockets are limited, and pytest's directories long.
        self.temporary = Path(tempfile.mkdtemp(prefix="d-"))
        script = directory / "driver.py"
        script.write_text(_SCRIPT)
        self.errors = (directory / "stderr").open("w+")
        words = directory / "words"
        os.mkfifo(words)
        # Both ends, so that opening it waits for nobody.
        self._words = os.open(words, os.O_RDWR)
        self.process = subprocess.Popen(
            [*command, str(script), str(words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            start_new_session=True, cwd=directory,
            env={**inherited(self.temporary), **(environment or {})},
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process, the leader of its session."""
        return self.process.pid

    def do(self, text: str, patience: float = PATIENCE) -> Any:
        """Run statements, or evaluate an expression and return its value.

        Raises
        ------
        Raised
            What they raised.
        AssertionError
            The driver ended, or did not answer in time.
        """
        assert self.process.stdout is not None
        os.write(self._words, json.dumps(text).encode() + b"\n")
        timer = threading.Timer(patience, self.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith('{"'):
                    answer = json.loads(line)
                    if "error" in answer:
                        raise Raised(answer)
                    return answer["result"]
        finally:
            timer.cancel()
        raise AssertionError(f"the driver ended, or was silent, at {text!r}:\n{self.said()}")

    def said(self) -> str:
        """The end of its stderr."""
        self.errors.flush()
        self.errors.seek(0)
        return self.errors.read()[-6000:]

    def end(self) -> int:
        """Let it end by itself; return its exit status."""
        os.close(self._words)
        self._words = -1
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill all of its session."""
        for pid in of_session(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing of it, however the test went."""
        self.kill()
        self.process.wait(PATIENCE)
        shutil.rmtree(self.temporary, ignore_errors=True)
        if self._words >= 0:
            os.close(self._words)
        self.errors.close()
        if self.process.stdout is not None:
            self.process.stdout.close()

    # -- what is there -----------------------------------------------------------------------------

    def servers(self) -> dict[int, int]:
        """Process and parent of each server of the session."""
        return {pid: parent_of(pid) for pid in self.running("-m sparkps.server")}

    def running(self, word: str) -> list[int]:
        """Processes of the session that have a word in their command line."""
        return [pid for pid in of_session(self.pid) if word in command_of(pid)]

    def left(self) -> list[str]:
        """What is left of sparkps: processes, sockets, temporary directories, shared memory."""
        found = [command_of(pid) for pid in self.running("-m sparkps.")]
        found += [str(path) for path in self.temporary.iterdir() if path.name.startswith("sparkps")]
        return found + [name for name in os.listdir("/dev/shm") if "sparkps" in name]


def inherited(directory: Path) -> dict[str, str]:
    """The environment of a driver that keeps its temporary files in a directory of the test."""
    environment = dict(os.environ)  # noqa: TID251
    environment.pop("SPARK_HOME", None)
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    more = {
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(directory),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={directory}",
        "PATH": path,
    }
    return {**environment, **more, "PYTHONPATH": str(ROOT)}


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def until(condition: Any, seconds: float) -> Any:
    """Look again and again until something is true; return it, or what it was at last."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return found


@contextlib.contextmanager
def driver(directory: Path, *arguments: Any, **options: Any) -> Iterator[Driver]:
    """A driver that is closed at the end."""
    started = Driver(directory, *arguments, **options)
    try:
        yield started
    finally:
        started.close()
