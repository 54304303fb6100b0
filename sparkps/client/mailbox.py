"""What the coordinator says to one worker, kept until the worker asks for it.

Messages come in the thread of the link, the worker waits in its own. Not here: what a worker does
with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from sparkps.errors import CoordinatorLost, PSError, PSTimeout, SessionEnded, TokenLost, from_wire
from sparkps.wire.messages import (
    Begin,
    Ended,
    GangComplete,
    Granted,
    Message,
    Released,
    Slowest,
    TokenGone,
)

T = TypeVar("T")


class Mailbox:
    """See the module.

    Parameters
    ----------
    session
        Messages of other sessions are left out.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._condition = threading.Condition()
        self._granted: Granted | None = None
        #: The one that the worker has taken; a later one says that this one is gone.
        self._held: Granted | None = None
        self._gang = False
        self._begin: Begin | None = None
        self._released: Released | None = None
        self._error: PSError | None = None
        self._token_gone: TokenGone | None = None
        self.slowest = 0
        #: Called in the link's thread when the slowest clock has moved; must not block.
        self.on_slowest: Callable[[], None] | None = None

    def put(self, message: Message) -> None:
        """Take a message, in the link's thread."""
        if getattr(message, "session", None) != self._session:
            return
        with self._condition:
            if isinstance(message, Granted):
                self._granted, self._begin, self._released, self._token_gone = (
                    message,
                    None,
                    None,
                    None,
                )
            elif isinstance(message, GangComplete):
                self._gang = True
            elif isinstance(message, Begin):
                self._begin = message
            elif isinstance(message, Released):
                if self._released is None or message.clock >= self._released.clock:
                    self._released = message
            elif isinstance(message, Slowest):
                self.slowest = max(self.slowest, message.clock)
            elif isinstance(message, TokenGone):
                if self._granted is not None and message.token == self._granted.token:
                    self._token_gone = message
            elif isinstance(message, Ended):
                self._error = ended(message)
            self._condition.notify_all()
        if isinstance(message, Slowest) and self.on_slowest is not None:
            self.on_slowest()

    def lost(self, reason: str) -> None:
        """The link is lost."""
        with self._condition:
            self._error = self._error or CoordinatorLost(
                status=reason, log="(the driver knows it)", tail="  (not known here)"
            )
            self._condition.notify_all()

    def check(self) -> None:
        """Raise if the run is over, or the rank somebody else's."""
        if self._error is not None:
            raise type(self._error)(**self._error.fields)
        self.check_token()

    def check_token(self) -> None:
        """Raise if the rank is somebody else's, or was meanwhile."""
        held, granted = self._held, self._granted
        renewed = held is not None and granted is not None and granted is not held
        gone = held if renewed else self._token_gone
        if gone is not None:
            raise TokenLost(token=gone.token, rank=gone.rank, session=f"{gone.session:#x}")

    @property
    def over(self) -> bool:
        """Whether the run has ended, or the coordinator is gone."""
        return self._error is not None

    def _wait(self, get: Callable[[], T | None], timeout: float | None, what: str) -> T:
        with self._condition:
            found = get()
            while found is None:
                self.check()
                if not self._condition.wait(timeout) and timeout is not None:
                    raise PSTimeout(seconds=timeout, what=what)
                found = get()
            return found

    def wait_granted(self) -> Granted:
        """Wait until this task holds its rank; the coordinator ends the session otherwise."""
        self._held = self._wait(lambda: self._granted, None, "the rank")
        return self._held

    def take_granted(self, before: int) -> Granted:
        """Wait for a token other than ``before``."""
        with self._condition:
            self._token_gone = None
            if (
                self._granted is not None
                and self._granted.token == before
                and not self._granted.finished
            ):
                self._granted = None
        return self.wait_granted()

    def wait_gang(self) -> None:
        """Wait until every rank has come."""
        self._wait(lambda: self._gang or None, None, "the other workers to come")

    def wait_begin(self) -> Begin:
        """Wait until every rank is ready."""
        return self._wait(lambda: self._begin, None, "the other workers to be ready")

    def wait_released(self, clock: int, *, at_least: bool = False) -> Released:
        """Wait until the barrier at ``clock`` is passed (with ``at_least``, or a later one)."""

        def get() -> Released | None:
            released = self._released
            if released is not None and (
                released.clock == clock or (at_least and released.clock > clock)
            ):
                return released
            return None

        self._forget_before(clock)
        return self._wait(get, None, f"the other workers to end clock {clock}")

    def _forget_before(self, clock: int) -> None:
        with self._condition:
            if self._released is not None and self._released.clock < clock:
                self._released = None

    def wait_slowest(self, clock: int) -> None:
        """Wait until every rank has acknowledged all clocks below ``clock``."""
        self._wait(
            lambda: (self.slowest >= clock) or None,
            None,
            f"the slowest worker to end clock {clock}",
        )


def ended(message: Ended) -> PSError:
    """The error of a run that is over."""
    reason = str(from_wire(message.code, message.fields)) if message.code else "it is complete"
    return SessionEnded(session=f"{message.session:#x}", reason=reason)
