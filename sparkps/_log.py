"""Logging of the three programs: one line per event, one file per process, and how to read a file's
end.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from sparkps._parent import MARK

#: Lines of a dead process's log that go into the error that names it.
TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 16_384

_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"


def get(name: str) -> logging.Logger:
    """Return the logger of a part, as ``get("server")``; all are below ``sparkps``."""
    return logging.getLogger(f"sparkps.{name}")


def to_file(path: str) -> None:
    """Send this process's log to ``path``, and its stdout and stderr too, so that a traceback of C
    code is kept.

    An empty path leaves stderr as it is and logs there.
    """
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(descriptor, 2)
        os.dup2(descriptor, 1)
        os.close(descriptor)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, datefmt="%H:%M:%S"))
    root = logging.getLogger("sparkps")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


def tail(path: str, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, indented, without those that were said to the parent; a
    sentence if there is none.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"  (no log: {error.strerror})"
    last = [line for line in text.splitlines() if not line.startswith(MARK.decode())][-lines:]
    return "\n".join(f"  {line}" for line in last) or "  (the log is empty)"
