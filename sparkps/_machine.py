"""What this machine has: memory, as far as this process may use it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

#: Where a container's memory limit stands (cgroup v2, and v1).
_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def machine_memory() -> int:
    """Bytes of memory of this machine, or of the container that we are in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text(encoding="ascii")))
    return total
