"""Rows for validation: when ``step.validate`` is called, and what it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkps.client.table import Table
from sparkps.client.worker import Worker
from sparkps.errors import NotInRun, SessionEnded, WrongType
from sparkps.testing.cluster import LocalCluster
from tests.client.runs import Gang, run

Create = Callable[..., Table]

#: Ranks with more batches, fewer and none; the last has rows for validation only.
BATCHES: list[list[str]] = [["a", "b", "c"], ["d"], []]
HELD_OUT: list[list[str]] = [[], ["v"], ["w", "x"]]


class Counts:
    """Each batch adds 1 to a row, which validation reads."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.validated: list[tuple[int, int, str]] = []

    def __call__(self, worker: Worker, batch: str) -> dict[str, Any]:
        assert not worker.validating
        self.table.push([0], [1])
        return {"batches": 1}

    def validate(self, worker: Worker, batch: str) -> dict[str, Any]:
        assert worker.validating
        assert worker.clock_rows == 1
        self.validated.append((worker.epoch, worker.rank, batch))
        return {"seen": int(self.table.pull([0])[0]), "draws": worker.rng.random()}

    def end_epoch(self, worker: Worker) -> None:
        assert not worker.validating


def trained(cluster: LocalCluster, table: Table, mode: str, every: str) -> tuple[Counts, Any]:
    step = Counts(table)
    history = run(
        cluster, step, BATCHES, mode, validation=HELD_OUT, epochs=3, clock_every=every, batch_rows=1
    )
    return step, history


@pytest.mark.parametrize("mode", ["bsp", "ssp:1", "asp"])
@pytest.mark.parametrize("every", ["batch", "epoch", "manual"])
def test_every_row_for_validation_is_seen_once_in_an_epoch(
    cluster: LocalCluster, create: Create, mode: str, every: str
) -> None:
    step, history = trained(cluster, create(dtype="int64", dim=1), mode, every)
    assert sorted(step.validated) == [
        (epoch, rank, batch) for epoch in range(3) for rank, mine in enumerate(HELD_OUT)
        for batch in mine
    ]  # fmt: skip
    assert [row["batches"] for row in history] == [4, 4, 4]


@pytest.mark.parametrize(("every", "before"), [("batch", 1), ("epoch", 0)])
def test_in_bsp_it_sees_the_whole_epoch_where_batches_have_clocks(
    cluster: LocalCluster, create: Create, every: str, before: int
) -> None:
    _, history = trained(cluster, create(dtype="int64", dim=1), "bsp", every)
    assert [row["seen"] for row in history] == [3 * 4 * (epoch + before) for epoch in range(3)]


def test_an_attempt_that_failed_in_validation_is_repeated_with_the_same_draws(
    cluster: LocalCluster, create: Create
) -> None:
    undisturbed = trained(cluster, create(dtype="int64", dim=1), "bsp", "batch")[1]

    class Failing(Counts):
        failed = False

        def validate(self, worker: Worker, batch: str) -> dict[str, Any]:
            if batch == "x" and worker.epoch == 1 and not Failing.failed:
                Failing.failed = True
                raise ConnectionResetError("once")
            return super().validate(worker, batch)

    gang = Gang(cluster, 3, epochs=3, batch_rows=1)
    step = Failing(create(dtype="int64", dim=1))

    def twice(rank: int) -> None:
        gang.task(rank, step, BATCHES[rank], None, HELD_OUT[rank])
        if isinstance(gang.errors.pop(rank, None), ConnectionResetError):
            gang.task(rank, step, BATCHES[rank], None, HELD_OUT[rank])

    try:
        for rank in range(3):
            gang.start(twice, rank)
        gang.drive()
    finally:
        gang.close()
    assert Failing.failed
    assert gang.errors == {}
    for name in ("batches", "seen", "draws"):
        assert [row[name] for row in gang.history] == pytest.approx(
            [row[name] for row in undisturbed]
        )


def test_validation_may_not_train(cluster: LocalCluster, create: Create) -> None:
    class Pushing(Counts):
        def validate(self, worker: Worker, batch: str) -> Any:
            self.table.push([0], [1])

    with pytest.raises((NotInRun, SessionEnded), match=r"push in validate\(\)"):
        run(cluster, Pushing(create(dtype="int64", dim=1)), BATCHES, validation=HELD_OUT)


def test_what_validate_returns_is_checked(cluster: LocalCluster, create: Create) -> None:
    class Wrong(Counts):
        def validate(self, worker: Worker, batch: str) -> Any:
            return 5

    with pytest.raises((WrongType, SessionEnded), match=r"step\.validate"):
        run(cluster, Wrong(create(dtype="int64", dim=1)), BATCHES, validation=HELD_OUT)
