"""What the tests of failures ask about processes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

#: Seconds that a process may take to end.
EXIT = 60.0


def gone(pid: int, within: float = EXIT) -> bool:
    """Whether a process ends within some seconds, a minute if nothing is said."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        threading.Event().wait(0.05)
    return False


def of_session(leader: int) -> list[int]:
    """The processes of a session that are left, but for those that nobody has waited for yet."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def none_left(leader: int) -> list[int]:
    """Wait until a session has no processes; return those that stay."""
    deadline = time.monotonic() + EXIT
    while (left := of_session(leader)) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return left
