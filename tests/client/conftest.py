"""One real cluster of two servers for the tests of handles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from sparkps.client.table import Table
from sparkps.testing.cluster import LocalCluster

_names = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(servers=2) as cluster:
        yield cluster


@pytest.fixture
def create(cluster: LocalCluster) -> Iterator[Callable[..., Table]]:
    """Make a table with a name of its own; it is dropped after the test."""
    made: list[Table] = []

    def create(**spec: Any) -> Table:
        made.append(cluster.table(f"t{next(_names)}", **spec))
        return made[-1]

    yield create
    for table in made:
        table.drop()
