"""Launchers: who starts the coordinator and the servers, and who ties their lives to the driver's.

The rules of the local one:

* Each child is started by a thread of its own, which then stays in ``waitpid``: the child may ask
  for a signal at the parent's death only under that condition, and its exit is certified to the
  coordinator at once, with its status and the last lines of its log.
* A child's stdin is its leash: the first line says what to do, its end means that the parent is
  gone. A forked child of the driver closes its copies, or they would keep our children alive.
* Starting waits for "ready" or a death, never for a time alone. What fails is stopped and cleaned
  up.
* Stopping asks first (the coordinator stops the servers and leaves), then lets go of the leashes,
  then kills. It also happens at the interpreter's exit. The directory of the sockets goes last.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Final

import msgspec

from sparkps import _log
from sparkps._machine import machine_memory
from sparkps._parent import told
from sparkps.config import Settings, child_environment
from sparkps.coordinator.leash import FirstLine, Line
from sparkps.errors import CoordinatorLost, InvalidSetting, LaunchFailed, PSError
from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.wire.auth import Secret

#: Seconds between letting go of a leash and killing.
_LETTING_GO: Final = 1.0
#: A local server is started once; a restarted one would be a new id.
_INCARNATION: Final = 1


class Launcher(ABC):
    """Contract of all launchers.

    Attributes
    ----------
    settings : Settings
        As given.
    endpoint : str
        The coordinator's addresses; valid after :meth:`start`.
    secret : Secret or None
        The application's key, where connections need it.
    directory : str
        A private directory of this launcher, removed at :meth:`stop`; valid after :meth:`start`.
    origin : str
        What the servers are, in words.
    """

    settings: Settings
    endpoint: str
    secret: Secret | None
    directory: str
    origin: str = "children of the driver"

    @abstractmethod
    def start(self) -> None:
        """Start everything; return when all servers are up.

        Raises
        ------
        LaunchFailed
            With the last lines of the log of what did not start. Nothing is left running.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop everything that was started; return when nothing is left. Twice is no error."""

    @abstractmethod
    def why_lost(self) -> PSError | None:
        """CoordinatorLost, with status and log tail, if the coordinator has died; else None."""

    def __enter__(self) -> Launcher:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Child:
    """A child process, the thread that waits for it, and its leash."""

    def __init__(self, name: str, log: str) -> None:
        self.name = name
        self.log = log
        self.status = ""
        self.exited = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(
        self, command: list[str], environment: dict[str, str], line: bytes, report: int
    ) -> None:
        """Start the process and wait for its end; in the child's own thread."""
        log = -1
        try:
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self.process = subprocess.Popen(  # its end is waited for below
                command,
                env=environment,
                bufsize=0,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=report if report >= 0 else log,
                stderr=log,
            )
        except OSError as error:
            self.status = f"could not be started: {error}"
            return
        finally:
            for descriptor in (log, report):
                if descriptor >= 0:
                    os.close(descriptor)
        self.say(line)
        code = self.process.wait()
        self.status = _status(code)
        self.let_go()

    def say(self, line: bytes) -> None:
        """Write a line to its stdin; a child that is gone does not hear it."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stdin().write(line + b"\n")

    def let_go(self) -> None:
        """Close its leash."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stdin().close()

    def forget_leash(self) -> None:
        """Close our copy in a forked child of ours, where the lock's holder may not live."""
        with contextlib.suppress(OSError, ValueError):
            self._stdin().close()

    def kill(self) -> None:
        """Send SIGKILL, which works on a stopped process too."""
        if self.process is not None and not self.exited.is_set():
            self.process.kill()

    def _stdin(self) -> IO[bytes]:
        if self.process is None or self.process.stdin is None:
            raise ValueError("not started")
        return self.process.stdin


