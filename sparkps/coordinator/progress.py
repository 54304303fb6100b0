"""How far a run is, for the line that the driver shows: a few times a second, when it has moved."""

from __future__ import annotations

from typing import Final

from sparkps.coordinator.gate import Gate
from sparkps.coordinator.hub import Hub, Peer
from sparkps.coordinator.ranks import Rank
from sparkps.wire.messages import Progress

#: Seconds between two messages: as fast as a line on a terminal is worth reading.
PROGRESS_EVERY: Final = 0.25


class ProgressTeller:
    """Tells the driver of one run."""

    def __init__(self, hub: Hub, driver: Peer, session: int) -> None:
        self._hub = hub
        self._driver = driver
        self._session = session
        self._when = -1.0
        self._told = (-1, -1, -1)

    def tell(self, ranks: list[Rank], gate: Gate) -> None:
        """Tell the largest clock, the slowest and whose it is, and sums of what workers report."""
        clocks = gate.clocks
        figures = (clocks.fastest, min(clocks.slowest, clocks.fastest), clocks.slowest_rank)
        if figures == self._told or self._hub.now - self._when < PROGRESS_EVERY:
            return
        self._when, self._told = self._hub.now, figures
        load: dict[str, float] = {}
        for rank in ranks:
            caller = self._hub.callers.get(rank.holder.peer) if rank.holder else None
            for name, figure in (caller.load if caller else {}).items():
                load[name] = load.get(name, 0.0) + figure
        self._hub.tell(self._driver, Progress(self._session, *figures, load))
