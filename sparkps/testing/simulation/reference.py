"""What bsp must compute, in one process, step after step: the same kernels, no network.

Within a clock every rank reads the state at its start. Then all writes are applied in (rank, seq)
order: the pushes to a partition are summed by key and the optimizer is called once per key; an
assign or a function takes effect at its place, and closes the sums of the partitions that it
touches. The driver's writes come after the epoch, one by one (SEMANTICS §5, §6).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels.arrays import put, take
from sparkps.kernels.keys import partition_sort
from sparkps.kernels.sums import sum_by_key
from sparkps.spec import TableInfo
from sparkps.store import Table, functions, make_table
from sparkps.testing.simulation.plan import FEATURES, Change, Plan
from sparkps.wire import userfn

Array = NDArray[Any]


def gradients(change: Change, pulled: Array) -> Array:
    """The gradients of a push, of what was pulled of all features before it."""
    keys = np.array(change.keys, np.int64)
    noise = np.array(change.numbers, np.float32)
    return noise + np.float32(0.25) * pulled[keys]


class Reference:
    """The table of weights, computed sequentially."""

    def __init__(self, plan: Plan, info: TableInfo) -> None:
        self.table: Table = make_table(info, range(info.spec.partitions), userfn.loads)
        self._spec = info.spec
        self._slot = np.arange(info.spec.partitions, dtype=np.int32)
        self._all = np.arange(FEATURES, dtype=np.int64)
        clocks = plan.clocks
        for epoch in range(plan.epochs):
            for clock in range(clocks.first(epoch), clocks.end(epoch)):
                pulled = self.read()
                self._apply(
                    (change, gradients(change, pulled) if change.kind == "push" else None)
                    for (rank, e, batch), step in sorted(plan.steps.items())
                    if rank < plan.size and plan.clock(rank, e, batch) == clock
                    for change in step.weights
                )
            if plan.barrier_epochs:
                pulled = self.read()
                for change in plan.steps[plan.size, epoch, 0].weights:
                    push = change.kind == "push"
                    self._apply([(change, gradients(change, pulled) if push else None)])

    def read(self) -> Array:
        """The values of all features."""
        order, keys, counts = partition_sort(
            self._all, self._spec.partitions, self._spec.dim, self._slot
        )
        parts = self._parts(counts)
        values = self.table.read(parts, self.table.resolve(parts, keys, create=False), keys)
        out = np.empty(FEATURES, np.float32)
        put(values, order, out)
        return out

    def _apply(self, changes: Iterable[tuple[Change, Array | None]]) -> None:
        #: Of each partition, the pushes that are not applied yet: keys and gradients.
        waiting: list[list[tuple[Array, Array]]] = [[] for _ in self._slot]
        for change, grads in changes:
            if grads is not None:
                counts, keys, rows = self._grouped(np.array(change.keys, np.int64), grads)
                counts, keys, rows = sum_by_key(counts, keys, rows)
                ends = np.cumsum(counts)
                for partition, (begin, end) in enumerate(zip(ends - counts, ends, strict=True)):
                    waiting[partition].append((keys[begin:end], rows[begin:end]))
            elif change.kind == "assign":
                self._assign(change, waiting)
            else:
                self._sum(waiting, self._slot.tolist())
                for partition in range(self._spec.partitions):
                    self.table.apply(partition, functions.scale(change.numbers[0]))
        self._sum(waiting, self._slot.tolist())

    def _sum(self, waiting: list[list[tuple[Array, Array]]], partitions: list[int]) -> None:
        """One optimizer call per key, with the sum of what waits in these partitions."""
        for partition in partitions:
            pushes, waiting[partition] = waiting[partition], []
            if pushes:
                keys = np.concatenate([keys for keys, _ in pushes])
                grads = np.concatenate([rows for _, rows in pushes])
                parts = np.array([[partition, len(keys)]], np.int32)
                self.table.seal(parts, self.table.resolve(parts, keys, create=True), grads)

    def _assign(self, change: Change, waiting: list[list[tuple[Array, Array]]]) -> None:
        values = np.array(change.numbers, np.float32)
        counts, keys, rows = self._grouped(np.array(change.keys, np.int64), values)
        self._sum(waiting, np.flatnonzero(counts).tolist())
        parts = self._parts(counts)
        self.table.assign(parts, self.table.resolve(parts, keys, create=True), rows)

    def _grouped(self, keys: Array, values: Array) -> tuple[Array, Array, Array]:
        order, grouped, counts = partition_sort(
            keys, self._spec.partitions, self._spec.dim, self._slot
        )
        rows = np.empty_like(values)
        take(values, order, rows)
        return counts, grouped, rows

    def _parts(self, counts: Array) -> Array:
        return np.stack((self._slot, counts.astype(np.int32)), axis=1)
