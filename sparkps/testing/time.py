"""Time that moves only when a test says so."""

from __future__ import annotations


class FakeTime:
    """A clock for cores in tests.

    Examples
    --------
    >>> time = FakeTime()
    >>> time.advance(1.5)
    1.5
    >>> time()
    1.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Let ``seconds`` pass; return the time then. Time never goes back."""
        if seconds < 0:
            raise ValueError(f"time does not go back ({seconds})")
        self.now += seconds
        return self.now
