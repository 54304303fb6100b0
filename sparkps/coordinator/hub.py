"""What the parts of the coordinator's core share: the time, the settings, who is connected, and the
way out.

Every part writes what it wants done into one list, in order, which the core hands to its shell.
Nobody here decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sparkps.config import Settings
from sparkps.errors import PSError
from sparkps.wire.effects import Effect, Log, Tell
from sparkps.wire.messages import Answer, Denied, Message

#: Warnings per minute of what others do.
COMPLAINTS: Final = 50

#: A connection, as the shell names it: opaque and hashable.
Peer: TypeAlias = Any


@dataclass(slots=True)
class Caller:
    """A connection that has introduced itself."""

    role: str
    host: str
    pid: int
    seen: float
    server: int | None = None
    load: dict[str, float] = field(default_factory=dict)


class Hub:
    """The time of the event being handled, the callers, and the effects so far."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.callers: dict[Peer, Caller] = {}
        self._effects: list[Effect] = []
        self._minute = 0.0
        self._complaints = 0

    def tell(self, peer: Peer, message: Message) -> None:
        """Send a message, unless the peer has gone meanwhile."""
        if peer in self.callers:
            self._effects.append(Tell(peer, message))

    def answer(self, peer: Peer, request: int, result: Any = None) -> None:
        """Answer a request with its result."""
        self.tell(peer, Answer(request, result))

    def deny(self, peer: Peer, request: int, error: PSError) -> None:
        """Answer a request with an error."""
        code, fields = error.to_wire()
        self._effects.append(Tell(peer, Denied(request, code, fields)))

    def add(self, effect: Effect) -> None:
        """Add any other effect."""
        self._effects.append(effect)

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Write a line into the coordinator's log."""
        self._effects.append(Log(level, text))

    def complain(self, text: str) -> None:
        """Write a warning of what others do, who may do it without end."""
        minute = self.now // 60
        if minute != self._minute:
            left_out, self._minute, self._complaints = self._complaints - COMPLAINTS, minute, 0
            if left_out > 0:
                self.log(f"and {left_out} more warnings like these", logging.WARNING)
        self._complaints += 1
        if self._complaints <= COMPLAINTS:
            self.log(text, logging.WARNING)

    def take(self) -> list[Effect]:
        """Hand out the effects so far."""
        effects, self._effects = self._effects, []
        return effects

    def clients(self) -> Iterator[Peer]:
        """Everybody connected who is not a server."""
        return (peer for peer, caller in self.callers.items() if caller.server is None)

    def is_silent(self, peer: Peer) -> bool:
        """Whether a peer is gone, or was not heard for so long that it counts as dead."""
        caller = self.callers.get(peer)
        return caller is None or self.now - caller.seen > self.settings.dead
