"""A lane: what is on its way from one client to one server, and back.

Only the bookkeeping; the rules are the core's (:mod:`.core`).
"""

from __future__ import annotations

from collections import deque

from sparkps.client.calls import Request


class Lane:
    """What is on its way to one server.

    Attributes
    ----------
    flying : dict
        Unanswered requests by id, in the order of sending.
    queue : deque
        Requests that wait for room.
    size : int
        Bytes in flight.
    progress : float
        When something last came, or the first request of an idle lane was made.
    up : bool
        Whether there is a connection.
    retry_at : float or None
        When to connect again.
    again : list
        Requests to be sent again, at ``again_at``, because the server did not serve them.
    """

    __slots__ = (
        "again",
        "again_at",
        "failures",
        "flying",
        "progress",
        "queue",
        "retry_at",
        "server",
        "size",
        "up",
    )

    def __init__(self, server: int) -> None:
        self.server = server
        self.flying: dict[int, Request] = {}
        self.queue: deque[Request] = deque()
        self.again: list[Request] = []
        self.again_at: float | None = None
        self.size = 0
        self.progress = 0.0
        self.up = False
        self.retry_at: float | None = None
        self.failures = 0

    @property
    def busy(self) -> bool:
        return bool(self.flying or self.queue or self.again)

    def requests(self) -> list[Request]:
        """All unanswered requests, oldest first."""
        return sorted([*self.again, *self.flying.values(), *self.queue], key=_number)


def _number(request: Request) -> int:
    return request.number
