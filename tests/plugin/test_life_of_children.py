"""Children of the plugin: what they are told, how they end, who is told of it.

The children are fakes that follow the contract; the driver is plain Spark.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkps.plugin import ADDRESS_KEY, SECRET_KEY
from tests.plugin.application import Application, until
from tests.spark.processes import gone, none_left

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Two executors with a server each. Tests leave two servers behind."""
    directory = tmp_path_factory.mktemp("cluster")
    conf = json.dumps({"spark.executor.memoryOverheadFactor": "0.2"})
    with Application(
        directory, "local-cluster[2,1,1024]", heartbeat='"2"\\', conf=conf
    ) as application:
        assert application.answer() == "ready"
        until("two servers", lambda: len(application.living()) == 2)
        yield application


def test_servers_are_children_of_the_executors_and_know_the_coordinator(
    cluster: Application,
) -> None:
    (coordinator,) = cluster.children("coordinator")
    servers = cluster.living()
    assert len({server["parent"] for server in servers} | {coordinator["parent"]}) == 3
    assert {server["first"]["executor"] for server in servers} == {"0", "1"}
    assert {server["first"]["server"] for server in servers} == {0, 1}
    for server in servers:
        first = server["first"]
        assert json.loads(first["coordinator"])["quote"] == 'a "b" \\ ü'
        assert first["secret"] == coordinator["first"]["secret"]
        assert (first["incarnation"], first["per_executor"]) == (1, 1)
        assert first["spark"]["spark.master"] == "local-cluster[2,1,1024]"
        assert first["spark"]["spark.executor.memoryOverheadFactor"] == "0.2"
        assert first["host"].count(".") == 3
        assert first["conf"]["spark.sparkps.heartbeat"] == '"2"\\'
        assert server["log"] == first["log"]
        assert stat.S_IMODE(Path(first["log"]).stat().st_mode) == 0o600
    assert len(coordinator["first"]["secret"]) == 64
    assert (coordinator["first"]["servers"], coordinator["first"]["figures"]) == (0, True)


def test_the_driver_and_the_tasks_find_the_coordinator(cluster: Application) -> None:
    conf = cluster.ask("conf")
    expected = {"coordinator": conf[ADDRESS_KEY], "secret": conf[SECRET_KEY]}
    assert expected["secret"] == cluster.children("coordinator")[0]["first"]["secret"]
    for text, mode in cluster.ask("endpoints"):
        assert json.loads(text) == expected
        assert mode == 0o600


def test_no_secret_is_in_the_environment_or_the_arguments_of_a_child(cluster: Application) -> None:
    for child in cluster.children("coordinator") + cluster.children("server"):
        seen = child["environment"] + child["arguments"]
        assert child["first"]["secret"] not in " ".join(seen)
        names = [entry.partition("=")[0] for entry in child["environment"]]
        assert not [name for name in names if "SECRET" in name or "GATEWAY" in name]
        assert "OMP_NUM_THREADS=1" in child["environment"]
        assert child["safe_path"]


def test_the_last_figures_are_gauges_of_the_driver(cluster: Application) -> None:
    assert cluster.ask("gauges") == {
        "servers": 2.0,
        "partitions": 6.0,
        "rows": 70.0,
        "bytes": 1.5e9,
        "requestsPerSecond": 8.5,
        "slowestClock": 0.0,
    }


def test_a_killed_server_is_certified_and_another_takes_its_place(cluster: Application) -> None:
    killed, other = cluster.living()
    os.kill(killed["pid"], signal.SIGKILL)
    number = killed["first"]["server"]
    ((server, incarnation, status, tail),) = until(
        "the certificate",
        lambda: [event for event in cluster.events("exited") if event[0] == number],
    )
    assert (server, incarnation, status) == (number, 1, "killed by signal 9, SIGKILL")
    assert tail == f"  server {killed['pid']} begins"
    until("another server", lambda: len(cluster.living()) == 2)
    (new,) = [server for server in cluster.living() if server["pid"] != other["pid"]]
    assert new["first"]["server"] not in {number, other["first"]["server"]}
    assert new["parent"] == killed["parent"]


def test_with_a_killed_executor_goes_its_server_and_the_next_one_brings_its_own(
    cluster: Application,
) -> None:
    server, other = cluster.living()
    os.kill(server["parent"], signal.SIGKILL)
    assert gone(server["pid"], within=5)
    until("another server", lambda: len(cluster.living()) == 2)
    (new,) = [server for server in cluster.living() if server["pid"] != other["pid"]]
    assert new["first"]["executor"] == "2"


def test_a_cluster_that_ends_leaves_nothing(cluster: Application) -> None:
    assert cluster.end() == 0
    assert none_left(cluster.process.pid) == []
    assert cluster.events("shutdown") == [True]
    assert [path.name for path in cluster.temporary.glob("sparkps-*")] == []


def test_in_local_mode_one_jvm_has_both(tmp_path: Path) -> None:
    with Application(
        tmp_path, "local[2]", servers_perExecutor="2", log_dir=str(tmp_path / "logs")
    ) as application:
        assert application.answer() == "ready"
        (coordinator,) = application.children("coordinator")
        servers = application.living()
        assert {server["parent"] for server in servers} == {coordinator["parent"]}
        assert {server["first"]["executor"] for server in servers} == {"driver"}
        assert len({server["first"]["log"] for server in servers}) == 2
        assert len(application.ask("endpoints")) == 4

        # One that was told to leave is no death; one that dies is replaced.
        told, killed = servers
        os.kill(told["pid"], signal.SIGUSR2)
        assert gone(told["pid"], within=5)
        os.kill(killed["pid"], signal.SIGKILL)
        ((number, *_),) = until("the certificate", lambda: application.events("exited"))
        assert number == killed["first"]["server"]
        (new,) = until("another server", lambda: application.living())

        os.kill(coordinator["parent"], signal.SIGKILL)
        for child in [coordinator, new]:
            assert gone(child["pid"], within=5)
        application.process.kill()
        assert none_left(application.process.pid) == []
        assert len(list((tmp_path / "logs").iterdir())) == 4
        assert [path.name for path in application.temporary.glob("sparkps-*")] == []


def test_without_a_coordinator_no_server_takes_a_place(tmp_path: Path) -> None:
    with Application(tmp_path, "local[1]") as application:
        assert application.answer() == "ready"
        (coordinator,), (server,) = application.children("coordinator"), application.living()
        os.kill(coordinator["pid"], signal.SIGKILL)
        until("its death", lambda: "the coordinator is lost" in application.errors.read_text())
        os.kill(server["pid"], signal.SIGKILL)
        empty = "no server takes the empty place"
        until("the empty place", lambda: empty in application.errors.read_text())
        assert application.living() == []
        assert application.end() == 0
        assert [path.name for path in application.temporary.glob("sparkps-*")] == []


def test_the_end_of_a_driver_that_stops_nothing_is_orderly_too(tmp_path: Path) -> None:
    with Application(tmp_path, "local[1]") as application:
        assert application.answer() == "ready"
        application.process.send_signal(signal.SIGTERM)
        application.process.communicate()
        assert none_left(application.process.pid) == []
        assert application.events("shutdown") == [True]
        assert [path.name for path in application.temporary.glob("sparkps-*")] == []
