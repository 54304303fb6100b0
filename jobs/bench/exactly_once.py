"""Does every row count exactly once, and do bsp runs give the same bits, whatever fails in Spark?

Workers count the features of a9a (32,561 rows) in an int64 table while tasks fail in the middle:
with an error, by the end of their process, with the executor killed under them, too slow so that
Spark starts a copy. The counts must be those of numpy, and Spark must have seen no failure beyond
those. In a second kind of scenario a bsp training is disturbed at a random clock: its tables must
be those of an undisturbed training, bit by bit.

Each scenario prints a JSON line; ``wrong`` counts repetitions that failed. The exit status is 1 if
there is any.

    python jobs/bench/exactly_once.py --repetitions 20
    python jobs/bench/exactly_once.py --master "local[2,4]" --repetitions 1 --seeds 3

Masters: ``local[2,4]``, ``local-cluster[2,1,1024]`` and ``hosts``, a standalone cluster of this
process with a worker on each of two host names. Only there does Spark speculate: it starts no copy
of a task on the host of the original, and in local mode none at all.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

from sparkps import PSContext, csr, optim, read_libsvm

DATA: Final = Path(__file__).parents[1] / "data/a9a/a9a_train.libsvm.gz"
ROWS: Final = 32_561
FEATURES: Final = 123
EPOCHS: Final = 2
WORKERS: Final = 2
BATCH_ROWS: Final = 1024
MASTERS: Final = ("local[2,4]", "local-cluster[2,1,1024]", "hosts")
MODES: Final = ("bsp", "ssp:2", "asp")


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to the first attempt of some ranks.

    Attributes
    ----------
    kind
        ``"error"``, ``"exit"``, ``"killed"`` (the task's own process), ``"executor"`` (its JVM),
        ``"slow"``, ``"stopped"``, or ``""`` for nothing.
    ranks
        Whose.
    clock
        When; None for the middle of the first epoch.
    """

    kind: str = ""
    ranks: tuple[int, ...] = tuple(range(WORKERS))
    clock: int | None = None

    def strike(self) -> None:
        """Let it happen to this process."""
        if self.kind == "error":
            raise ConnectionResetError("a connection that the step uses was reset")
        if self.kind == "exit":
            os._exit(1)
        if self.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.kind == "executor":
            # Spark's worker processes are children of a daemon, and that of the executor.
            stat = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
            threading.Event().wait(10)  # the daemon ends this process when it has noticed


