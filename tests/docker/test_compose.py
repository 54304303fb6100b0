"""Training on a compose cluster, and what happens when a worker's container dies or a stranger
knocks.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.docker.compose import PATIENCE, Project, run, until

#: Building comes before the first test; every wait in it is bounded.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(6 * PATIENCE)]

JOBS = Path(__file__).with_name("jobs")

A9A = [
    "jobs/logistic_regression.py",
    "--train", "jobs/data/a9a/a9a_train.libsvm.gz",
    "--test", "jobs/data/a9a/a9a_test01.libsvm.gz",
    "--workers", "2",
]  # fmt: skip

#: Of `make demo`, in local mode: bsp's bits are the same wherever the servers are.
SCORES = "test logloss 0.3251  AUC 0.9017  accuracy 0.8491"

#: How it ends for somebody without the key; what CURVE does not let in is not told more.
REFUSED = re.compile(
    "KeyMissing|CoordinatorUnreachable: the other side ended the handshake: .*|Refused|silence"
)

#: Enough epochs to be in the middle of them when something happens.
MANY = ["--epochs", "2000"]


def test_trains_on_servers_beside_the_executors(two_workers: Project) -> None:
    job = two_workers.submit(*A9A, "--model", "data/a9a.model")
    workers = two_workers.containers("worker")
    until(
        lambda: job.running() and all(len(two_workers.servers(worker)) == 1 for worker in workers),
        "one server in each worker's container",
    )
    assert job.wait() == 0, job.output
    assert SCORES in job.output
    assert [two_workers.servers(worker) for worker in workers] == [[], []]
    assert (two_workers.data / "a9a.model/metadata").is_dir()


def test_a_workers_container_is_killed_in_training(two_workers: Project) -> None:
    job = two_workers.submit(*A9A, *MANY)
    # The application's page, through the port that the master publishes, says so.
    until(lambda: job.running() and two_workers.training_for(3.0), "three seconds of training")
    run("docker", "kill", two_workers.containers("worker")[0])
    status = job.wait()
    if status == 0:
        assert re.search("test logloss 0.32", job.output), job.output
    else:
        assert re.search(r"^error: server \d+ is lost", job.output, re.MULTILINE), job.output


def test_trains_after_a_worker_was_added(two_workers: Project) -> None:
    two_workers.up(workers=3)
    job = two_workers.submit(*A9A)
    workers = two_workers.containers("worker")
    assert len(workers) == 3
    until(
        lambda: job.running() and all(two_workers.servers(worker) for worker in workers),
        "a server in each of three containers",
    )
    assert job.wait() == 0, job.output
    assert SCORES in job.output


def test_a_container_without_the_key_is_refused(two_workers: Project, data: Path) -> None:
    for name in ("hold.py", "intrude.py", "ports.py"):
        shutil.copy(JOBS / name, data)
    job = two_workers.submit("data/hold.py")
    until(lambda: job.running() and (data / "handle").exists(), "a table on the servers")
    addresses = [
        f"{address(worker)}:{port}"
        for worker in two_workers.containers("worker")
        for port in run("docker", "exec", worker, "python", "data/ports.py").split()
    ]
    assert len(addresses) == 4, addresses  # each server has one for data and one for control
    found = json.loads(
        run(
            "docker", "run", "--rm", f"--network={two_workers.network}",
            f"--volume={data}:/home/sparkps/data", two_workers.image,
            "python", "data/intrude.py", *addresses,
        ).splitlines()[-1]
    )  # fmt: skip
    (data / "release").touch()
    assert job.wait() == 0, job.output
    assert f"rows {[1.0] * 64}" in job.output
    assert {name: how for name, how in found.items() if not REFUSED.fullmatch(how)} == {}
    assert len(found) == 6 + 8 * len(addresses)
    assert not (data / "intruded").exists()


def test_no_worker_is_said_at_once(project: Project) -> None:
    for worker in project.containers("worker"):
        run("docker", "stop", worker)
    job = project.submit(*A9A)
    assert job.wait() == 1
    assert "no worker runs" in job.output


def test_the_image_runs_as_a_user_and_holds_no_setting_of_pip(image: str) -> None:
    assert run("docker", "run", "--rm", image, "id", "-u").strip() == "1000"
    history = run("docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    assert "PIP_" not in history


def address(container: str) -> str:
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return run("docker", "inspect", "-f", form, container).strip()
