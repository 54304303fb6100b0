"""Real processes: start, train, die; and nothing is left."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from sparkps import errors
from sparkps.testing import LocalCluster

KEYS = np.array([1, 5, 9, 2**62, -3])


def count(worker, batch):
    """A step that counts its keys."""
    table = worker.table("t")
    table.pull(batch)
    table.push(batch, np.ones(len(batch), int))
    return {"n": len(batch)}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(servers=2) as cluster:
        yield cluster


def batches(size, number):
    return [[KEYS[: 1 + (rank + n) % 5] for n in range(number + rank)] for rank in range(size)]


def expected(work, epochs):
    keys, counts = np.unique(np.concatenate([b for own in work for b in own]), return_counts=True)
    return keys.tolist(), (counts * epochs).tolist()


def collected(table):
    keys, values = table.collect()
    return keys.tolist(), values.tolist()


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1", "asp"])
def test_workers_train_to_the_end(cluster, consistency):
    table = cluster.table("t", dtype="int64", replace=True)
    work = batches(3, 2)
    history = cluster.run_workers(count, work, consistency=consistency, epochs=2)
    assert [(row["epoch"], row["n"]) for row in history] == [
        (epoch, sum(len(b) for own in work for b in own)) for epoch in range(2)
    ]
    assert collected(table) == expected(work, 2)


def test_on_epoch_runs_in_the_driver_and_its_params_reach_the_workers(cluster):
    table = cluster.table("t", dtype="int64", replace=True)
    seen = []

    def on_epoch(epoch, metrics):
        seen.append((epoch, metrics["add"], int(table.pull([7])[0])))
        return "stop" if epoch == 2 else {"add": 10 * (epoch + 1)}

    def step(worker, batch):
        add = worker.params.get("add", 1)
        worker.table("t").push([7], [add])
        return {"add": add}

    history = cluster.run_workers(step, [[0], [0]], epochs=9, on_epoch=on_epoch)
    assert seen == [(0, 2, 2), (1, 20, 22), (2, 40, 62)]
    assert len(history) == 3


class Dying:
    """Counts, and its first attempt of rank 1 dies in the middle of epoch 1."""

    def __call__(self, worker, batch):
        result = count(worker, batch)
        if (worker.rank, worker.attempt, worker.epoch) == (1, 0, 1) and worker.clock % 3 == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1", "asp"])
def test_a_killed_task_is_started_again_and_every_update_counts_once(cluster, consistency):
    table = cluster.table("t", dtype="int64", replace=True)
    work = batches(2, 2)
    workers = cluster.start_workers(Dying(), work, consistency=consistency, epochs=3)
    try:
        history = workers.wait(60)
    finally:
        workers.close()
    assert workers.tasks[1].attempt == 1
    assert any("rank 1 lost its task" in text for text in workers.warnings)
    assert [row["n"] for row in history] == [sum(len(b) for own in work for b in own)] * 3
    assert collected(table) == expected(work, 3)


def test_the_exception_of_a_step_is_the_one_that_the_driver_raises(cluster):
    cluster.table("t", dtype="int64", replace=True)

    def step(worker, batch):
        raise ZeroDivisionError(f"batch {batch}")

    with pytest.raises(ZeroDivisionError, match="batch 17"):
        cluster.run_workers(step, [[17], []], attempts=2)


def test_a_killed_server_is_lost_with_its_status_and_log_and_its_tables_until_replaced():
    with LocalCluster(servers=2) as cluster:
        table = cluster.table("t", dtype="int64")
        table.push(np.arange(1000), np.ones(1000, int))
        assert cluster.kill(1) == "killed by signal 9, SIGKILL"
        sentence = (
            r"(?s)server 1 is lost \(killed by signal 9, SIGKILL\)"
            r".*tables t.*server 1 is up.*replace=True"
        )
        for _ in range(2):
            with pytest.raises(errors.ServerLost, match=sentence):
                table.pull(np.arange(1000))
        with pytest.raises(errors.ServerLost, match=sentence):
            cluster.table("t", dtype="int64")
        again = cluster.table("t", dtype="int64", replace=True)
        again.push([3, 3], [1, 1])
        assert again.pull([3, 4]).tolist() == [2, 0]


def test_a_server_killed_in_a_run_fails_the_run():
    with LocalCluster(servers=2) as cluster:
        cluster.table("t", dtype="int64")
        with pytest.raises(errors.ServerLost, match="server 0 is lost"):
            cluster.run_workers(
                count, batches(2, 2), epochs=5, on_epoch=lambda epoch, _: cluster.kill(0) and None
            )


def test_a_stopped_server_is_named_by_a_request_that_waits_too_long():
    with LocalCluster(servers=1, request_timeout="1s") as cluster:
        table = cluster.table("t", dtype="int64")
        table.push([1], [1])
        cluster.stop(0)
        with pytest.raises(errors.RequestTimeout, match="server 0"):
            table.pull([1])
        with pytest.raises(
            errors.RequestTimeout, match="creating table 'u': no answer from server 0"
        ):
            cluster.table("u")
        cluster.cont(0)
        assert cluster.table("v").count() == 0


def test_a_coordinator_killed_in_a_run_ends_its_tasks_too():
    with LocalCluster(servers=1) as cluster:
        cluster.table("t", dtype="int64")
        with pytest.raises(errors.CoordinatorLost):
            cluster.run_workers(
                count, [[KEYS]] * 2, on_epoch=lambda epoch, _: cluster.kill("coordinator") and None
            )


def test_a_killed_coordinator_fails_everything_with_one_clear_error():
    with LocalCluster(servers=1) as cluster:
        cluster.table("t")
        cluster.kill("coordinator")
        assert "killed by signal 9, SIGKILL" in str(cluster.launcher.why_lost())
        with pytest.raises(errors.CoordinatorLost):
            cluster.table("u")
