"""How long a context waits for its servers, and which failures end the wait. No Spark is needed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sparkps.config import Settings
from sparkps.errors import RequestTimeout, ServersMissing
from sparkps.spark import servers
from sparkps.spark.servers import Servers
from sparkps.testing.time import FakeTime


class Nobody:
    """A client for whom no server comes."""

    def __init__(self, clock: FakeTime) -> None:
        self.clock = clock
        self.asked: list[tuple[float, float]] = []

    def link(self) -> None: ...

    def gather(self, count: int, timeout: float, since: float) -> NoReturn:
        self.asked.append((round(timeout, 6), round(since, 6)))
        self.clock.advance(timeout)
        raise RequestTimeout(what="Gather", peer="the coordinator", seconds=timeout, log="")

    def status(self) -> dict[str, int]:
        return {"servers_up": 0}


def asks(monkeypatch: pytest.MonkeyPatch, *, dynamic: bool, slow: float) -> list[Any]:
    """What the coordinator is asked, where Spark takes some seconds for an answer."""
    clock = FakeTime()
    client = Nobody(clock)

    def asked_servers(*_: object) -> int:
        clock.advance(slow)
        return 1

    monkeypatch.setattr(servers, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(servers, "is_dynamic", lambda _: dynamic)
    monkeypatch.setattr(servers, "asked_servers", asked_servers)
    settings = Settings(start_timeout=3.0)
    waiting: Any = SimpleNamespace(client=client, plugin=True, _settings=settings, _spark=None)
    with pytest.raises(ServersMissing, match="0 of 1 servers are up after 3 s"):
        Servers._gather(waiting, 1)
    return client.asked


def test_any_failure_ends_the_wait_for_servers_that_must_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asks(monkeypatch, dynamic=False, slow=0.0) == [(3.0, math.inf)]


@pytest.mark.parametrize(
    ("slow", "asked"),
    [
        (0.0, [(1.0, 0.0), (1.0, 1.0), (1.0, math.inf)]),
        (0.4, [(1.0, 0.0), (1.0, 1.4), (1.0, math.inf)]),
        (5.0, [(1.0, 0.0), (1.0, math.inf)]),
    ],
)
def test_where_executors_come_and_go_old_failures_count_at_the_end(
    monkeypatch: pytest.MonkeyPatch, slow: float, asked: list[tuple[float, float]]
) -> None:
    assert asks(monkeypatch, dynamic=True, slow=slow) == asked
