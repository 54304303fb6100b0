"""The coordinator's process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from sparkps._parent import told
from sparkps.config import child_environment
from sparkps.coordinator.leash import FirstLine
from sparkps.net.directory import runtime_directory

#: Bound of every wait here.
PATIENCE = 30.0

#: A coordinator for which a signal always comes at a bad moment: while a wake-up's lock is held.
COORDINATOR = """
import os, signal, sys
from sparkps.coordinator.shell import main
from sparkps.net.wakeup import Wakeup

def set(self):
    with self._lock:
        signal.raise_signal(signal.SIGTERM)
        os.write(self._write, b"!")

Wakeup.set = set
sys.exit(main())
"""


def test_one_signal_after_the_other_ends_it_though_its_stdin_is_open() -> None:
    # The death of a parent with several threads is told once for each of them.
    directory = runtime_directory()
    first = FirstLine(servers=1, directory=directory, log=os.path.join(directory, "log"))
    with subprocess.Popen(
        [sys.executable, "-c", COORDINATOR],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
    ) as coordinator:
        try:
            assert coordinator.stdin is not None
            assert coordinator.stdout is not None
            coordinator.stdin.write(msgspec.json.encode(first) + b"\n")
            coordinator.stdin.flush()
            assert told(coordinator.stdout.readline()) == ("listening", f"ipc://{directory}/c")
            coordinator.send_signal(signal.SIGTERM)
            assert coordinator.wait(PATIENCE) == 0
        finally:
            coordinator.kill()
    assert not Path(directory).exists()