class Step:
    """Counts its batches in ``prepare``, and strikes in the middle of a step."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.batches = 0

    def prepare(self, worker: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.batches += 1
        return batch

    def __call__(self, worker: Any, batch: pa.RecordBatch) -> dict[str, Any]:
        self.update(worker, batch)
        fault = self.fault
        if worker.attempt == 0 and worker.rank in fault.ranks:
            if fault.kind == "slow":
                threading.Event().wait(0.1)
            elif worker.clock == (self.batches // 2 if fault.clock is None else fault.clock):
                fault.strike()
        return {"rows": batch.num_rows, "again": int(worker.attempt > 0)}

    def update(self, worker: Any, batch: pa.RecordBatch) -> None:
        raise NotImplementedError


class Count(Step):
    """One for each feature of each row, and one for each row under the key after the last."""

    def update(self, worker: Any, batch: pa.RecordBatch) -> None:
        features = batch.column("features").flatten().to_numpy()
        keys = np.append(features, np.full(batch.num_rows, FEATURES))
        worker.table("counts").push(keys, 1, wait=worker.rank == 0)


class Train(Step):
    """Logistic regression with a dense table of weights and a hashed one."""

    def update(self, worker: Any, batch: pa.RecordBatch) -> None:
        x = csr(batch, "features", "values")
        weights = worker.pull({"dense": x.keys, "hashed": x.keys})
        labels = batch.column("label").to_numpy()
        margin = x.dot(weights["dense"]) + x.dot(weights["hashed"])
        error = (1 / (1 + np.exp(-margin)) - labels) / worker.clock_rows
        for name in weights:
            worker.table(name).push(x.keys, x.dot_t(error.astype(np.float32)))


def expected_counts() -> np.ndarray:
    """The counts by numpy, of the text itself."""
    with gzip.open(DATA, "rt") as file:
        rows = [line.split()[1:] for line in file]
    keys = [int(pair.partition(":")[0]) - 1 for row in rows for pair in row]
    counts = EPOCHS * np.bincount(keys, minlength=FEATURES + 1)
    counts[FEATURES] = EPOCHS * len(rows)
    return counts


class Cluster:
    """A Spark session on a master, the two inputs, and what Spark says of the tasks of a run."""

    def __init__(self, master: str, directory: str) -> None:
        SparkContext._ensure_initialized()  # so that the settings are in the JVM, for two_hosts
        conf = SparkConf().setAppName("exactly once")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "OFF",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": f"{directory}/local",
            "spark.worker.cleanup.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            # Eight input partitions of the files below, for two workers.
            "spark.sql.files.minPartitionNum": "8",
            # A copy of every task that takes longer than the other.
            "spark.speculation": str(master == "hosts").lower(),
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.0",
            "spark.locality.wait": "0",
        }
        for key, value in settings.items():
            conf.set(key, value)
        if master == "hosts":
            master = two_hosts(conf, directory)
        self.context = SparkContext(master=master, conf=conf)
        self.context.pythonExec = sys.executable  # that of the executors, too
        self.spark = SparkSession(self.context)
        self._groups = 0
        path = f"{directory}/a9a"
        read_libsvm(self.spark, f"file://{DATA}").repartition(8).write.parquet(path)
        self._rows = self.spark.read.parquet(path)

    def rows(self, shuffled: bool) -> DataFrame:
        """The input of a training, with or without a shuffle before it."""
        return self._rows.repartition(8) if shuffled else self._rows

    def group(self) -> str:
        """Begin a group of jobs."""
        self._groups += 1
        name = f"scenario {self._groups}"
        self.context.setJobGroup(name, name)
        return name

    def tasks(self, group: str) -> dict[str, int]:
        """How many tasks of a group have failed or were killed, how many were copies, and how many
        attempts of stages there were beyond the first.
        """
        inside = self.context._jsc.sc()
        inside.listenerBus().waitUntilEmpty()
        tracker, store = self.context.statusTracker(), inside.statusStore()
        found = {"failed": 0, "killed": 0, "copies": 0, "stages_again": 0}
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        for stage in {stage for job in jobs if job for stage in job.stageIds}:
            if tracker.getStageInfo(stage) is None:
                continue  # Spark had no need of it
            last = store.lastStageAttempt(stage).attemptId()
            found["stages_again"] += last
            for attempt in range(last + 1):
                tasks = store.taskList(stage, attempt, 1000)
                for task in (tasks.apply(i) for i in range(tasks.size())):
                    found["failed"] += task.status() == "FAILED"
                    found["killed"] += task.status() == "KILLED"
                    found["copies"] += task.speculative()
        return found

    def stop(self) -> None:
        self.spark.stop()


def two_hosts(conf: SparkConf, directory: str) -> str:
    """Start a standalone master and two workers in the driver's JVM, as local-cluster does, but
    with a host name for each; return the master's URL.
    """
    jvm: Any = SparkContext._jvm
    deploy = jvm.org.apache.spark.deploy
    none = jvm.scala.Option.empty()
    inside = conf._jconf
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, inside)
    url = f"spark://{master._1().address().hostPort()}"
    urls = SparkContext._gateway.new_array(jvm.java.lang.String, 1)  # type: ignore[union-attr]
    urls[0] = url
    for number in (1, 2):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            f"127.0.0.{number}", 0, 0, 1, 1024, urls, f"{directory}/work",
            jvm.scala.Option.apply(number), inside, none,
        )  # fmt: skip
    return url


class Scenarios:
    """The scenarios of one master, one JSON line each."""

    def __init__(self, cluster: Cluster, ps: PSContext, master: str) -> None:
        self.cluster, self.ps, self.master = cluster, ps, master
        self.expected = expected_counts()
        self._undisturbed: dict[bool, list[bytes]] = {}

    def all(self, repetitions: int, seeds: int) -> Iterator[dict[str, Any]]:
        """Run them all."""
        if self.master == "hosts":
            for mode in MODES:
                yield self.counts(mode, False, ["slow"], repetitions)
            yield self.counts("asp", False, ["stopped"], repetitions)
            return
        local = self.master.startswith("local[")
        for number, (mode, shuffled) in enumerate((m, s) for m in MODES for s in (False, True)):
            # By turns, so that one repetition of all has every kind, executors with both inputs.
            kinds = ["error", "exit"] if local else ["error", "exit", "executor"]
            turn = (number + number // 2 * local) % len(kinds)
            yield self.counts(mode, shuffled, kinds[turn:] + kinds[:turn], repetitions)
        # An executor takes some ten times as long to come back as a task's process.
        yield self.bits("killed", seeds) if local else self.bits("executor", max(1, seeds // 3))

    def counts(
        self, mode: str, shuffled: bool, kinds: list[str], repetitions: int
    ) -> dict[str, Any]:
        """Counting, disturbed."""
        began, wrong, totals = time.monotonic(), [], dict.fromkeys(("again",), 0)
        for repetition in range(repetitions):
            kind = kinds[repetition % len(kinds)]
            alone = kind in ("executor", "slow", "stopped")
            ranks = (repetition % WORKERS,) if alone else tuple(range(WORKERS))
            self.ps.table("counts", dim=FEATURES + 1, dtype="int64", replace=True)
            group = self.cluster.group()
            history = self.run(Count(Fault(kind, ranks)), mode, shuffled, repetition)
            found = self.cluster.tasks(group)
            totals["again"] += sum(epoch["again"] > 0 for epoch in history)
            for name, number in found.items():
                totals[name] = totals.get(name, 0) + number
            table = self.ps.table("counts")
            good = np.array_equal(table.pull(), self.expected)
            most = 0 if kind in ("slow", "stopped") else len(ranks)
            if not good or found["failed"] > most + found["stages_again"]:
                off = int(np.abs(table.pull() - self.expected).sum())
                wrong.append({"repetition": repetition, "kind": kind, "off_by": off, **found})
        return self.line("counts", mode, shuffled, kinds, repetitions, began, wrong, **totals)

    def bits(self, kind: str, seeds: int) -> dict[str, Any]:
        """A bsp training, disturbed at a random clock of a random rank; with and without a shuffle
        by turns.
        """
        began, wrong, where = time.monotonic(), [], []
        for seed in range(seeds):
            shuffled = seed % 2 == 0
            if shuffled not in self._undisturbed:
                self._undisturbed[shuffled] = self.trained(Fault(), shuffled)
            random = np.random.default_rng(seed)
            clocks = EPOCHS * (ROWS // WORKERS // BATCH_ROWS)
            rank, clock = int(random.integers(WORKERS)), int(random.integers(clocks))
            where.append([rank, clock])
            if self.trained(Fault(kind, (rank,), clock), shuffled) != self._undisturbed[shuffled]:
                wrong.append({"seed": seed, "rank": rank, "clock": clock})
        return self.line("bits", "bsp", None, [kind], seeds, began, wrong, at=where)

    def trained(self, fault: Fault, shuffled: bool) -> list[bytes]:
        """All bytes of all fields of the tables, and the history, after a training."""
        specs: dict[str, dict[str, Any]] = {
            "dense": {"dim": FEATURES, "optimizer": optim.AdaGrad(lr=0.1)},
            "hashed": {"optimizer": optim.Adam(lr=0.01)},
        }
        for name, spec in specs.items():
            self.ps.table(name, replace=True, **spec)
        history = self.run(Train(fault), "bsp", shuffled, 0)
        found = [json.dumps([epoch["rows"] for epoch in history]).encode()]
        for name, spec in specs.items():
            fields = range(1 + len(spec["optimizer"].fields()))
            keys, arrays, counts = self.ps.table(name).scan(fields)
            found += [array.tobytes() for array in (keys, counts, *arrays)]
        return found

    def run(self, step: Step, mode: str, shuffled: bool, seed: int) -> Any:
        return self.ps.run(
            self.cluster.rows(shuffled), step, prepare=step.prepare, consistency=mode,
            epochs=EPOCHS, workers=WORKERS, batch_rows=BATCH_ROWS, seed=seed,
        )  # fmt: skip

    def line(
        self, what: str, mode: str, shuffled: bool | None, kinds: list[str], repetitions: int,
        began: float, wrong: list[Any], **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "bench": "exactly_once", "scenario": what, "master": self.master,
            "consistency": mode, "shuffle": shuffled, "faults": kinds,
            "repetitions": repetitions, "wrong": len(wrong), "details": wrong, **more,
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip


def on_master(master: str, repetitions: int, seeds: int) -> int:
    """Run all scenarios of a master; return how many repetitions were wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as directory:
        cluster = Cluster(master, directory)
        try:
            with PSContext(
                cluster.spark, servers=2, launch="local", progress=False,
                dead=3.0, stall_fatal=60.0,
            ) as ps:  # fmt: skip
                for line in Scenarios(cluster, ps, master).all(repetitions, seeds):
                    print(json.dumps(line), flush=True)
                    wrong += line["wrong"]
        finally:
            cluster.stop()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--master", choices=MASTERS, help="only this one")
    parser.add_argument("--repetitions", type=int, default=20, help="of each count (20)")
    parser.add_argument("--seeds", type=int, default=10, help="of each training (10)")
    args = parser.parse_args()
    if args.master:
        return int(on_master(args.master, args.repetitions, args.seeds) > 0)
    # A JVM cannot change its master.
    command = [sys.executable, __file__, "--repetitions", str(args.repetitions)]
    command += ["--seeds", str(args.seeds), "--master"]
    return max([subprocess.run([*command, master], check=False).returncode for master in MASTERS])


if __name__ == "__main__":
    sys.exit(main())
