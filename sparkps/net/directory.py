"""The short private directory that the ipc sockets of a cluster live in.

Apart from addresses (:mod:`.endpoint`), as no client makes or removes one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Final

from sparkps.net.endpoint import MAX_IPC_PATH

#: Room that a runtime directory leaves for the name of a socket in it.
_NAME_ROOM: Final = 24
PREFIX: Final = "sparkps-"


def runtime_directory() -> str:
    """Make a new directory for ipc sockets, open to this user only (0700), and return its path.

    It is made in the system's temporary directory, or in ``/tmp`` where that has too long a name
    (macOS, batch systems).
    """
    path = tempfile.mkdtemp(prefix=PREFIX)
    if len(os.fsencode(path)) + _NAME_ROOM > MAX_IPC_PATH:
        os.rmdir(path)
        path = tempfile.mkdtemp(prefix=PREFIX, dir="/tmp")
    return path


def remove_directory(path: str) -> None:
    """Remove a runtime directory and what is left in it; one that is gone already is no error."""
    shutil.rmtree(path, ignore_errors=True)
