"""One server core with a view, spoken to in typed messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sparkps.kernels.keys import partition_of
from sparkps.optim.base import Optimizer
from sparkps.server.core import Door, ServerCore
from sparkps.spec import GROUPS, InitSpec, ServerInfo, SessionSpec, TableInfo, TableSpec, View
from sparkps.wire import messages as m
from sparkps.wire import userfn
from sparkps.wire.effects import Send, ToCoordinator
from sparkps.wire.frames import as_array, decode_from_server, encode

NONE = (-1, -1, -1)


class Rank:
    """One rank's side of the protocol: token, clock, and what it sent last to each partition."""

    def __init__(self, server: Server, session: int, rank: int, token: int) -> None:
        self.server, self.session, self.rank, self.token = server, session, rank, token
        self.clock = 0
        self.seq = 0
        self.last: dict[int, tuple[int, int, int]] = {}

    def header(self) -> dict[str, int]:
        return {
            "id": self.server.next_id(),
            "session": self.session,
            "rank": self.rank,
            "token": self.token,
            "clock": self.clock,
            "view": 1,
        }

    def tick(self) -> None:
        self.clock += 1
        self.seq = 0

    def slices(self, counts: dict[int, int]) -> np.ndarray:
        """One slice per partition, chained to what was sent before."""
        table = []
        for p, count in counts.items():
            table.append((p, 0, count, *self.last.get(p, NONE)))
            self.last[p] = (self.clock, self.seq, 0)
        self.seq += 1
        return np.array(table, np.int64).reshape(-1, 6)

    def pushed(self, table: int, keys: Any, values: Any, kind: int = m.PUSH) -> list[Any]:
        """The frames of a push of distinct keys."""
        keys, values = np.asarray(keys, np.int64), np.asarray(values)
        order, counts = self.server.grouped(table, keys)
        seq = self.seq
        slices = self.slices(counts)
        push = m.Push(table=table, seq=seq, kind=kind, **self.header())
        values = values.astype(self.server.dtype(table))[order]
        return encode(push, slices, keys[order], np.ascontiguousarray(values))

    def push(self, table: int, keys: Any, values: Any, kind: int = m.PUSH) -> Any:
        return self.server.ask(self.pushed(table, keys, values, kind))

    def pull(self, table: int, keys: Any) -> np.ndarray:
        return self.server.pull(table, keys, self.header())

    def called(
        self, table: int, kind: int, name: str = "", pickle: Any = None, **numbers: Any
    ) -> Any:
        seq, last = self.seq, dict(self.last)
        slices = self.slices(dict.fromkeys(self.server.partitions(table), 0))
        if kind == m.REDUCE:
            self.seq, self.last = seq, last
        head = m.Function(
            table=table, seq=seq, kind=kind, name=name, numbers=numbers, **self.header()
        )
        return encode(head, slices, *([] if pickle is None else [userfn.dumps(pickle)]))

    def call(
        self, table: int, kind: int, name: str = "", pickle: Any = None, **numbers: Any
    ) -> Any:
        return self.server.ask(self.called(table, kind, name, pickle, **numbers))


class Server:
    """A core that owns every partition."""

    def __init__(
        self, limit: int = 1 << 30, keysets: int = 1 << 20, max_bytes: int = 1 << 20
    ) -> None:
        self.core = ServerCore(
            0, 7, limit=limit, max_bytes=max_bytes, keysets_max_bytes=keysets, loads=userfn.loads
        )
        info = ServerInfo(0, 7, "ipc://nowhere")
        self.view = View(1, (info,), (0,) * GROUPS, (1,) * GROUPS)
        self._ids = 0
        self.door = Door.OPEN
        self.command(m.SetView(1, self.view))
        self.hello("me")

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def hello(self, peer: str) -> Any:
        return self.ask(encode(m.Hello(m.VERSION, b"", 0, 7)), peer)

    def command(self, message: Any) -> m.Done:
        (effect,) = self.core.command(message, 0.0)
        assert isinstance(effect, ToCoordinator)
        assert isinstance(effect.message, m.Done)
        return effect.message

    def answers(self, frames: Any, peer: str = "me") -> list[tuple[Any, Any]]:
        effects = self.core.received(peer, self.door, frames, 0.0)
        sent = [effect for effect in effects if isinstance(effect, Send)]
        assert all(effect.peer == peer for effect in sent)
        return [decode_from_server(effect.frames) for effect in sent]

    def ask(self, frames: Any, peer: str = "me") -> Any:
        """The answer, with its buffers as ``.buffers`` where it has some."""
        ((message, buffers),) = self.answers(frames, peer)
        if isinstance(message, m.Rows):
            return buffers[0]
        if isinstance(message, m.Acked):
            return message, [int(status) for status in buffers[0]] if buffers else []
        return message, list(buffers)

    def table(
        self,
        number: int = 1,
        *,
        optimizer: Optimizer | None = None,
        init: InitSpec | None = None,
        **spec: Any,
    ) -> int:
        spec.setdefault("partitions", 4)
        full = TableSpec(
            f"t{number}",
            optimizer=optimizer.spec() if optimizer else None,
            init=init or InitSpec(),
            **spec,
        )
        done = self.command(m.AddTable(1, TableInfo(number, full)))
        assert done.code == "", done.fields
        return number

    def session(
        self, number: int = 5, size: int = 2, consistency: str = "asp", driver: bool = False
    ) -> list[Rank]:
        """Open a session; ranks 0 to size, the last one the driver."""
        self.command(m.AddSession(1, SessionSpec(number, size, consistency, driver=driver)))
        ranks = []
        for rank in range(size + 1):
            self.command(m.SetToken(1, number, rank, 100 * number + rank))
            ranks.append(Rank(self, number, rank, 100 * number + rank))
        return ranks

    def hosted(self, table: int) -> Any:
        return self.core.state.tables[table]

    def dtype(self, table: int) -> Any:
        return self.hosted(table).table.dtype

    def partitions(self, table: int) -> list[int]:
        return self.hosted(table).table.array.open_partitions().tolist()

    def grouped(self, table: int, keys: np.ndarray) -> tuple[np.ndarray, dict[int, int]]:
        spec = self.hosted(table).table.spec
        part = partition_of(keys, spec.partitions, spec.dim)
        order = np.argsort(part, kind="stable")
        found, counts = np.unique(part, return_counts=True)
        return order, dict(zip(found.tolist(), counts.tolist(), strict=True))

    def pull(self, table: int, keys: Any, header: dict[str, int] | None = None) -> np.ndarray:
        keys = np.asarray(keys, np.int64)
        order, counts = self.grouped(table, keys)
        head = header or {
            "id": self.next_id(),
            "session": 0,
            "rank": 0,
            "token": 0,
            "clock": 0,
            "view": 1,
        }
        parts = np.array(list(counts.items()), np.int32).reshape(-1, 2)
        rows = self.ask(encode(m.Pull(table=table, **head), parts, keys[order]))
        if isinstance(rows, tuple):
            return rows
        width = self.hosted(table).table.spec.width
        out = np.empty((len(keys), width) if width > 1 else len(keys), self.dtype(table))
        out[order] = as_array(rows, self.dtype(table), width if width > 1 else None)
        return out


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(scope="session")
def make_server() -> Callable[..., Server]:
    return Server


@pytest.fixture(scope="module")
def make_server_once() -> Server:
    return Server()
