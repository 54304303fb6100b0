"""Public reports of ports and interfaces: B27, B29, B31."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from sparkps.client.keys import forget, remember
from sparkps.client.shell import Client
from sparkps.client.table import Table
from sparkps.errors import LaunchFailed
from sparkps.net.endpoint import parse
from sparkps.testing import LocalCluster

#: Seconds within which a start that cannot succeed has to say so.
SOON = 15.0


def free_ports(count: int, host: str = "127.0.0.1") -> int:
    """The first of so many free ports in a row, below those that the system gives away itself."""
    first = 25_000 + os.getpid() % 5_000
    while True:
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server((host, port)))
            except OSError:
                first += count
                continue
        return first


def tcp_addresses(cluster: LocalCluster) -> list[str]:
    """Every tcp address of a cluster."""
    cluster.table("t", dim=10).pull([0])
    found = cluster.info.coordinator.split(",")
    for server in cluster.client().core.view.servers:
        found += [server.tcp, server.control]
    return [text for text in found if text and parse(text).scheme == "tcp"]


def far(cluster: LocalCluster) -> Iterator[Client]:
    """A client that knows no local socket, as on another host."""
    address = cluster.info.coordinator.split(",")[-1]
    assert cluster.launcher.secret is not None
    remember(address, cluster.launcher.secret)
    client = Client(replace(cluster.info, coordinator=address, tcp=True), "driver")
    try:
        yield client
    finally:
        client.close()
        forget(address)


def increment(worker: object, batch: list[int]) -> None:
    """A step that counts its keys."""
    table = worker.table("counts")  # type: ignore[attr-defined]
    table.push(np.array(batch), np.ones(len(batch), np.int64))


# -- B27: the chosen port is in use ----------------------------------------------------------------


def test_b27_a_configured_port_in_use_is_an_error_that_names_host_and_port() -> None:
    port = free_ports(1)
    began = time.monotonic()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(LaunchFailed) as error,
        LocalCluster(servers=1, bind_host="127.0.0.1", ports=str(port)),
    ):
        pass
    assert time.monotonic() - began < SOON
    assert f"no port of {port}-{port} is free on 127.0.0.1" in str(error.value)
    assert "Widen spark.sparkps.ports, or unset it" in str(error.value)


def test_b27_two_servers_with_one_fixed_port_are_an_error_too() -> None:
    port = free_ports(1)
    began = time.monotonic()
    with (
        pytest.raises(LaunchFailed) as error,
        LocalCluster(servers=2, bind_host="127.0.0.1", ports=str(port)),
    ):
        pass
    assert time.monotonic() - began < SOON
    assert f"no port of {port}-{port} is free on 127.0.0.1" in str(error.value)


def test_b27_a_port_left_in_time_wait_is_taken() -> None:
    first = free_ports(3)
    for _ in range(2):  # the second finds what the first has left
        with LocalCluster(servers=1, bind_host="127.0.0.1", ports=f"{first}-{first + 2}") as local:
            for client in far(local):
                Table(client, local.table("t", dim=10).info).pull([1])


def test_b27_any_free_port_collides_with_none() -> None:
    with (
        LocalCluster(servers=2, bind_host="127.0.0.1") as one,
        LocalCluster(servers=2, bind_host="127.0.0.1") as other,
    ):
        addresses = tcp_addresses(one) + tcp_addresses(other)
    assert len(set(addresses)) == 10


# -- B29: several interfaces, IPv6 -----------------------------------------------------------------


def test_b29_a_cluster_on_ipv6_trains_and_answers() -> None:
    with LocalCluster(servers=2, bind_host="::1") as cluster:
        assert all(parse(text).host == "::1" for text in tcp_addresses(cluster))
        cluster.table("counts", dtype="int64")
        cluster.run_workers(increment, [[[1, 2], [2]], [[2, 3]]])
        for client in far(cluster):
            table = Table(client, cluster.table("counts", dtype="int64").info)
            assert table.pull([1, 2, 3]).tolist() == [1, 3, 1]
            assert sum(table.reduce(lambda part: float(part["value"].sum()))) == 5.0


def test_b29_only_the_chosen_interface_is_listened_on() -> None:
    with LocalCluster(servers=1, bind_host="127.0.0.2") as cluster:
        for text in tcp_addresses(cluster):
            where = parse(text)
            assert where.host == "127.0.0.2"
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", where.port)) != 0


def test_b29_what_is_told_is_what_the_setting_says_and_is_what_others_use() -> None:
    with LocalCluster(servers=1, bind_host="0.0.0.0", advertise_host="localhost") as cluster:
        assert {parse(text).host for text in tcp_addresses(cluster)} == {"localhost"}
        for client in far(cluster):
            assert Table(client, cluster.table("t", dim=10).info).pull([1]).tolist() == [0.0]


def test_b29_an_address_of_no_interface_is_an_error_that_names_it() -> None:
    with (
        pytest.raises(LaunchFailed, match=r"192\.0\.2\.77"),
        LocalCluster(servers=1, bind_host="192.0.2.77"),
    ):
        pass


# -- B31: a range of ports -------------------------------------------------------------------------


def test_b31_every_listener_is_in_the_range() -> None:
    first = free_ports(5)
    ports = f"{first}-{first + 4}"
    with LocalCluster(servers=2, bind_host="127.0.0.1", ports=ports) as cluster:
        found = sorted(parse(text).port for text in tcp_addresses(cluster))
        assert found == list(range(first, first + 5))
        for client in far(cluster):
            Table(client, cluster.table("t", dim=10).info).pull([1])


def test_b31_a_range_that_is_too_small_is_an_error_and_no_hang() -> None:
    first = free_ports(5)
    began = time.monotonic()
    with (
        pytest.raises(LaunchFailed) as error,
        LocalCluster(servers=5, bind_host="127.0.0.1", ports=f"{first}-{first + 4}"),
    ):
        pass
    assert time.monotonic() - began < SOON
    assert (
        f"no port of {first}-{first + 4} is free on 127.0.0.1; 2 are needed for each server on a "
        "host and 1 for the coordinator"
    ) in str(error.value)


def test_b31_without_security_three_ports_do_for_two_servers() -> None:
    first = free_ports(3)
    ports = f"{first}-{first + 2}"
    with LocalCluster(servers=2, bind_host="127.0.0.1", ports=ports, security="none") as cluster:
        found = sorted(parse(text).port for text in tcp_addresses(cluster))
        assert found == list(range(first, first + 3))
