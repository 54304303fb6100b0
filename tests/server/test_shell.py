"""The real process: its sockets, its leash, its snapshot child. The test is its coordinator."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

from sparkps.config import Settings
from sparkps.net.curve import Curve
from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.net.endpoint import ipc
from sparkps.net.rpc import Connection
from sparkps.net.serve import Router
from sparkps.net.sockets import new_context
from sparkps.optim import SGD
from sparkps.spec import GROUPS, SessionSpec, TableInfo, TableSpec, View
from sparkps.wire import messages as m
from sparkps.wire import userfn
from sparkps.wire.auth import Secret, new_ticket
from sparkps.wire.frames import decode_control, decode_from_server, encode, encode_control

SECONDS = 30
KEY = "7f" * 32
#: The coordinator's time at the start.
NOW = 5000.0


def endless(part: Any) -> None:
    """A server function that never ends."""
    while True:
        pass


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def begin(**start: Any) -> subprocess.Popen[bytes]:
    """Start a server; it has its first line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkps.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"server": 3, "incarnation": 7, **start}).encode() + b"\n")
    process.stdin.flush()
    return process


class Program:
    """A server process, and the control endpoint that it joins."""

    def __init__(
        self, memory: int = 1 << 30, host: str = "127.0.0.1", key: str = KEY, **settings: Any
    ) -> None:
        self.context = new_context()
        self.directory = runtime_directory()
        self.log = os.path.join(self.directory, "log")
        endpoint = ipc(self.directory, "c")
        self.router = Router(self.context, [endpoint])
        self.connections: list[Connection] = []
        self.process = begin(
            coordinator=endpoint,
            directory=self.directory,
            host=host,
            secret=key,
            memory=memory,
            log=self.log,
            conf=Settings(**settings).to_conf(),
        )
        self.peer, up = self.hear()
        self.info = up.server
        self.tell(m.Joined(m.VERSION, View(0), 0.05, NOW))
        self.op = 0
        self.command(m.SetView, view=View(1, (self.info,), (3,) * GROUPS, (1,) * GROUPS))

    @property
    def stdin(self) -> Any:
        return self.process.stdin

    @property
    def stdout(self) -> Any:
        return self.process.stdout

    def words(self) -> list[str]:
        """What it has said to its parent, after its end: the verbs."""
        return [line.split()[1] for line in self.stdout.read().decode().splitlines()]

    def hear(self, kind: type | None = None) -> tuple[bytes, Any]:
        """The next message that is no heartbeat (or is of a kind)."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            received = self.router.receive()
            if received is None:
                select.select([self.router.fd], [], [], 0.05)
                continue
            message = decode_control(received[1][0])
            if isinstance(message, kind) if kind else not isinstance(message, m.Beat):
                return received[0], message
        raise TimeoutError(f"the server said nothing for {SECONDS} s")

    def tell(self, message: m.Message) -> None:
        assert self.router.send(self.peer, [encode_control(message)])

    def command(self, kind: type, **fields: Any) -> m.Done:
        self.op += 1
        self.tell(kind(op=self.op, **fields))
        _, done = self.hear()
        assert done.op == self.op
        return done

    def connect(self, endpoint: str, curve: Curve | None = None) -> Connection:
        connection = Connection(self.context, endpoint, curve)
        self.connections.append(connection)
        answer, _ = self.ask(connection, self.hello())
        assert answer == m.Welcome(m.VERSION, 3, 7, 4 << 20)
        return connection

    def hello(self, key: str = KEY, client: bytes = b"test", server: int = 3) -> Any:
        """Hello with a ticket of a key."""
        ticket = new_ticket(Secret(key).derive("ticket"), client, server, 7, NOW)
        return encode(m.Hello(m.VERSION, client, 3, 7, ticket))

    def ask(self, connection: Connection, frames: Any) -> tuple[Any, Any]:
        connection.send(frames)
        answer = connection.receive(SECONDS * 1000)
        assert answer is not None, connection.lost
        return decode_from_server(answer)

    def filled(self) -> Connection:
        """A dense table 1 of 100 rows, all 1; the connection that filled it."""
        spec = TableSpec("t", dim=100, partitions=2)
        assert self.command(m.AddTable, info=TableInfo(1, spec)).code == ""
        self.command(m.AddSession, spec=SessionSpec(5, 1))
        self.command(m.SetToken, session=5, rank=0, token=9)
        connection = self.connect(self.info.data)
        slices = np.array([(p, 0, 50, -1, -1, -1) for p in (0, 1)], np.int64)
        push = m.Push(1, 1, 5, 0, 9, 0, 1, 0)
        values = np.ones(100, np.float32)
        answer, _ = self.ask(connection, encode(push, slices, np.arange(100), values))
        assert answer == m.Acked(1)
        return connection

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        if self.process.poll() is None:
            self.process.kill()
        self.stdin.close()
        self.process.wait(SECONDS)
        self.stdout.close()
        self.router.close()
        self.context.term()
        remove_directory(self.directory)


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    yield program
    program.close()


@pytest.fixture
def small() -> Iterator[Program]:
    """No memory for a second copy of its table."""
    program = Program(memory=40_000)
    yield program
    program.close()


def test_it_serves_local_sockets_and_tcp(program):
    connection = program.filled()
    remote = program.connect(program.info.tcp)
    pull = encode(
        m.Pull(2, 1, 0, 0, 0, 0, 1), np.array([[0, 2]], np.int32), np.array([3, 4], np.int64)
    )
    for each in (connection, remote):
        answer, (values,) = program.ask(each, pull)
        assert (answer, np.frombuffer(values, np.float32).tolist()) == (m.Rows(2), [1.0, 1.0])


def test_only_local_sockets_and_the_control_port_take_pickles(program):
    connection = program.filled()
    slices = np.array([[0, 0, 0, -1, -1, -1]], np.int64)
    reduce = encode(m.Function(3, 1, 0, 0, 0, 0, 1, 0), slices, b"no pickle")
    remote = program.connect(program.info.tcp)
    assert program.ask(remote, reduce)[0].code == "FunctionRefused"
    assert program.ask(connection, reduce)[0].code == "FunctionFailed"
    control = program.connect(program.info.control, Curve(Secret(KEY)))
    assert program.ask(control, reduce)[0].code == "FunctionFailed"


def test_heartbeats_carry_figures(program):
    program.filled()
    end = time.monotonic() + SECONDS
    while program.hear(m.Beat)[1].load.get("tables") != 1.0:
        assert time.monotonic() < end


def test_it_leaves_when_its_stdin_ends(program):
    program.stdin.close()
    assert program.process.wait(SECONDS) == 0


def test_it_leaves_when_told_to_and_says_so_first(program):
    assert program.command(m.Leave).code == ""
    assert program.process.wait(SECONDS) == 0
    assert program.words()[-1] == "leaving"


def test_it_leaves_when_its_coordinator_is_gone(program):
    program.router.close()
    assert program.process.wait(SECONDS) == 3
    with open(program.log) as file:
        assert "its connection to the coordinator has ended" in file.read()
    assert program.words()[-1] == "failed"


def test_it_ends_with_its_parent_while_it_waits_for_its_coordinator():
    context, there, own = new_context(), runtime_directory(), runtime_directory()
    silent = Router(context, [ipc(there, "c")])
    process = begin(coordinator=silent.endpoints[0], directory=own, executor="1")
    assert select.select([silent.fd], [], [], SECONDS)[0]
    process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert not os.path.exists(own)
    silent.close()
    context.term()
    remove_directory(there)


def test_beside_an_executor_one_that_cannot_start_leaves_no_directory():
    own = runtime_directory()
    with begin(coordinator="tcp://127.0.0.1:1", directory=own, executor="1") as process:
        assert process.wait(SECONDS) == 1
        told = process.stdout.read()
    assert told.startswith(b"sparkps failed no coordinator lets us in at tcp://127.0.0.1:1")
    assert not os.path.exists(own)


def test_it_leaves_while_a_function_keeps_it_busy(program):
    connection = program.filled()
    slices = np.array([[0, 0, 0, -1, -1, -1]], np.int64)
    frames = encode(m.Function(3, 1, 0, 0, 0, 0, 1, 0), slices, userfn.dumps((endless, ())))
    connection.send(frames)
    program.stdin.close()
    assert program.process.wait(SECONDS) in (0, 1)


def test_ctrl_c_is_for_the_driver(program):
    program.process.send_signal(signal.SIGINT)
    assert program.command(m.SetView, view=View(1)).code == ""


def test_the_child_writes_a_snapshot_and_the_server_goes_on(program, tmp_path):
    program.filled()
    done = program.command(m.Snapshot, table=1, path=str(tmp_path))
    assert [entry["rows"] for entry in done.result] == [50, 50]
    assert done.result[0]["ledgers"] == [{"session": 5, "rank": 0, "applied": [0, 0, 0], "log": 1}]
    assert len(list(tmp_path.iterdir())) == 2


def test_without_memory_for_a_copy_everything_waits_for_the_child(small, tmp_path):
    spec = TableSpec("t", dim=7000, partitions=1, optimizer=SGD().spec())
    assert small.command(m.AddTable, info=TableInfo(1, spec)).code == ""
    done = small.command(m.Snapshot, table=1, path=str(tmp_path))
    assert [entry["rows"] for entry in done.result] == [7000]
    with open(small.log) as file:
        assert "everything waits for snapshot" in file.read()


def test_a_snapshot_that_fails_says_why(program, tmp_path):
    program.filled()
    done = program.command(m.Snapshot, table=1, path=str(tmp_path / "nowhere"))
    assert done.code == "SnapshotFailed"
    assert done.fields["reason"] == "No such file or directory"


def test_it_starts_without_what_a_server_never_needs():
    code = (
        "import sys, sparkps.server.shell\n"
        "print([name for name in ('pyspark', 'pandas', 'scipy', 'pyarrow') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_child_without_a_first_line_removes_nothing(tmp_path):
    parent = str(os.getpid())
    arguments = ["sparkps.server", parent, "9", str(tmp_path / "all")]
    for name in arguments:
        (tmp_path / name).mkdir()
    process = subprocess.run(
        [sys.executable, "-m", "sparkps.coordinator.child", *arguments],
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        timeout=SECONDS,
    )
    assert process.returncode == 0
    assert len(list(tmp_path.iterdir())) == len(arguments)


def test_a_process_without_a_first_line_ends_and_removes_what_was_made_for_it(tmp_path):
    own = runtime_directory()
    (tmp_path / "data").touch()  # no directory of ours is as full
    for directory in (own, str(tmp_path)):
        command = [sys.executable, "-m", "sparkps.server", directory]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=SECONDS)
        assert process.returncode == 0
    assert not os.path.exists(own)
    assert (tmp_path / "data").exists()