class LocalLauncher(Launcher):
    """The coordinator and the servers as children of this process.

    Parameters
    ----------
    settings
        The application's settings.
    servers
        How many servers.
    host
        Address of this host at which others reach it: all listen there by tcp as well. Empty: on
        local sockets only. The setting ``bind.host`` counts as one.
    secret
        The application's key; None makes one, where it is needed.

    Examples
    --------
    >>> with LocalLauncher(Settings(), servers=1) as launcher:
    ...     sorted(launcher.pids())
    ['coordinator', 'server 0']
    """

    def __init__(
        self, settings: Settings, servers: int, host: str = "", secret: Secret | None = None
    ) -> None:
        self.settings = settings
        self.servers = servers
        self.host = host or settings.bind_host or ""
        needed = bool(self.host) and settings.security != "none"
        self.secret = (secret or Secret.new()) if needed else None
        self.endpoint = ""
        self.directory = ""
        self._pid = os.getpid()
        self._children: dict[str, _Child] = {}
        self._events: queue.SimpleQueue[_Child | tuple[str, str]] = queue.SimpleQueue()
        #: What waits for the children; each ends with its child.
        self.threads: list[threading.Thread] = []
        self._stopping = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start everything; return when all servers are up."""
        try:
            self.directory = runtime_directory()
            _launchers.add(self)
            atexit.register(self.stop)
            self._start_coordinator()
            for server in range(self.servers):
                self._start_server(server)
            self._await_report("the servers", "ready")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything; return when nothing is left."""
        if os.getpid() != self._pid:
            return  # a forked copy of this object: the children are not its own
        with self._lock:
            self._stopping = True
            children = list(self._children.values())
            coordinator = self._children.get("coordinator")
            if coordinator is not None and not coordinator.exited.is_set():
                coordinator.say(msgspec.json.encode(Line(shutdown=True)))
                self._await_exits(children, self.settings.stop_timeout)
            for child in children:
                child.let_go()
            self._await_exits(children, _LETTING_GO)
            for child in children:
                child.kill()
            for child in children:
                child.exited.wait()
            if self.directory:
                remove_directory(self.directory)
            atexit.unregister(self.stop)
            _launchers.discard(self)

    def why_lost(self) -> PSError | None:
        """CoordinatorLost if the coordinator has died by itself."""
        child = self._children.get("coordinator")
        if child is None or not child.exited.is_set() or self._stopping:
            return None
        return CoordinatorLost(status=child.status, log=child.log, tail=_log.tail(child.log))

    def pids(self) -> dict[str, int]:
        """``{"coordinator": pid, "server 0": pid, ...}`` of the children that live."""
        return {
            name: child.process.pid
            for name, child in self._children.items()
            if child.process is not None and not child.exited.is_set()
        }

    def await_exit(self, name: str, timeout: float) -> str:
        """Wait until a child has ended; return its status, or an empty string after ``timeout``
        seconds.
        """
        child = self._children[name]
        return child.status if child.exited.wait(timeout) else ""

    def log(self, name: str) -> str:
        """Path of a child's log file."""
        directory = Path(self.settings.log_dir or os.path.join(self.directory, "logs"))
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidSetting(
                name="log.dir", value=str(directory), reason=f"cannot be made: {error.strerror}"
            ) from None
        # Names in a directory of the user's must not meet those of another application.
        prefix = f"{os.path.basename(self.directory)}-" if self.settings.log_dir else ""
        return str(directory.absolute() / f"{prefix}{name.replace(' ', '-')}.log")

    # -- inside ------------------------------------------------------------------------------------

    def _start_coordinator(self) -> None:
        read, write = os.pipe()
        self._start_thread("reports", lambda: self._read_reports(read))
        log = self.log("coordinator")
        first = FirstLine(
            conf=self.settings.to_conf(),
            servers=self.servers,
            host=self.host,
            secret=self.secret.hex if self.secret else "",
            directory=self.directory,
            log=log,
        )
        # SIGTERM, not SIGKILL: whatever happens to us, it still removes the directory.
        self._start_child(
            "coordinator",
            "sparkps.coordinator",
            signal.SIGTERM,
            msgspec.json.encode(first),
            log,
            write,
        )
        self.endpoint = self._await_report("the coordinator", "listening")

    def _start_server(self, server: int) -> None:
        log = self.log(f"server {server}")
        memory = self.settings.server_memory or machine_memory() // 2 // self.servers
        line = msgspec.json.encode(
            {
                "server": server,
                "incarnation": _INCARNATION,
                "coordinator": self.endpoint,
                "conf": self.settings.to_conf(),
                "secret": self.secret.hex if self.secret else "",
                "host": self.host,
                "directory": self.directory,
                "memory": memory,
                "log": log,
            }
        )
        self._start_child(f"server {server}", "sparkps.server", signal.SIGKILL, line, log)

    def _start_child(
        self, name: str, module: str, at_death: int, line: bytes, log: str, report: int = -1
    ) -> None:
        child = self._children[name] = _Child(name, log)
        own = self.settings.python in (None, sys.executable)
        command = [
            self.settings.python or sys.executable,
            "-m",
            "sparkps.coordinator.child",
            module,
            str(self._pid),
            str(int(at_death)),
            self.directory,
        ]
        environment = child_environment(None if own else [str(Path(__file__).parents[2])])

        def watch() -> None:
            try:
                child.run(command, environment, line, report)
            finally:
                self._exited(child)

        self._start_thread(name, watch)

    def _start_thread(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"sparkps-{name}", daemon=True)
        self.threads.append(thread)
        thread.start()

    def _exited(self, child: _Child) -> None:
        """A child has ended; in its own thread."""
        if child.name.startswith("server ") and not self._stopping:
            server = int(child.name.removeprefix("server "))
            line = Line(exited=(server, _INCARNATION, child.status, _log.tail(child.log)))
            self._children["coordinator"].say(msgspec.json.encode(line))
        child.exited.set()
        self._events.put(child)

    def _read_reports(self, fd: int) -> None:
        with open(fd, "rb") as lines:
            for line in lines:
                report = told(line)
                if report is not None:
                    self._events.put(report)

    def _await_report(self, what: str, verb: str) -> str:
        """Wait until the coordinator says something, or for the death of a child; return what it
        has said.
        """
        deadline = time.monotonic() + self.settings.start_timeout
        while True:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                log = self.log("coordinator")
                reason = f"not ready after {self.settings.start_timeout:g} s"
                raise LaunchFailed(what=what, reason=reason, log=log, tail=_log.tail(log)) from None
            if isinstance(event, _Child):
                raise LaunchFailed(
                    what=event.name, reason=event.status, log=event.log, tail=_log.tail(event.log)
                )
            if event[0] == "failed":
                log = self.log("coordinator")
                raise LaunchFailed(what=what, reason=event[1], log=log, tail=_log.tail(log))
            if event[0] == verb:
                return event[1]

    def _await_exits(self, children: list[_Child], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for child in children:
            child.exited.wait(max(0.0, deadline - time.monotonic()))

    def close_leashes(self) -> None:
        """In a forked child: let go of what is the parent's."""
        for child in self._children.values():
            child.forget_leash()


def _status(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


#: Launchers with children, for forked copies of this process. A handler for forks cannot be taken
#: back, so it is registered once.
_launchers: weakref.WeakSet[LocalLauncher] = weakref.WeakSet()


def _forked() -> None:
    for launcher in list(_launchers):
        launcher.close_leashes()


os.register_at_fork(after_in_child=_forked)
