"""What a seat of the simulation does to the tables: reads that are checked, and the writes of the
plan, by all three ways of naming rows. The handles, vocabularies and keysets are the shipped ones.

Not here: when it does so (:mod:`.worker`, :mod:`.driver`).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from sparkps.client.access import Pending
from sparkps.client.keyset import Keyset
from sparkps.client.seat import Seat
from sparkps.client.shell import Client
from sparkps.client.split import Sizes
from sparkps.client.table import Table
from sparkps.spec import TableInfo
from sparkps.store import functions
from sparkps.testing.simulation.plan import FEATURES, Change, Write
from sparkps.testing.simulation.process import Process, Story
from sparkps.testing.simulation.reference import gradients


class SmallTable(Table):
    """A handle whose slices and messages are small."""

    def __init__(self, process: Process, info: TableInfo, seat: Seat) -> None:
        super().__init__(cast("Client", process), info, seat)
        plan, access = process.plan, self._access
        row = access.sizes.row
        access.sizes = Sizes(row, plan.message_rows * max(row, 8), plan.slice_rows)
        access.rows = plan.message_rows


class Hands:
    """What a seat does to the tables: reads that are checked, and the writes of the plan."""

    def __init__(self, process: Process, tables: dict[str, TableInfo], seat: Seat) -> None:
        self.process, self.seat = process, seat
        self.counts = SmallTable(process, tables["counts"], seat)
        self.words = self.counts.vocabulary()
        self._again: tuple[list[int], Keyset] | None = None
        info = tables.get("weights")
        self.weights = None if info is None else SmallTable(process, info, seat)

    def read(self, who: str, keys: list[int], clock: int | None) -> Story[None]:
        """Read markers, and check what they show."""
        history, random = self.process.history, self.process.network.random
        asked = np.array(keys, np.int64)
        way = random.choice(("plain", "vocabulary", "keyset"))
        if way == "keyset" and self._again is None:
            self._again = (keys, self.words.keyset(self.words.add(asked)))
        if way == "keyset" and self._again is not None:
            keys, again = self._again  # the keys of its first read, every time
            pending = again.pull(wait=False)
        elif way == "plain":
            pending = self.counts.pull(asked, wait=False)
        else:
            pending = self.words.pull(self.words.add(asked), wait=False)
        floor = history.floor(keys)
        yield from self.process.until(pending.done)
        values = pending.wait().tolist()
        if clock is not None:
            history.note("{} reads {} at {}: {}", who, keys, clock, values)
        history.read(who, keys, values, floor, clock)

    def write(self, write: Write) -> None:
        """Push to ``counts``."""
        keys, values = np.array(write.keys, np.int64), np.array(write.values, np.int64)
        self.process.history.note("{} pushes {}", self.process.name, write)
        if write.way == "plain":
            pending = self.counts.push(keys, values, wait=False)
        elif write.way == "vocabulary":
            pending = self.words.push(self.words.add(keys), values, wait=False)
        else:
            pending = self.counts.keyset(keys).push(values, wait=False)
        self._watch(pending, write)

    def _watch(self, pending: Pending | None, write: Write) -> None:
        if pending is not None:
            history = self.process.history
            self.process.watch(pending._call, lambda: history.acknowledged(write))

    def change(self, change: Change, pulled: Any) -> None:
        """Write to ``weights``."""
        if self.weights is None:
            return
        keys = np.array(change.keys, np.int64)
        if change.kind == "scale":
            self.weights.apply(functions.scale(change.numbers[0]))
        elif change.kind == "assign":
            self.weights.assign(keys, np.array(change.numbers, np.float32), wait=False)
        else:
            self.weights.push(keys, gradients(change, pulled), wait=False)

    def pull_weights(self) -> Story[Any]:
        """All features."""
        if self.weights is None:
            return None
        pending = self.weights.pull(np.arange(FEATURES, dtype=np.int64), wait=False)
        yield from self.process.until(pending.done)
        return pending.wait()

    def room(self) -> Story[None]:
        """Wait until no request waits for room."""
        yield from self.process.until(lambda: not self.process.core.backlog)

    def settle(self) -> Story[None]:
        """Wait until all writes are acknowledged; raise the error of one that is not."""
        seat = self.seat
        yield from self.process.until(lambda: not seat.outstanding or seat.error is not None)
        seat.raise_error()
