"""What this machine has, as far as this process may use it: memory and descriptors."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

#: Where a container's memory limit stands (cgroup v2, and v1).
_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)

#: Descriptors that are enough for a server: one for each worker of a large cluster.
_DESCRIPTORS: Final = 65_536


def machine_memory() -> int:
    """Bytes of memory of this machine, or of the container that we are in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text(encoding="ascii")))
    return total


def raise_descriptors() -> None:
    """Let this process have as many descriptors as it may ask for: each connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
