"""Public reports of large messages and slow servers, re-tried: B32 and B35."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np

from sparkps.testing import LocalCluster

MIB = 2**20


def peak_memory(pid: int) -> int:
    """The most resident memory that a process has had, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_b32_forty_million_numbers_come_in_one_call_and_bounded_memory() -> None:
    dim = 40_000_000
    with LocalCluster(servers=1) as cluster:
        table = cluster.table("b32", dim=dim, dtype="float64")
        some = np.arange(0, dim, 1009)
        table.assign(some, some + 0.5)
        before = peak_memory(cluster.pids()["server 0"])
        keys = np.arange(dim)
        values = table.pull(keys)
        grown = peak_memory(cluster.pids()["server 0"]) - before
        assert len(values) == dim
        assert np.array_equal(values[some], some + 0.5)
        assert np.count_nonzero(values) == len(some)
        middle = slice(dim // 2, dim // 2 + MIB)
        assert np.array_equal(table.pull(keys[middle]), values[middle])
        # The rows become resident when they are read (320 MB); messages in flight are bounded.
        assert grown < 320e6 + 128 * MIB


def test_b32_messages_smaller_than_the_answer_give_the_same_rows() -> None:
    with LocalCluster(servers=2, message_max_bytes=MIB) as cluster:
        table = cluster.table("b32 split", width=5)
        rng = np.random.default_rng(0)
        keys = rng.permutation(2**18)
        values = rng.random((len(keys), 5), np.float32)
        table.push(keys, values)
        assert np.array_equal(table.pull(keys), values)
        chunks = [table.pull(some) for some in np.array_split(keys, 7)]
        assert np.array_equal(np.concatenate(chunks), values)


class PushAlways:
    """A worker that pushes a megabyte again and again, with no pause."""

    def __call__(self, worker: object, keys: np.ndarray) -> None:
        worker.table("b35").push(keys, np.ones(len(keys), np.int64))  # type: ignore[attr-defined]


def test_b35_eight_clients_wait_for_a_stopped_server_and_lose_nothing() -> None:
    clients, batches, keys = 8, 20, np.arange(2**17)
    with LocalCluster(servers=2) as cluster:
        table = cluster.table("b35", dtype="int64", dim=len(keys))

        def stop_a_server(epoch: int, metrics: dict[str, float]) -> None:
            if epoch == 0:
                cluster.stop(1)
                threading.Timer(5, cluster.cont, args=(1,)).start()

        run = cluster.start_workers(
            PushAlways(),
            [[keys[rank % 2 :: 2]] * batches for rank in range(clients)],
            consistency="asp",
            epochs=2,
            on_epoch=stop_a_server,
        )
        run.wait(60)
        assert all(task.attempt == 0 for task in run.tasks.values())
        assert peak_memory(cluster.pids()["server 1"]) < 512 * MIB
        assert (table.pull(keys) == clients // 2 * batches * 2).all()


def resident_memory(pid: int) -> int:
    """The resident memory of a process now, in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class PushInSecondEpoch:
    """A worker that does nothing in its first epoch, and pushes without a pause in its second."""

    def __call__(self, worker: object, keys: np.ndarray) -> None:
        if worker.epoch:  # type: ignore[attr-defined]
            table = worker.table("b35 held")  # type: ignore[attr-defined]
            table.push(keys, np.ones(len(keys), np.int64))


def test_b35_what_waits_for_a_stopped_server_is_bounded_in_every_client() -> None:
    clients, batches, keys = 4, 100, np.arange(2**16)
    grown: list[int] = []
    with LocalCluster(servers=2, message_max_bytes=MIB, window_bytes=2 * MIB) as cluster:
        table = cluster.table("b35 held", dtype="int64", dim=len(keys))

        def stop_a_server(epoch: int, metrics: dict[str, float]) -> None:
            if epoch:
                return
            before = {task.pid: resident_memory(task.pid) for task in run.tasks.values()}
            cluster.stop(1)

            def let_go() -> None:
                grown.extend(resident_memory(pid) - held for pid, held in before.items())
                cluster.cont(1)

            threading.Timer(5, let_go).start()

        run = cluster.start_workers(
            PushInSecondEpoch(),
            [[keys] * batches] * clients,
            consistency="asp",
            epochs=2,
            on_epoch=stop_a_server,
        )
        run.wait(60)
        # The window, and what comes and goes with a push. Without a bound it is 100 MiB and more.
        assert len(grown) == clients
        assert max(grown) < 16 * MIB
        assert (table.pull(keys) == clients * batches).all()
