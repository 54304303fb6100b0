"""The client of a process: threads, lost servers, silent servers, forks, the end."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sparkps.client.shell import ClientInfo, client_for
from sparkps.client.table import Table
from sparkps.errors import ContextStopped, CoordinatorLost, RequestTimeout, ServerLost, WrongType
from sparkps.spec import SessionSpec, TableInfo, TableSpec
from sparkps.testing.cluster import LocalCluster


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(servers=2) as cluster:
        yield cluster


def test_many_threads_share_one_client(cluster: LocalCluster) -> None:
    table = cluster.table("t", dtype="int64")
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            keyset = table.keyset(np.arange(number, 100 + number))
            for _ in range(30):
                pending = table.pull([number], wait=False)
                table.push(np.arange(100), 1)
                keyset.push(1)
                keyset.pull()
                pending.wait()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert table.pull([50, 0, 102]).tolist() == [240, 150, 30]


def test_a_silent_server_is_named_and_what_it_was_sent_is_applied_once() -> None:
    with LocalCluster(servers=2, request_timeout="500ms") as cluster:
        table = cluster.table("t", dtype="int64")
        keys = np.arange(100)
        table.push(keys, 1)
        cluster.stop(1)
        with pytest.raises(
            RequestTimeout, match=r"no answer from server 1 for 0.5 s.*server-1.log"
        ):
            table.push(keys, 1)
        with pytest.raises(RequestTimeout, match="in a pull of 100 keys of table 't'"):
            table.pull(keys)
        cluster.cont(1)
        table.push(keys, 1)
        assert (table.pull(keys) == 3).all()


def test_a_lost_server_is_told_with_its_end_and_new_tables_go_on(cluster: LocalCluster) -> None:
    table = cluster.table("t", dtype="int64")
    keys = np.arange(100)
    table.push(keys, 1)
    pending = table.pull(keys, wait=False)
    pending.wait()
    cluster.kill(1)
    for _ in range(2):
        with pytest.raises(
            ServerLost,
            match=r"(?s)server 1 is lost \(killed by signal 9.*tables t, .*server 1 is up",
        ):
            table.pull(keys)
    with pytest.raises(ServerLost):
        cluster.table("t", dtype="int64")
    table = cluster.table("t", dtype="int64", replace=True)
    table.push(keys, 2)
    assert (table.pull(keys) == 2).all()


def test_the_only_server_lost_is_named_at_once() -> None:
    with LocalCluster(servers=1) as cluster:
        table = cluster.table("t")
        table.push([1], [1.0])
        cluster.kill(0)
        for call in (lambda: table.pull([1]), lambda: table.push([1], [1.0])):
            with pytest.raises(ServerLost, match="server 0 is lost"):
                call()


class Unpicklable:
    """Cannot be unpickled anywhere."""

    def __reduce__(self) -> Any:
        return (dict.__getitem__, ({}, "nothing"))


def test_a_result_that_cannot_be_unpickled_harms_nothing_else(cluster: LocalCluster) -> None:
    table = cluster.table("odd results", dim=10)
    with pytest.raises(WrongType, match=r"the result of the function.*KeyError"):
        table.reduce(lambda part: Unpicklable())
    assert table.collect()[0].tolist() == list(range(10))


def test_a_lost_coordinator_ends_everything(cluster: LocalCluster) -> None:
    table = cluster.table("t")
    table.pull([1])
    link = cluster.client().link()
    cluster.kill("coordinator")
    with pytest.raises(CoordinatorLost, match="the connection was closed"):
        cluster.client().tables()
    link.close()  # returns when its thread has told everyone
    with pytest.raises(CoordinatorLost, match="the connection was closed"):
        table.pull([1])


def test_a_closed_client_says_so_and_the_next_one_is_another(cluster: LocalCluster) -> None:
    table = cluster.table("t")
    client = cluster.client()
    assert client_for(cluster.info) is client
    client.close()
    client.close()
    for call in (lambda: table.pull([1]), client.tables):
        with pytest.raises(ContextStopped, match="it was closed"):
            call()
    assert client_for(cluster.info, "driver") is not client
    assert cluster.client().find_table("t") == table.info


def test_a_forked_process_has_a_client_of_its_own(cluster: LocalCluster) -> None:
    table = cluster.table("t", dtype="int64")
    table.push([1], [5])
    mine, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a child that only does this is safe
        child = os.fork()
    if child == 0:
        try:
            os.write(theirs, str((table.pull([1]).tolist(), table._access.client.role)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    assert os.read(mine, 100) == b"([5], 'reader')"
    os.close(mine)
    assert table.pull([1]).tolist() == [5]


def test_the_driver_acts_in_a_run_only_where_it_says_so(cluster: LocalCluster) -> None:
    client = cluster.client()
    outside = client.seat()
    number, token = client.open_session(SessionSpec(0, 3, "bsp"))
    spec = SessionSpec(number, 3, "bsp")
    with client.in_run(spec, token, 4):
        seat = client.seat()
        assert (seat.session, seat.rank, seat.clock, seat.bsp) == (number, 3, 4, True)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(client.seat()))
        thread.start()
        thread.join()
        assert found == [outside]
    assert client.seat() is outside
    with client.in_run(spec, token, 8):
        assert client.seat() is seat
        assert seat.clock == 8
    client.close_session(number)


def test_nobody_listens_where_there_is_no_cluster(tmp_path: Any) -> None:
    client = client_for(ClientInfo(f"ipc://{tmp_path}/c"))
    try:
        with pytest.raises(CoordinatorLost):
            Table(client, TableInfo(1, TableSpec("t"))).pull([1])
    finally:
        client.close()
