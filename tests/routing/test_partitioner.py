"""Groups, bounds and the order of partitions."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.errors import MalformedRequest
from sparkps.kernels.keys import partition_of
from sparkps.routing.partitioner import Routes, dense_bounds, group_of, owners_of
from sparkps.routing.placement import make_view
from sparkps.spec import GROUPS, ServerInfo, View


def view_of(servers: int) -> View:
    return make_view(1, [ServerInfo(i, 1, f"ipc:///s{i}") for i in range(servers)])


@pytest.mark.parametrize("partitions", [1, 7, 64, 100, 4096])
def test_every_partition_has_a_group_and_neighbours_share_one(partitions: int) -> None:
    groups = group_of(5, partitions)
    assert groups.min() >= 0
    assert groups.max() < GROUPS
    assert len(np.unique(groups)) == min(partitions, GROUPS)
    assert (np.diff((groups - 5) % GROUPS) >= 0).all()


def test_tables_of_one_partition_begin_on_different_groups() -> None:
    assert [group_of(table, 1)[0] for table in (1, 2, 65)] == [1, 2, 1]


@pytest.mark.parametrize("dim", [64, 65, 1000, 2**40 + 1, 2**62 - 1])
def test_dense_bounds_are_those_of_the_kernel(dim: int) -> None:
    bounds = dense_bounds(64, dim)
    first, last = bounds[:-1], bounds[1:] - 1
    assert (partition_of(first, 64, dim) == np.arange(64)).all()
    assert (partition_of(last, 64, dim) == np.arange(64)).all()


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_routes_name_each_server_s_partitions_together(servers: int) -> None:
    view = view_of(servers)
    routes = Routes(3, 64, view)
    assert routes.servers == tuple(range(servers))
    assert (routes.partitions[routes.slot] == np.arange(64)).all()
    for i, server in enumerate(routes.servers):
        mine = routes.partitions[routes.bounds[i] : routes.bounds[i + 1]]
        assert (routes.owners[mine] == server).all()
        assert (np.diff(mine) > 0).all()
    assert (routes.owners == owners_of(3, 64, view)).all()


def test_counts_are_summed_per_server() -> None:
    routes = Routes(3, 64, view_of(3))
    counts = np.arange(64)
    assert sum(routes.per_server(counts)) == counts.sum()
    assert routes.per_server(counts)[0] == counts[: routes.bounds[1]].sum()


def test_a_server_without_partitions_is_in_no_request() -> None:
    view = view_of(5)
    assert Routes(1, 1, view).servers == (view.owners[1],)


def test_a_view_without_owners_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="view 0 has no owners yet"):
        Routes(1, 64, View(number=0))
