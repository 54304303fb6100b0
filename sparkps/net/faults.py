"""Injected delays for real sockets (settings ``faults.delay_ms`` and ``faults.seed``).

Each message is held back for a random time before its handler sees it, so that messages of
different peers overtake each other as they would on a slow network; messages of one peer, and the
end of its connection, keep their order. For tests of real processes. The in-memory network of
:mod:`sparkps.net.loopback` does more, on fake time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from sparkps.net.loop import Loop, OnGone, OnMessage
from sparkps.wire.effects import Buffer


def delayed(
    loop: Loop, on_message: OnMessage, on_gone: OnGone, *, delay_ms: float, seed: int
) -> tuple[OnMessage, OnGone]:
    """Handlers for :meth:`Loop.serve <sparkps.net.loop.Loop.serve>` that delay by 0 to
    ``delay_ms`` milliseconds.

    With ``delay_ms`` 0 the handlers come back as they are. The sequence of delays is a function of
    ``seed``.
    """
    if delay_ms <= 0:
        return on_message, on_gone
    delays = _Delays(loop, delay_ms / 1000, seed)

    def message(peer: bytes, frames: list[Buffer], now: float) -> None:
        delays.hold(peer, now, lambda later: on_message(peer, frames, later))

    def gone(peer: bytes, now: float) -> None:
        delays.hold(peer, now, lambda later: on_gone(peer, later))
        delays.forget(peer)

    return message, gone


class _Delays:
    """What is held back, by the time at which it is let go."""

    def __init__(self, loop: Loop, longest: float, seed: int) -> None:
        self._random = random.Random(seed)
        self._longest = longest
        self._held: list[tuple[float, int, Callable[[float], object]]] = []
        self._number = itertools.count()
        self._last: dict[bytes, float] = {}
        self._timer = loop.timer(self._let_go)

    def hold(self, peer: bytes, now: float, call: Callable[[float], object]) -> None:
        when = max(self._last.get(peer, 0.0), now + self._random.uniform(0, self._longest))
        self._last[peer] = when
        heapq.heappush(self._held, (when, next(self._number), call))
        self._timer.set(self._held[0][0])

    def forget(self, peer: bytes) -> None:
        del self._last[peer]

    def _let_go(self, now: float) -> None:
        while self._held and self._held[0][0] <= now:
            heapq.heappop(self._held)[2](now)
        if self._held:
            self._timer.set(self._held[0][0])
