"""The image of this checkout, and a cluster of it. A missing Docker engine fails, does not skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.compose import FILE, ROOT, Project, compose_command, run

#: Seconds to make the base image and the image on an empty cache.
BUILD = 1200.0

IMAGE = "sparkps-tests"


def base_image() -> str:
    """SPARKPS_BASE if that is set; or made from Debian's packages where that can be; or pulled."""
    chosen = os.environ.get("SPARKPS_BASE")  # noqa: TID251
    if chosen:
        return chosen
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return "debian:bookworm-slim"
    run(str(ROOT / "docker/base.sh"), "sparkps-base:bookworm", timeout=BUILD)
    return "sparkps-base:bookworm"


@pytest.fixture(scope="session")
def image() -> str:
    """The id of an image of this checkout (other checkouts have the same name for theirs)."""
    run("docker", "info")
    run(
        *compose_command(), "-f", str(FILE), "build", "master",
        timeout=BUILD, more={"SPARKPS_IMAGE": IMAGE, "SPARKPS_BASE": base_image()},
    )  # fmt: skip
    return run("docker", "image", "inspect", "-f", "{{.Id}}", IMAGE).strip()


@pytest.fixture(scope="session")
def project(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A master and two workers; whatever happens, they are taken down."""
    data = tmp_path_factory.mktemp("data")
    for path in (data, *data.parents[:2]):
        path.chmod(0o777)  # the containers' user is another
    project = Project(f"sparkps-tests-{os.getpid()}", image, data)
    try:
        project.up(workers=2)
        yield project
    finally:
        project.down()


@pytest.fixture
def two_workers(project: Project) -> Project:
    """The cluster with exactly two workers, whatever a test before has done to them."""
    project.up(workers=2)
    return project


@pytest.fixture
def data(project: Project) -> Path:
    """The containers' data folder."""
    return project.data
