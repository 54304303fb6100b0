"""``python -m sparkps cluster``, and contexts that connect to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkps import PSContext
from sparkps.client.keys import remember
from sparkps.client.shell import Client, ClientInfo
from sparkps.client.table import Table
from sparkps.errors import CoordinatorLost, KeyMissing
from sparkps.spec import TableSpec
from sparkps.wire.auth import Secret

PATIENCE = 60.0


class Cluster:
    """The command, running."""

    def __init__(self, directory: Path) -> None:
        self.key_file = directory / "key"
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "sparkps", "cluster", "--servers", "2",
                "--key-file", str(self.key_file), "--conf", "spark.sparkps.server.memory=64m",
            ],
            stdout=subprocess.PIPE, text=True, cwd=directory,
            env={**os.environ, "TMPDIR": str(directory)},  # noqa: TID251
        )  # fmt: skip
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert told["key_file"] == str(self.key_file)
        self.address: str = told["coordinator"]
        self.directory = directory

    def client(self, key: Secret) -> Client:
        """A client of another process, as far as it can tell."""
        remember(self.address, key)
        return Client(ClientInfo(self.address), "driver")

    def end(self, number: int) -> int:
        self.process.send_signal(number)  # nothing is sent to one that has ended
        status = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    try:
        yield started
    finally:
        started.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end_and_leaves_nothing(
    cluster: Cluster, number: int
) -> None:
    assert cluster.key_file.stat().st_mode & 0o777 == 0o600
    client = cluster.client(Secret(cluster.key_file.read_text().strip()))
    table = Table(client, client.create_table(TableSpec("t", dtype="int64")))
    table.push([1, 2], [3, 4])
    assert table.pull([1, 2, 3]).tolist() == [3, 4, 0]
    client.close()
    assert cluster.end(number) == 0
    assert sorted(path.name for path in cluster.directory.iterdir()) == ["key"]


def test_without_security_it_warns_where_others_can_reach_it(tmp_path: Path) -> None:
    for host, warns in (("0.0.0.0", True), ("127.0.0.1", False)):
        command = [sys.executable, "-m", "sparkps", "cluster", "--servers", "1", "--host", host]
        with subprocess.Popen(
            [*command, "--conf", "spark.sparkps.security=none"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["key_file"] is None
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 0
        assert ("run functions on this host" in told) is warns


def test_another_key_is_refused(cluster: Cluster) -> None:
    client = cluster.client(Secret.new())
    with pytest.raises(CoordinatorLost, match="with another key"):
        client.status()
    client.close()


def test_it_ends_with_an_error_when_a_server_ends(cluster: Cluster) -> None:
    client = cluster.client(Secret(cluster.key_file.read_text().strip()))
    os.kill(client.status()["servers"][0]["pid"], signal.SIGKILL)
    assert cluster.process.wait(PATIENCE) == 1
    client.close()


@pytest.mark.spark
def test_spark_trains_on_it_and_its_tables_outlive_the_context(
    spark: SparkSession, cluster: Cluster
) -> None:
    def step(worker: Any, batch: Any) -> dict[str, int]:
        worker.table("kept").push([worker.rank], [batch.num_rows])
        return {"rows": batch.num_rows}

    with pytest.raises(KeyMissing, match=r"spark\.sparkps\.key\.file"):
        PSContext.connect(cluster.address, spark)
    key = str(cluster.key_file)
    with PSContext.connect(cluster.address, spark, key_file=key, progress=False) as ps:
        ps.table("kept", dim=8, dtype="int64")
        assert ps.run(spark.range(0, 400, 1, 2), step, workers=2)[0]["rows"] == 400
        assert sum(ps.table("kept").reduce(lambda part: int(part["value"].sum()))) == 400
    with PSContext.connect(cluster.address, spark, key_file=key, progress=False) as ps:
        assert ps.table("kept").pull([0, 1]).sum() == 400
