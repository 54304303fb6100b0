"""Which seat the handles of this thread act for: a worker's, while it trains.

A handle in a closure does not know its worker. The thread that trains says so here; another thread
of the same process finds it too, as long as it is the only one (a step may use a thread pool).
"""

from __future__ import annotations

import threading
from typing import Any, Final

from sparkps.client.seat import Seat

_local = threading.local()
#: The seats and workers of this process; empty is quick to see.
active: Final[list[tuple[Seat, Any]]] = []


def enter(seat: Seat, worker: Any) -> None:
    """This thread acts for ``worker`` from now on."""
    _local.entry = entry = (seat, worker)
    active.append(entry)


def leave(seat: Seat) -> None:
    """It no longer does."""
    if getattr(_local, "entry", (None, None))[0] is seat:
        _local.entry = None
    active[:] = [entry for entry in active if entry[0] is not seat]


def entry(*, alone: bool = True) -> tuple[Seat, Any] | None:
    """Return this thread's seat and worker; with ``alone``, the only ones of the process if the
    thread has none."""
    found: tuple[Seat, Any] | None = getattr(_local, "entry", None)
    if found is None and alone and len(active) == 1:
        found = active[0]
    return found
