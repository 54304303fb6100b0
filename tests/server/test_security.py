"""Real processes against those who may not come in: without the key, with another one, with what
was recorded on the way, and with bytes of any kind.
"""

from __future__ import annotations

import dataclasses
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import cloudpickle
import numpy as np
import pytest
import zmq

from sparkps.client.keys import forget, remember
from sparkps.client.shell import Client
from sparkps.client.table import Table
from sparkps.errors import KeyMissing, NotAdmitted, PSError
from sparkps.net.control import ControlLink
from sparkps.net.curve import Curve
from sparkps.net.endpoint import parse
from sparkps.net.rpc import Connection
from sparkps.net.sockets import new_context
from sparkps.routing.partitioner import owners_of
from sparkps.spec import ServerInfo
from sparkps.testing import LocalCluster
from sparkps.wire import messages as m
from sparkps.wire import userfn
from sparkps.wire.auth import Secret, new_ticket
from sparkps.wire.frames import decode_from_server, encode, encode_control
from tests.net import zmtp
from tests.net.relay import Relay

#: Bound of every wait here, in seconds.
LONG = 20.0
OTHER = Secret("e7" * 32)


class Cluster:
    """A cluster whose client keeps to tcp, a table, and what an attacker knows of it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        info = dataclasses.replace(cluster.info, tcp=True)
        tcp = info.coordinator.split(",")[-1]
        assert parse(tcp).scheme == "tcp"
        self.info = dataclasses.replace(info, coordinator=tcp)
        self.secret = cluster.launcher.secret
        if self.secret is not None:
            remember(tcp, self.secret)
        self.client = Client(self.info, "driver")
        self.table = Table(
            self.client, cluster.table("t", dim=100, dtype="float64", partitions=8).info
        )
        self.table.push(np.arange(100), np.ones(100))
        self.pids = cluster.pids()
        self.context = new_context()
        self.connections: list[Connection] = []

    @property
    def servers(self) -> tuple[ServerInfo, ...]:
        return self.client.core.view.servers

    @property
    def ports(self) -> dict[str, str]:
        """Every tcp port, by its name."""
        ports = {"coordinator": self.info.coordinator}
        for server in self.servers:
            ports |= {f"data {server.id}": server.tcp, f"control {server.id}": server.control}
        return {name: endpoint for name, endpoint in ports.items() if endpoint}

    def connect(self, endpoint: str, curve: Curve | None = None) -> Connection:
        self.connections.append(Connection(self.context, endpoint, curve))
        return self.connections[-1]

    def hello(self, key: Secret, server: ServerInfo, good_for: ServerInfo | None = None) -> Any:
        good_for = good_for or server
        ticket = new_ticket(
            key.derive("ticket"), b"me", good_for.id, good_for.incarnation, self.now
        )
        return encode(m.Hello(m.VERSION, b"me", server.id, server.incarnation, ticket))

    @property
    def now(self) -> float:
        """The coordinator's time: that of this machine."""
        return self.client._ahead + time.monotonic()

    def ask(self, connection: Connection, frames: Any) -> Any:
        connection.send(frames)
        answer = connection.receive(LONG * 1000)
        return None if answer is None else decode_from_server(answer)[0]

    def serves(self) -> None:
        """Every server answers its own, in a new connection too."""
        assert self.table.pull(np.arange(100)).tolist() == [1.0] * 100
        fresh = Client(dataclasses.replace(self.info, settings=(*self.info.settings,)), "reader")
        try:
            table = Table(fresh, self.table.info)
            assert table.pull(np.arange(100)).tolist() == [1.0] * 100
        finally:
            fresh.close()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.context.term()
        self.client.close()
        forget(self.info.coordinator)


def started(security: str) -> Iterator[Cluster]:
    with LocalCluster(servers=2, bind_host="127.0.0.1", security=security) as local:
        cluster = Cluster(local)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.fixture(scope="module")
def auth() -> Iterator[Cluster]:
    yield from started("auth")


@pytest.fixture(scope="module")
def encrypt() -> Iterator[Cluster]:
    yield from started("encrypt")


@pytest.fixture(scope="module")
def none() -> Iterator[Cluster]:
    yield from started("none")


