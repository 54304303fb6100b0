"""Children: ready or an error with the log's end, and gone with their parent, whatever happens to
it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparkps.config import Settings, child_environment
from sparkps.coordinator.launch import LocalLauncher, _status, machine_memory
from sparkps.errors import InvalidSetting, LaunchFailed

#: Bound of every wait here.
PATIENCE = 30.0

DRIVER = """
import json, os, signal, sys
from sparkps.config import Settings
from sparkps.coordinator.launch import LocalLauncher

launcher = LocalLauncher(Settings(), servers=2)
launcher.start()
facts = {"pids": list(launcher.pids().values()), "directory": launcher.directory}
print(json.dumps(facts), flush=True)
how = sys.stdin.readline().strip()
if how == "exception":
    raise RuntimeError("on purpose")
if how in ("interrupt", "kill"):
    os.kill(os.getpid(), signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    signal.pause()
if how == "forked":
    # A forked copy that lives on holds none of the leashes, and does not stop what is not its own.
    pid = os.fork()
    if pid == 0:
        closed = all(child.process.stdin.closed for child in launcher._children.values())
        launcher.stop()
        os._exit(0 if closed else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.exit(0 if code == 0 and len(launcher.pids()) == 3 else 1)
"""


def await_end(pid):
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], PATIENCE)[0])
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("how", ["end", "exception", "interrupt", "kill", "forked"])
def test_nothing_is_left_however_the_driver_ends(how):
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        text=True,
    ) as driver:
        line = driver.stdout.readline()
        assert line, driver.stderr.read()
        facts = json.loads(line)
        driver.stdin.write(how + "\n")
        driver.stdin.flush()
        driver.communicate(timeout=PATIENCE)
        assert all(await_end(pid) for pid in facts["pids"])
        assert not Path(facts["directory"]).exists()
        assert (driver.returncode == 0) == (how in ("end", "forked"))


def wrapper(tmp_path, module, command):
    """A Python that runs a shell command in place of a module."""
    path = tmp_path / "python"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *"{module} "*) {command};; esac\nexec {sys.executable} "$@"\n'
    )
    path.chmod(0o700)
    return str(path)


def launch(**settings):
    launcher = LocalLauncher(Settings.load(None, **settings), servers=1)
    with pytest.raises(LaunchFailed) as failed:
        launcher.start()
    assert launcher.pids() == {}
    assert not Path(launcher.directory).exists()
    return str(failed.value)


def test_a_coordinator_that_dies_at_once_is_an_error_with_its_last_words(tmp_path):
    python = wrapper(tmp_path, "sparkps.coordinator", "echo boom >&2; exit 3")
    text = launch(python=python)
    assert text.startswith("coordinator did not start: exit status 3. Its log ")
    assert text.endswith("boom")


def test_a_server_that_dies_at_once_is_an_error_with_its_last_words(tmp_path):
    text = launch(python=wrapper(tmp_path, "sparkps.server", "echo no room >&2; exit 4"))
    assert text.startswith("server 0 did not start: exit status 4. Its log ")
    assert text.endswith("no room")


def test_a_python_that_is_not_there_is_named():
    text = launch(python="/nonexistent/python")
    assert "coordinator did not start: could not be started: [Errno 2]" in text


def test_what_hangs_at_the_start_is_given_up(tmp_path):
    python = wrapper(tmp_path, "sparkps.server", "exec sleep 1000")
    text = launch(python=python, start_timeout="2s", stop_timeout="500ms")
    assert text.startswith("the servers did not start: not ready after 2 s")


def test_logs_stay_where_the_setting_says(tmp_path):
    logs = tmp_path / "logs"
    with LocalLauncher(Settings.load(None, log_dir=str(logs)), servers=1) as launcher:
        assert sorted(launcher.pids()) == ["coordinator", "server 0"]
    files = sorted(path.name for path in logs.iterdir())
    assert [name.split("-", 2)[2] for name in files] == ["coordinator.log", "server-0.log"]
    text = next(logs.glob("*coordinator.log")).read_text()
    assert "server 0 is up" in text
    assert "leaving: shut down" in text


def test_stopping_twice_and_stopping_what_never_started_are_no_errors():
    launcher = LocalLauncher(Settings(), servers=1)
    launcher.stop()
    launcher.stop()


def test_a_stopped_process_does_not_hold_up_the_stop():
    launcher = LocalLauncher(Settings.load(None, stop_timeout="500ms"), servers=1)
    launcher.start()
    pid = launcher.pids()["server 0"]
    os.kill(pid, signal.SIGSTOP)
    launcher.stop()
    assert launcher.pids() == {}
    assert await_end(pid)


def test_children_see_no_secret_of_spark_and_one_thread():
    environment = child_environment(["/somewhere"])
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["PYTHONPATH"] == "/somewhere"


def test_exit_statuses_are_words():
    assert _status(0) == "exit status 0"
    assert _status(-15) == "killed by signal 15, SIGTERM"
    assert _status(-63) == "killed by signal 63"


def test_the_machine_has_memory():
    assert machine_memory() > 2**28


def test_a_directory_of_logs_that_cannot_be_made_is_named():
    launcher = LocalLauncher(Settings.load(None, log_dir="/dev/null/logs"), servers=1)
    with pytest.raises(InvalidSetting, match=r"log\.dir='/dev/null/logs': cannot be made"):
        launcher.start()
    assert not os.path.exists(launcher.directory)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 looks there first")
def test_what_lies_in_the_working_directory_hides_no_module(tmp_path, monkeypatch):
    (tmp_path / "runpy.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    with LocalLauncher(Settings(), servers=1) as launcher:
        assert len(launcher.pids()) == 2
