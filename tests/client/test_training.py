"""Runs: clocks, barriers, bounds, errors and retries, on real servers and a real coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from sparkps.client import worker as worker_module
from sparkps.client.table import Table
from sparkps.client.worker import Worker, current_worker
from sparkps.errors import (
    InvalidArgument,
    NotInRun,
    PSTimeout,
    SessionEnded,
    TableBusy,
    WrongType,
)
from sparkps.kernels.keys import partition_sort
from sparkps.optim import SGD, AdaGrad
from sparkps.testing.cluster import LocalCluster
from sparkps.wire import userfn
from sparkps.wire.messages import Failed, RegisterRank
from tests.client.runs import PATIENCE, Gang, run

Create = Callable[..., Table]
MODES = ["bsp", "ssp:1", "asp"]


def batches_of(ranks: list[int], rows: int = 5, seed: int = 0) -> list[list[np.ndarray]]:
    random = np.random.default_rng(seed)
    return [[random.integers(0, 30, rows) for _ in range(count)] for count in ranks]


@pytest.mark.parametrize("dim", [None, 30])
def test_bsp_over_ranks_is_one_loop_with_summed_gradients(
    cluster: LocalCluster, create: Create, dim: int | None
) -> None:
    table = create(optimizer=AdaGrad(lr=0.1), dim=dim)
    batches = batches_of([3, 1, 2, 0])

    def step(worker: Worker, keys: np.ndarray) -> dict[str, float]:
        values = table.pull(keys)
        table.push(keys, values + worker.rank + 1)
        return {"loss": float(values.sum())}

    history = run(cluster, step, batches, epochs=2)
    weights, squares = np.zeros(30), np.zeros(30)
    losses = []
    for _ in range(2):
        losses.append(0.0)
        for n in range(3):
            gradient = np.zeros(30)
            for rank, mine in enumerate(batches):
                if n < len(mine):
                    losses[-1] += weights[mine[n]].sum()
                    np.add.at(gradient, mine[n], weights[mine[n]] + rank + 1)
            squares += gradient**2
            weights -= 0.1 * gradient / (np.sqrt(squares) + 1e-8)
    assert table.pull(np.arange(30)) == pytest.approx(weights, rel=1e-5)
    assert [row["loss"] for row in history] == pytest.approx(losses, rel=1e-5)


def test_a_bsp_pull_sees_no_write_of_its_own_clock(cluster: LocalCluster, create: Create) -> None:
    table = create(dtype="int64", dim=100_000)
    seen = []

    def step(worker: Worker, keys: np.ndarray) -> None:
        seen.append((worker.clock, *table.pull([0, 99_999]), *table.pull()[[0, 99_999]]))
        table.push([0, 99_999], 1)
        seen.append((worker.clock, *table.pull([0, 99_999]), *table.pull()[[0, 99_999]]))

    run(cluster, step, batches_of([3, 3]))
    assert all(values == (2 * clock,) * 4 for clock, *rest in seen for values in [tuple(rest)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("every", ["batch", "epoch", "manual"])
def test_every_batch_is_seen_once_per_epoch_and_its_numbers_are_summed(
    cluster: LocalCluster, create: Create, mode: str, every: str
) -> None:
    table = create(dtype="int64")
    batches = batches_of([3, 1, 0])

    class Step:
        def __call__(self, worker: Worker, keys: np.ndarray) -> dict[str, Any]:
            table.push(keys, 1)
            if every == "manual":
                worker.tick()
            return {"rows": len(keys), "each": [1, worker.rank]}

        def end_epoch(self, worker: Worker) -> None:
            table.push([1000 + worker.rank], 1)

    history = run(cluster, Step(), batches, mode, epochs=2, clock_every=every)
    assert [(row["rows"], row["each"], row["epoch"]) for row in history] == [
        (20, [4, 1], 0),
        (20, [4, 1], 1),
    ]
    expected = np.zeros(1003, np.int64)
    for mine in batches:
        for keys in mine:
            np.add.at(expected, keys, 2)
    expected[1000:] = 2
    assert (table.pull(np.arange(1003)) == expected).all()


def test_a_step_sees_where_it_is(cluster: LocalCluster) -> None:
    seen: list[tuple[int, ...]] = []

    def step(worker: Worker, keys: np.ndarray) -> None:
        assert current_worker() is worker
        seen.append(
            (
                worker.rank,
                worker.epoch,
                worker.clock,
                worker.clock_rows,
                int(worker.rng.integers(2**31)),
            )
        )
        assert (worker.size, worker.attempt) == (2, 0)

    batches = [[np.arange(4), np.arange(4), np.arange(1)], [np.arange(2)]]
    run(cluster, step, batches, epochs=2, batch_rows=4, seed=5)
    first = sorted(seen)
    assert [row[:4] for row in first] == [
        (0, 0, 0, 6),
        (0, 0, 1, 4),
        (0, 0, 2, 1),
        (0, 1, 3, 6),
        (0, 1, 4, 4),
        (0, 1, 5, 1),
        (1, 0, 0, 6),
        (1, 1, 3, 6),
    ]
    assert len({row[4] for row in first}) == len(first)
    seen.clear()
    run(cluster, step, batches, epochs=2, batch_rows=4, seed=5)
    assert sorted(seen) == first


def test_ticks_of_a_bsp_run_add_numbers_over_all_workers(cluster: LocalCluster) -> None:
    got = []

    def step(worker: Worker, keys: np.ndarray) -> None:
        sums = worker.tick(loss=worker.rank + 0.5, counts=np.array([1, worker.rank]))
        got.append((sums["loss"], sums["counts"], worker.clock))
        assert worker.last == sums

    run(cluster, step, batches_of([2, 2, 2]), clock_every="manual")
    assert sorted(got) == [(4.5, [3, 3], 1)] * 3 + [(4.5, [3, 3], 2)] * 3


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_nobody_leads_the_slowest_by_more_than_the_bound(
    cluster: LocalCluster, create: Create, staleness: int
) -> None:
    table = create(dtype="int64")
    clocks, moved = [0] * 3, threading.Condition()
    leads = []

    def step(worker: Worker, keys: np.ndarray) -> None:
        clock = worker.clock
        with moved:
            clocks[worker.rank] = clock
            leads.append(max(clocks) - clocks[0])
            moved.notify_all()
            if worker.rank == 0:
                # The slow one goes on only when the others are as far ahead as they may be.
                assert moved.wait_for(
                    lambda: min(clocks[1:]) >= min(clock + staleness, 7), PATIENCE
                )
        # All updates of clocks up to clock - staleness - 1 are there: one of each rank in each
        # clock.
        done = np.arange(max(0, clock - staleness))
        assert (table.pull(done) >= 3).all()
        table.push([clock], 1)

    run(cluster, step, batches_of([8, 8, 8]), f"ssp:{staleness}")
    # Between the end of its clock and its next step the slow one is further than it says here.
    assert max(leads) in (staleness, staleness + 1)
    assert (table.pull(np.arange(8)) == 3).all()


def test_fresh_rows_are_not_pulled_again_under_ssp(cluster: LocalCluster, create: Create) -> None:
    table = create(dtype="int64")
    hits: dict[int, int] = {}
    keys = np.arange(20)

    def step(worker: Worker, batch: np.ndarray) -> None:
        handle = worker.table(table.name)
        if worker.clock == 0:
            worker.state["v"] = 0
            step.vocabulary[worker.rank] = handle.vocabulary()  # type: ignore[attr-defined]
            step.keysets[worker.rank] = handle.keyset(keys)  # type: ignore[attr-defined]
        vocabulary = step.vocabulary[worker.rank]  # type: ignore[attr-defined]
        keyset = step.keysets[worker.rank]  # type: ignore[attr-defined]
        least = 2 * max(0, worker.clock - 2)
        for values in (handle.pull(keys), vocabulary.pull(vocabulary.add(keys)), keyset.pull()):
            assert (values >= least).all()
            assert (values <= 2 * (worker.clock + 4)).all()
        handle.push(keys, 1)
        hits[worker.rank] = worker.cache_hits

    step.vocabulary, step.keysets = {}, {}  # type: ignore[attr-defined]
    run(cluster, step, batches_of([6, 6]), "ssp:2")
    assert min(hits.values()) > 0
    assert (table.pull(keys) == 12).all()


@pytest.mark.parametrize("size", [1, 3])
def test_after_a_barrier_ssp_uses_no_row_of_the_epoch_before(
    cluster: LocalCluster, create: Create, size: int
) -> None:
    table = create(dtype="int64")
    keys, seen = np.arange(5), []
    named: dict[int, tuple[Any, Any]] = {}

    def step(worker: Worker, batch: np.ndarray) -> None:
        handle = worker.table(table.name)
        if worker.rank not in named:
            named[worker.rank] = handle.vocabulary(), handle.keyset(keys)
        vocabulary, keyset = named[worker.rank]
        pulls = handle.pull(keys), vocabulary.pull(vocabulary.add(keys)), keyset.pull()
        seen.append((worker.epoch, min(int(values.min()) for values in pulls)))
        handle.push(keys, 1)

    run(cluster, step, batches_of([1] * size), "ssp:3", epochs=4, on_epoch=lambda *_: None)
    assert len(seen) == 4 * size
    assert all(least >= size * epoch for epoch, least in seen)


def test_the_driver_sees_the_end_of_an_epoch_and_sets_params(
    cluster: LocalCluster, create: Create
) -> None:
    table = create(optimizer=SGD(lr=1.0))
    rates: list[float] = []
    values: list[float] = []

    def step(worker: Worker, keys: np.ndarray) -> dict[str, int]:
        rates.append(worker.params.get("rate", 1))
        table.push([0], worker.params.get("rate", 1))
        return {"n": 1}

    def on_epoch(epoch: int, metrics: dict[str, Any]) -> Any:
        assert metrics["n"] == 4
        values.append(float(table.pull([0])[0]))
        table.push([1], 1)
        return "stop" if epoch == 2 else {"rate": epoch + 2}

    history = run(cluster, step, batches_of([2, 2]), epochs=9, on_epoch=on_epoch)
    assert len(history) == 3
    assert sorted(rates) == [1] * 4 + [2] * 4 + [3] * 4
    assert values == [-4, -12, -24]
    assert table.pull([0, 1]).tolist() == [-24, -3]


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_s_own_error_ends_the_run_for_all(cluster: LocalCluster, mode: str) -> None:
    def step(worker: Worker, keys: np.ndarray) -> None:
        if worker.rank == 1 and worker.clock == 1:
            raise ZeroDivisionError("rank 1 has no rows")

    gang = Gang(cluster, 2, mode)
    try:
        for rank, mine in enumerate(batches_of([3, 3])):
            gang.start(gang.task, rank, step, mine)
        gang.drive()
        assert isinstance(gang.errors[1], ZeroDivisionError)
        assert isinstance(gang.errors.get(0), SessionEnded) or mode == "asp"
        assert gang.ended is not None
        assert isinstance(userfn.load_error(gang.ended.error), ZeroDivisionError)
    finally:
        gang.close()


def test_an_os_error_frees_the_rank_for_another_attempt_and_ours_end_the_run(
    cluster: LocalCluster, create: Create
) -> None:
    table = create(dtype="int64", dim=2)

    def step(worker: Worker, keys: np.ndarray) -> None:
        table.push([worker.rank], [len(keys)])
        if worker.clock == 1 and worker.attempt < 2:
            raise (ConnectionResetError, FileNotFoundError)[worker.attempt](worker.rank)

    def tried_thrice(rank: int, mine: Any) -> None:
        for _ in range(3):
            gang.errors.pop(rank, None)
            gang.task(rank, step, mine)

    batches = batches_of([3, 3])
    for mode in MODES:
        gang = Gang(cluster, 2, mode)
        try:
            for rank, mine in enumerate(batches):
                gang.start(tried_thrice, rank, mine)
            gang.drive()
            assert (gang.errors, gang.ended.code if gang.ended else None) == ({}, "")
        finally:
            gang.close()
    assert table.pull().tolist() == [len(MODES) * sum(map(len, mine)) for mine in batches]

    def times_out(worker: Worker, keys: np.ndarray) -> None:
        raise PSTimeout(seconds=1, what="a server")

    with pytest.raises(PSTimeout, match="a server"):
        run(cluster, times_out, batches_of([1]))


def test_another_attempt_goes_on_where_the_first_was_and_writes_nothing_twice(
    cluster: LocalCluster, create: Create
) -> None:
    table = create(dtype="int64")
    gang = Gang(cluster, 2, "bsp", epochs=2)
    seen: list[tuple[int, int, int]] = []

    class Interrupted(BaseException):
        """Not fatal, as a killed task is not."""

    def step(worker: Worker, keys: np.ndarray) -> None:
        seen.append((worker.rank, worker.attempt, worker.clock))
        assert worker.state.get("clocks", 0) == worker.clock
        table.push(keys, 1).wait()
        if (worker.rank, worker.attempt, worker.clock) == (1, 0, 3):
            raise Interrupted
        worker.state["clocks"] = worker.clock + 1

    def interrupted(rank: int, mine: Any) -> None:
        try:
            gang.task(rank, step, mine)
        except Interrupted:
            gang.start(gang.task, rank, step, mine)

    batches = batches_of([2, 2])
    try:
        for rank, mine in enumerate(batches):
            gang.start(interrupted, rank, mine)
        gang.drive()
        assert gang.errors == {}
        assert [row for row in seen if row[0] == 1] == [
            (1, 0, 0),
            (1, 0, 1),
            (1, 0, 2),
            (1, 0, 3),
            (1, 1, 3),
        ]
    finally:
        gang.close()
    expected = np.zeros(30, np.int64)
    for mine in batches:
        for keys in mine:
            np.add.at(expected, keys, 2)
    assert (table.pull(np.arange(30)) == expected).all()


def test_a_second_task_of_a_rank_stands_by_and_gets_the_result(cluster: LocalCluster) -> None:
    gang = Gang(cluster, 1, "asp")
    trained = []

    class Step:
        def __call__(self, worker: Worker, keys: np.ndarray) -> None:
            if worker.clock == 0:
                gang.start(gang.task, 0, self, [])
            trained.append(worker.clock)

        def finish(self, worker: Worker) -> str:
            return f"rank {worker.rank}"

    try:
        gang.start(gang.task, 0, Step(), batches_of([3])[0])
        gang.drive()
        assert trained == [0, 1, 2]
        assert userfn.loads(gang.results[0]) == "rank 0"
        gang.results.clear()
        gang.task(0, Step(), [])
        assert gang.errors == {}
        assert userfn.loads(gang.results[0]) == "rank 0"
    finally:
        gang.close()


def test_a_task_that_was_passed_over_while_it_finished_has_not_finished(
    cluster: LocalCluster,
) -> None:
    gang = Gang(cluster, 1, "asp")
    tokens = []

    class Step:
        def __call__(self, worker: Worker, keys: np.ndarray) -> dict[str, int]:
            return {"n": 1}

        def finish(self, worker: Worker) -> str:
            token = worker._seat.token
            tokens.append(token)
            if len(tokens) == 1:
                worker._tell(Failed(gang.spec.id, 0, token, b"", "it was silent", False))
                worker._tell(RegisterRank(gang.spec.id, 0, "here", 1, 0))
            return f"attempt {worker.attempt}"

    try:
        gang.start(gang.task, 0, Step(), batches_of([3])[0])
        gang.drive()
        assert gang.errors == {}
        assert len(set(tokens)) == 2
        assert userfn.loads(gang.results[0]) == "attempt 1"
        assert [row["n"] for row in gang.history] == [3]
    finally:
        gang.close()


def test_start_and_finish_frame_the_epochs(cluster: LocalCluster) -> None:
    story: list[str] = []

    class Step:
        def start(self, worker: Worker) -> None:
            story.append("start")

        def __call__(self, worker: Worker, keys: np.ndarray) -> None:
            story.append(f"step {worker.epoch}.{worker.clock}")

        def end_epoch(self, worker: Worker) -> None:
            story.append(f"end {worker.epoch}")

        def finish(self, worker: Worker) -> None:
            story.append("finish")

    run(cluster, Step(), batches_of([2]), "asp", epochs=2)
    assert story == [
        "start",
        "step 0.0",
        "step 0.1",
        "end 0",
        "step 1.2",
        "step 1.3",
        "end 1",
        "finish",
    ]


def test_writes_before_and_after_training_are_refused(
    cluster: LocalCluster, create: Create
) -> None:
    table = create(dtype="int64")
    refused = []

    def prepare(worker: Worker) -> None:
        assert table.pull([1]).tolist() == [0]
        with pytest.raises(NotInRun, match=r"push in prepare\(\)"):
            table.push([1], 1)
        refused.append("prepare")

    class Step:
        def __call__(self, worker: Worker, keys: np.ndarray) -> None:
            table.push([1], 1)

        def finish(self, worker: Worker) -> None:
            with pytest.raises(NotInRun, match=r"push in finish\(\)"):
                table.push([1], 1)
            refused.append("finish")

    run(cluster, Step(), batches_of([1]), prepare=prepare)
    assert refused == ["prepare", "finish"]
    assert table.pull([1]).tolist() == [1]


def test_several_tables_are_pulled_in_one_round_trip(cluster: LocalCluster, create: Create) -> None:
    one, two = create(), create(width=2)
    one.push([1], [5])

    def step(worker: Worker, keys: np.ndarray) -> None:
        got = worker.pull({one.name: [1, 2], two: [3]})
        assert got[one.name].tolist() == [5, 0]
        assert got[two].tolist() == [[0, 0]]

    run(cluster, step, batches_of([1]))


def test_a_bsp_run_owns_a_table_on_all_servers_from_its_first_write(cluster: LocalCluster) -> None:
    table = cluster.table("owned", partitions=4)
    owners = table._access.routes()
    here, there = owners.partitions[0], owners.partitions[-1]
    assert len(owners.servers) == 2
    keys = np.arange(200)
    of = partition_sort(keys, 4, None, np.arange(4, dtype=np.int32))
    bounds = np.concatenate(([0], np.cumsum(of[2])))
    mine, theirs = (of[1][bounds[p] : bounds[p + 1]][:1] for p in (here, there))

    def step(worker: Worker, batch: Any) -> None:
        worker.table("owned").push(mine, [1.0])
        if worker.clock == 1:  # the first write is acknowledged
            with pytest.raises(TableBusy, match="'owned' is written by a bsp run"):
                outside.submit(table.push, theirs, [1.0]).result(30)

    with ThreadPoolExecutor(1) as outside:
        run(cluster, step, batches_of([2]))
    assert table.pull(np.concatenate((mine, theirs))).tolist() == [2.0, 0.0]
    table.push(theirs, [1.0])


@pytest.mark.parametrize(
    ("returned", "error", "words"),
    [
        (3, WrongType, "the result of step is int; a dict of numbers"),
        ({"loss": "x"}, WrongType, "the number 'loss' of a tick is str"),
        ({"loss": None}, WrongType, "the number 'loss' of a tick is NoneType"),
        ({"epoch": 3}, InvalidArgument, "epoch=3: every row of the history has that already"),
        ({"seconds": 0.1}, InvalidArgument, "seconds=0.1: every row of the history has that"),
    ],
)
def test_what_cannot_be_summed_is_refused(
    cluster: LocalCluster, returned: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run(cluster, lambda worker, keys: returned, batches_of([1]))


def test_a_step_does_not_tick_where_clocks_end_by_themselves(cluster: LocalCluster) -> None:
    with pytest.raises(InvalidArgument, match='a step that ticks needs clock_every="manual"'):
        run(cluster, lambda worker, keys: worker.tick(), batches_of([1]))


def test_state_is_plain() -> None:
    assert worker_module.as_state({}) == b""
    assert worker_module.as_state({"a": [1, 2.5, "x", np.float32(2)]})
    with pytest.raises(WrongType, match=r"worker\.state"):
        worker_module.as_state({"a": object()})


def test_whole_numbers_of_more_than_64_bits_go_on_as_floats() -> None:
    assert worker_module.as_numbers({"a": 2**63, "b": -(2**70), "c": 10**400, "d": 2**63 - 1}) == {
        "a": 2.0**63,
        "b": -(2.0**70),
        "c": float("inf"),
        "d": 2**63 - 1,
    }


def test_the_name_of_a_number_is_a_string() -> None:
    with pytest.raises(WrongType, match="the name 1 of a number is int"):
        worker_module.as_numbers({1: 2})  # type: ignore[dict-item]


def test_params_travel_as_plain_values() -> None:
    assert worker_module.as_params({"lr": np.float32(0.5), "on": [1, "x"]}) == {
        "lr": 0.5,
        "on": [1, "x"],
    }


@pytest.mark.parametrize("params", [{"a": object()}, {1: 2}, {"a": 2**70}, {"a": np.arange(3)}])
def test_params_that_do_not_travel_are_refused_on_the_driver(params: dict[Any, Any]) -> None:
    with pytest.raises(WrongType, match="the result of on_epoch"):
        worker_module.as_params(params)


def test_numbers_of_another_length_on_another_rank_end_the_run(cluster: LocalCluster) -> None:
    with pytest.raises(SessionEnded, match="one shape per name"):
        run(cluster, lambda worker, keys: {"a": [1] * (worker.rank + 1)}, batches_of([1, 1]))