@pytest.fixture(params=["auth", "encrypt", "none"])
def each(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


def doubled(part: Any, by: int) -> float:
    return float(part["value"].sum()) * by


cloudpickle.register_pickle_by_value(sys.modules[__name__])


# -- what is there ---------------------------------------------------------------------------------


def test_the_ports_are_those_that_the_setting_says(
    auth: Cluster, encrypt: Cluster, none: Cluster
) -> None:
    assert [(bool(s.tcp), bool(s.control)) for s in auth.servers] == [(True, True)] * 2
    assert [(bool(s.tcp), bool(s.control)) for s in encrypt.servers] == [(False, True)] * 2
    assert [(bool(s.tcp), bool(s.control)) for s in none.servers] == [(True, False)] * 2


def test_rows_and_functions_of_the_user_s_own_work_by_tcp(each: Cluster) -> None:
    each.table.push([3], [1.0])
    assert each.table.pull([3]).tolist() == [2.0]
    assert sum(each.table.reduce(doubled, 2)) == 2 * 101.0
    each.table.push([3], [-1.0])
    each.serves()


def test_a_function_goes_by_the_control_port_and_rows_follow_it(auth: Cluster) -> None:
    fresh = Client(auth.info, "driver")
    try:
        table = Table(fresh, auth.table.info)
        table.pull(np.arange(100))
        assert {c.endpoint for c in fresh._connections.values()} == {s.tcp for s in auth.servers}
        table.reduce(doubled, 1)
        assert {c.endpoint for c in fresh._connections.values()} == {
            s.control for s in auth.servers
        }
        assert table.pull([7]).tolist() == [1.0]
    finally:
        fresh.close()


# -- who may not come in ---------------------------------------------------------------------------


def test_without_the_key_no_client_begins(auth: Cluster) -> None:
    info = dataclasses.replace(
        auth.info, coordinator=auth.info.coordinator.replace("127.0.0.1", "127.1.0.1")
    )
    client = Client(info, "reader")
    with pytest.raises(KeyMissing, match="is not on this host"):
        client.status()
    client.close()


@pytest.mark.parametrize("which", ["auth", "encrypt"])
def test_beside_the_coordinator_it_needs_the_key_for_servers_elsewhere(
    which: str, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(which)
    local = cluster.cluster.info.coordinator.split(",")[0]
    # By other addresses, for which we have no key.
    client = Client(dataclasses.replace(cluster.info, coordinator=f"{local},tcp://a:1"), "reader")
    with pytest.raises(KeyMissing, match=r"\(and server 0 on .* asks for it\)"):
        client.status()
    client.close()


@pytest.mark.parametrize("which", ["auth", "encrypt"])
def test_with_another_application_s_key_no_client_begins(
    which: str, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(which)
    # The same coordinator by another name, for which we have another key.
    alias = cluster.info.coordinator.replace("127.0.0.1", "localhost")
    remember(alias, OTHER)
    client = Client(dataclasses.replace(cluster.info, coordinator=alias), "reader")
    try:
        with pytest.raises(ConnectionError, match="application with another key"):
            client.status()
    finally:
        client.close()
        forget(alias)
    cluster.serves()


def test_the_control_ports_hear_nobody_without_the_key(auth: Cluster, encrypt: Cluster) -> None:
    for cluster in (auth, encrypt):
        for name, endpoint in cluster.ports.items():
            if name.startswith("data"):
                continue
            for curve in (None, Curve(OTHER)):
                connection = cluster.connect(endpoint, curve)
                connection.send(encode(m.Ping(1)))
                assert connection.receive(LONG * 1000) is None
                assert "another key" in connection.lost, name


def test_a_ticket_of_another_key_or_for_another_server_is_refused(auth: Cluster) -> None:
    first, second = auth.servers
    assert auth.secret is not None
    for frames in (
        encode(m.Hello(m.VERSION, b"me", first.id, first.incarnation)),
        auth.hello(OTHER, first),
        auth.hello(auth.secret, first, good_for=second),
    ):
        connection = auth.connect(first.tcp)
        answer = auth.ask(connection, frames)
        assert (type(answer), answer.code) == (m.Refused, "NotAdmitted")
        assert connection.receive(LONG * 1000) is None
        assert connection.lost  # it is cut
    assert type(auth.ask(auth.connect(first.tcp), auth.hello(auth.secret, first))) is m.Welcome


def test_what_was_recorded_on_the_way_is_refused(auth: Cluster) -> None:
    assert auth.secret is not None
    server = auth.servers[0]
    with Relay(server.tcp) as relay:
        connection = auth.connect(relay.endpoint)
        assert type(auth.ask(connection, auth.hello(auth.secret, server))) is m.Welcome
        connection.close()
    thief = zmtp.admitted(server.tcp, relay.there[: zmtp.HANDSHAKE])
    thief.sendall(relay.there[zmtp.HANDSHAKE :])
    assert b"the ticket was used before" in zmtp.ended(thief)


def test_the_data_port_takes_no_function_even_from_its_own(auth: Cluster) -> None:
    assert auth.secret is not None
    server = auth.servers[0]
    connection = auth.connect(server.tcp)
    assert type(auth.ask(connection, auth.hello(auth.secret, server))) is m.Welcome
    info, view = auth.table.info, auth.client.core.view
    partition = owners_of(info.id, info.spec.partitions, view).tolist().index(server.id)
    slices = np.array([[partition, 0, 0, -1, -1, -1]], np.int64)
    function = m.Function(3, info.id, 0, 0, 0, 0, view.number, 0)
    answer = auth.ask(connection, encode(function, slices, userfn.dumps((doubled, (1,)))))
    assert answer.code == "FunctionRefused"
    control = auth.connect(server.control, Curve(auth.secret))
    assert type(auth.ask(control, auth.hello(auth.secret, server))) is m.Welcome
    answer = auth.ask(control, encode(function, slices, userfn.dumps((doubled, (1,)))))
    assert type(answer) is m.Results


def test_a_client_that_is_refused_says_so_in_time(auth: Cluster) -> None:
    class Forger(Client):
        def _ticket(self, info: ServerInfo) -> bytes:
            return bytes(56)

    client = Forger(auth.info, "reader")
    try:
        with pytest.raises(NotAdmitted, match=r"server \d does not admit this connection"):
            Table(client, auth.table.info).pull([1])
    finally:
        client.close()


def test_a_client_without_curve_does_not_join(encrypt: Cluster) -> None:
    join = m.Join(m.VERSION, "reader")
    with pytest.raises(PSError, match="another key"):
        ControlLink(encrypt.info.coordinator, join, print, print, timeout=LONG)


# -- bytes of any kind -----------------------------------------------------------------------------


def rss(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Attacker:
    """Sends what a seed says to a port."""

    def __init__(self, endpoint: str, seed: int, cluster: Cluster) -> None:
        self.endpoint = endpoint
        self.random = random.Random(seed)
        self.context = cluster.context
        server = cluster.servers[0]
        fields = (1, cluster.table.info.id, 0, 0, 0, 0, 1)
        self.models = [
            encode(m.Hello(m.VERSION, b"me", server.id, server.incarnation, bytes(56)))[0],
            encode(m.Pull(*fields))[0],
            encode(m.Push(*fields, seq=0))[0],
            encode(m.Function(*fields, seq=0))[0],
            encode(m.Scan(1, cluster.table.info.id, 1))[0],
            encode_control(m.Join(m.VERSION, "driver")),
            encode_control(m.ServerUp(m.VERSION, server)),
            encode_control(m.Gather(1, 10**9)),
            encode_control(m.Shutdown(1)),
            encode_control(m.Beat({"requests": 1e300})),
        ]

    def bytes(self) -> bytes:
        return self.random.randbytes(int(self.random.paretovariate(0.6)) % 3000)

    def like_a_message(self) -> bytes:
        """A real message, or its beginning, or one that was altered."""
        model = bytearray(self.random.choice(self.models))
        if self.random.random() < 0.3:
            del model[self.random.randrange(len(model)) :]
        for _ in range(self.random.choice([0, 0, 1, 3])):
            if model:
                model[self.random.randrange(len(model))] = self.random.randrange(256)
        return bytes(model)

    def frames(self) -> list[bytes]:
        count = self.random.choice([1, 1, 1, 2, 3, 20])
        head = self.like_a_message() if self.random.random() < 0.5 else self.bytes()
        return [head, *(self.bytes() for _ in range(count - 1))]

    def raw(self, strings: int) -> None:
        """Strings on connections of their own, of every kind of beginning."""
        for _ in range(strings):
            with socket.create_connection(self._address(), LONG) as stranger:
                begin = self.random.choice(
                    [
                        b"",
                        b"",
                        b"GET / HTTP/1.1\r\n",
                        zmtp.greeting(),
                        zmtp.greeting() + zmtp.READY,
                        zmtp.greeting(b"CURVE"),
                        zmtp.greeting(b"PLAIN"),
                        zmtp.greeting() + zmtp.head(2**62, command=True),
                        zmtp.greeting(b"CURVE") + zmtp.head(2**30, command=True),
                        zmtp.greeting() + zmtp.READY + zmtp.frame(self.like_a_message()),
                    ]
                )
                try:
                    stranger.sendall(begin + self.bytes())
                    if self.random.random() < 0.5:  # ends by a reset, instead of in order
                        linger = struct.pack("ii", 1, 0)
                        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                except ConnectionError:
                    pass

    def dealer(self, messages: int) -> None:
        """Messages that are well-formed for libzmq, some to a connection."""
        while messages > 0:
            end = self.context.socket(zmq.DEALER)
            end.set(zmq.RECONNECT_IVL, -1)
            end.set(zmq.LINGER, 50)
            end.set(zmq.SNDHWM, 0)
            end.connect(self.endpoint)
            for _ in range(min(messages, 50)):
                messages -= 1
                try:
                    end.send_multipart(self.frames(), zmq.NOBLOCK)
                except zmq.Again:  # it was cut
                    break
            end.close()

    def admitted(self, strings: int) -> None:
        """Strings after a handshake that libzmq itself would make, on a data port."""
        for _ in range(strings):
            try:
                with zmtp.admitted(self.endpoint) as stranger:
                    begin = self.random.choice(
                        [b"", zmtp.frame(self.like_a_message()), zmtp.head(2**62), zmtp.head(2**20)]
                    )
                    stranger.sendall(begin + self.bytes())
            except ConnectionError:
                pass

    def half_open(self, count: int) -> list[socket.socket]:
        """Connections that say nothing, or not all of it."""
        begins = [b"", b"\xff", zmtp.greeting(), zmtp.greeting(b"CURVE")]
        opened = []
        for number in range(count):
            stranger = socket.create_connection(self._address(), LONG)
            stranger.sendall(begins[number % len(begins)])
            opened.append(stranger)
        return opened

    def _address(self) -> tuple[str, int]:
        where = parse(self.endpoint)
        return where.host, where.port


def attack(cluster: Cluster, seed: int, strings: int) -> None:
    """So many random strings to each port, with half-open connections beside them."""
    with ExitStack() as held:
        for number, (name, endpoint) in enumerate(cluster.ports.items()):
            attacker = Attacker(endpoint, 1000 * seed + number, cluster)
            for stranger in attacker.half_open(20):
                held.enter_context(stranger)
            few = strings // 16
            for _ in range(4):
                attacker.raw(few)
                if name.startswith("data"):
                    attacker.admitted(few // 4)
                attacker.dealer(strings // 4 - few)
                cluster.serves()


def settled(cluster: Cluster, name: str, expected: int) -> int:
    """The descriptors of a process, once they are no more than expected (connections that were
    ended are closed a moment later).
    """
    client = cluster.client
    for _ in range(2000):
        found = descriptors(cluster.pids[name])
        if found <= expected:
            break
        client.status()
    return found


@pytest.mark.parametrize("security", ["auth", "encrypt"])
def test_ten_thousand_random_strings_to_each_port_change_nothing(
    security: str, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(security)
    strings = 10_000 if security == "auth" else 1_000
    attack(cluster, 0, strings // 5)  # after which every buffer is there that will be
    cluster.serves()
    memory = {name: rss(pid) for name, pid in cluster.pids.items()}
    open_before = {name: descriptors(pid) for name, pid in cluster.pids.items()}
    attack(cluster, 1, strings)
    cluster.serves()
    assert cluster.cluster.pids() == cluster.pids
    for name, pid in cluster.pids.items():
        assert settled(cluster, name, open_before[name] + 2) <= open_before[name] + 2
        assert rss(pid) - memory[name] < 8, name
        log = cluster.cluster.launcher.log(name)
        assert os.path.getsize(log) < 100_000
        with open(log) as file:
            assert "Traceback" not in file.read()
    status = cluster.client.status()
    assert (status["servers_up"], len(status["tables"])) == (2, 1)


def test_a_message_without_end_takes_no_memory(auth: Cluster) -> None:
    server = auth.servers[0]
    pid = auth.pids[f"server {server.id}"]
    before = rss(pid)
    for _ in range(2):
        stranger = zmtp.admitted(server.tcp)
        stranger.settimeout(1.0)  # what is cut may look like a peer that does not read any more
        part = zmtp.frame(bytes(4000), more=True) * 16
        try:
            sent = zmtp.pour(stranger, part, 2**32)
        except TimeoutError:
            sent = 0
        stranger.close()
        assert sent < 2**32
        auth.serves()
    assert rss(pid) - before < 512


def test_who_asks_without_end_and_reads_nothing_is_cut(auth: Cluster) -> None:
    server = auth.servers[0]
    pid = auth.pids[f"server {server.id}"]
    before = rss(pid)
    stranger = zmtp.admitted(server.tcp)
    zmtp.pour(stranger, zmtp.frame(encode(m.Ping(1))[0]) * 500, 2**34)
    stranger.close()
    auth.serves()
    assert rss(pid) - before < 16
