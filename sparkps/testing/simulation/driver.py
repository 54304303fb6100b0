"""The driver of a run, and a reader outside of it, as stories."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np

from sparkps.client.calls import Request, ScanCall
from sparkps.client.seat import Seat
from sparkps.client.split import whole_parts
from sparkps.errors import PSError, SessionEnded, from_wire
from sparkps.net.loopback import Network
from sparkps.spec import SessionSpec, TableInfo
from sparkps.store import Table
from sparkps.testing.simulation.hands import Hands
from sparkps.testing.simulation.history import History
from sparkps.testing.simulation.plan import Plan
from sparkps.testing.simulation.process import Process, Story
from sparkps.testing.simulation.reference import Reference
from sparkps.wire.messages import (
    CloseSession,
    Continue,
    CreateTable,
    Ended,
    EpochEnded,
    Message,
    OpenSession,
    Scan,
)

Opened = Callable[[SessionSpec, dict[str, TableInfo]], None]


class Driver(Process):
    """Makes the tables, opens the run, follows its epochs, looks at the tables, closes it.

    Attributes
    ----------
    failed : PSError or None
        Why the run has failed.
    closed : bool
        Whether the session was closed.
    """

    def __init__(self, network: Network, plan: Plan, history: History, opened: Opened) -> None:
        self._opened = opened
        self._events: deque[EpochEnded | Ended] = deque()
        self.failed: PSError | None = None
        self.kept = ""
        self.closed = False
        super().__init__(network, plan, history, "driver", "driver")

    def heard(self, message: Message) -> None:
        """Keep the events of the run."""
        if isinstance(message, (EpochEnded, Ended)):
            self._events.append(message)

    def leave(self) -> None:
        """Close the run in the middle."""
        reason = SessionEnded(session=0, reason="the driver leaves")
        self._events.append(Ended(0, *reason.to_wire()))

    def story(self) -> Story[None]:
        """See the class."""
        plan = self.plan
        yield from self.until(lambda: self.core.view.number)
        tables = {}
        for table in plan.tables():
            tables[table.name] = yield from self.ask(partial(CreateTable, spec=table), TableInfo)
        opening = partial(OpenSession, spec=plan.session())
        session, token = yield from self.ask(opening, list[int])
        self._opened(msgspec.structs.replace(plan.session(), id=session), tables)
        try:
            seat = Seat(session, plan.size, token, bsp=plan.bsp, synchronous=False)
            yield from self._epochs(Hands(self, tables, seat), session)
        except PSError as error:
            self.failed = error
        self.history.note("the run has ended: {!r}", self.failed)
        if self.failed is None:
            yield from self._check_tables(tables)
        kept: Any = yield from self.ask(partial(CloseSession, session=session), object)
        self.kept = kept["text"] if kept else ""
        self.closed = True
        if self.failed is not None:
            yield from self._check_counts(tables["counts"], complete=False)

    def _epochs(self, hands: Hands, session: int) -> Story[None]:
        while True:
            yield from self.until(lambda: self._events)
            event = self._events.popleft()
            self.history.note("the driver hears {}", event)
            if isinstance(event, Ended):
                if event.code:
                    raise from_wire(event.code, event.fields)
                return
            if event.wait:
                yield from self._on_epoch(hands, event)
                go_on = partial(Continue, session=session, epoch=event.epoch)
                yield from self.ask(go_on, type(None))

    def _on_epoch(self, hands: Hands, event: EpochEnded) -> Story[None]:
        hands.seat.clock = event.clock
        step = self.plan.steps[self.plan.size, event.epoch, 0]
        markers = [m for w in self.history.writes for m in w.markers if w.clock <= event.clock]
        sample = self.network.random.sample(markers, min(8, len(markers)))
        yield from hands.read("the driver", sample, None)
        pulled = yield from hands.pull_weights()
        for write in step.counts:
            hands.write(write)
        yield from hands.settle()
        for change in step.weights:
            hands.change(change, pulled)
            yield from hands.settle()

    # --- whole tables

    def _check_tables(self, tables: dict[str, TableInfo]) -> Story[None]:
        yield from self._check_counts(tables["counts"], complete=True)
        if "weights" in tables:
            yield from self._check_weights(tables["weights"])

    def _check_counts(self, info: TableInfo, *, complete: bool) -> Story[None]:
        if any(info.id in message.ids for message in self.downs):
            return
        scanned = yield from self.scan(info, [(np.dtype(np.int64), None)])
        found: dict[int, int] = {}
        for keys, (values,) in scanned.values():
            found.update(zip(keys.tolist(), values.tolist(), strict=True))
        self.history.final(found, complete=complete)

    def _check_weights(self, info: TableInfo) -> Story[None]:
        table: Table = Reference(self.plan, info).table
        fields = [
            (np.dtype(np.int64) if field.per_row else table.dtype, None)
            for field in table.field_specs
        ]
        scanned = yield from self.scan(info, fields)
        for partition in range(info.spec.partitions):
            keys, arrays = scanned.get(partition, (np.empty(0, np.int64), []))
            same = keys.tobytes() == np.array(table.keys(partition)).tobytes() and all(
                array.tobytes() == table.field(partition, i).tobytes()
                for i, array in enumerate(arrays)
            )
            self.history.require(
                same,
                "bits",
                f"weights, partition {partition}: {keys} {arrays}, the reference has "
                f"{table.arrays(partition)}",
            )

    def scan(self, info: TableInfo, fields: list[tuple[np.dtype[Any], None]]) -> Story[Any]:
        """Read whole partitions: keys and fields of each, in row order."""
        routes = self.routes(info)
        dtypes: Any = [(np.dtype(np.int64), None), *fields]
        call = ScanCall(dtypes, info.spec.name)
        numbers = tuple(range(len(fields)))
        self.start(
            call,
            [
                Request(call, server, Scan(0, info.id, routes.view, numbers), [partitions], 0)
                for server, partitions in whole_parts(routes)
            ],
        )
        yield from self.until(lambda: call.done)
        pieces = call.result()
        lists: dict[int, list[list[Any]]] = {}
        for counts, arrays in pieces:
            begin = 0
            for partition, count in counts:
                part = [array[begin : begin + count] for array in arrays]
                lists.setdefault(partition, []).append(part)
                begin += count
        found = {}
        for partition, parts in lists.items():
            keys, *values = (np.concatenate(column) for column in zip(*parts, strict=True))
            found[partition] = (keys, values)
        return found


class Reader(Process):
    """Reads markers outside of any session, again and again, until it is told to stop."""

    def __init__(self, network: Network, plan: Plan, history: History, info: TableInfo) -> None:
        self._info = info
        self.stopped = False
        super().__init__(network, plan, history, "reader", "reader")

    def story(self) -> Story[None]:
        """See the class."""
        random = self.network.random
        hands = Hands(self, {"counts": self._info}, Seat(denied="outside a run"))
        markers = [marker for write in self.history.writes for marker in write.markers]
        while not self.stopped:
            sample = random.sample(markers, min(6, len(markers)))
            yield from hands.read("the reader", sample, None)
            yield from self.rest(random.uniform(0.0, 0.05))
