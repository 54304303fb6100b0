"""Training runs whose ranks are threads of this process: fast, and all see the test's objects."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sparkps.client.training import Run, join_run
from sparkps.errors import PSTimeout, from_wire
from sparkps.spec import SessionSpec
from sparkps.testing.cluster import LocalCluster
from sparkps.wire import userfn
from sparkps.wire.messages import Continue, Ended, EpochEnded, Message

PATIENCE = 60.0


class Gang:
    """A session, the threads that train in it, and the driver that answers at the end of epochs."""

    def __init__(
        self, cluster: LocalCluster, size: int, consistency: str = "bsp", **options: Any
    ) -> None:
        self.on_epoch: Callable[[int, dict[str, Any]], Any] | None = options.pop("on_epoch", None)
        self.cluster, self.client = cluster, cluster.client()
        spec = SessionSpec(
            0, size, consistency, barrier_epochs=self.on_epoch is not None, **options
        )
        self.events: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.client.on_message = self.events.put
        number, self.token = self.client.open_session(spec)
        self.spec = msgspec.structs.replace(spec, id=number)
        self.errors: dict[int, BaseException] = {}
        self.results: dict[int, bytes] = {}
        self.history: list[dict[str, Any]] = []
        self.ended: Ended | None = None
        self.threads: list[threading.Thread] = []

    def join(self, rank: int) -> Run:
        return join_run(self.cluster.info, self.spec, rank)

    def start(self, target: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def task(
        self,
        rank: int,
        step: Any,
        batches: Sequence[Any],
        prepare: Callable[[Any], None] | None = None,
        validation: Sequence[Any] | None = None,
    ) -> None:
        """What a Spark task does."""
        try:
            with self.join(rank) as run:
                if not run.finished:
                    run.wait_for_gang()
                    if prepare is not None:
                        prepare(run.worker)
                    rows = sum(map(len, batches))
                    self.results[rank] = run.train(
                        batches,
                        step,
                        rows=rows,
                        validation=validation,
                        encode_result=userfn.dumps,
                    )
                else:
                    self.results[rank] = run.result
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.errors[rank] = error

    def drive(self) -> None:
        """The driver's part, until the session has ended."""
        while self.ended is None:
            try:
                event = self.events.get(timeout=PATIENCE)
            except queue.Empty:
                raise PSTimeout(seconds=PATIENCE, what="the run") from None
            if isinstance(event, EpochEnded) and event.session == self.spec.id:
                self.history.append(event.metrics)
                if event.wait:
                    self._answer(event)
            elif isinstance(event, Ended) and event.session == self.spec.id:
                self.ended = event
        for thread in self.threads:
            thread.join(PATIENCE)

    def _answer(self, event: EpochEnded) -> None:
        said = None
        if self.on_epoch is not None:
            with self.client.in_run(self.spec, self.token, event.clock):
                said = self.on_epoch(event.epoch, event.metrics)
        params = said if isinstance(said, dict) else None
        self.client.request(
            lambda number: Continue(number, self.spec.id, event.epoch, params, said == "stop")
        )

    def close(self) -> None:
        self.client.on_message = None
        self.client.close_session(self.spec.id)


def run(
    cluster: LocalCluster,
    step: Any,
    batches: Sequence[Sequence[Any]],
    consistency: str = "bsp",
    *,
    prepare: Callable[[Any], None] | None = None,
    validation: Sequence[Sequence[Any]] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train to the end; raise what a worker raised."""
    gang = Gang(cluster, len(batches), consistency, **options)
    try:
        for rank, mine in enumerate(batches):
            held_out = None if validation is None else validation[rank]
            gang.start(gang.task, rank, step, mine, prepare, held_out)
        gang.drive()
        for error in gang.errors.values():
            raise error
        if gang.ended is not None and gang.ended.code:
            raise from_wire(gang.ended.code, gang.ended.fields)
    finally:
        gang.close()
    return gang.history
