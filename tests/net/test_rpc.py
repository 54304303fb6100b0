import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from sparkps.net.rpc import Connection, wait
from sparkps.net.serve import Router
from sparkps.net.sockets import Context
from sparkps.net.wakeup import Wakeup
from tests.net.conftest import LONG, readable


def lost(end: Connection) -> str:
    while end.receive(LONG * 1000) is not None:
        pass
    return end.lost


def test_receive_waits_no_longer_than_it_may(context: Context, address: str) -> None:
    router = Router(context, [address])
    end = Connection(context, router.endpoints[0])
    assert end.receive() is None
    start = time.monotonic()
    assert end.receive(30) is None
    assert 0.03 <= time.monotonic() - start < LONG
    assert end.lost == ""
    end.close()
    router.close()


@pytest.mark.parametrize("endpoint", ["ipc:///tmp/sparkps-nobody", "tcp://127.0.0.1:{port}"])
def test_nobody_there_is_a_lost_connection(context: Context, endpoint: str) -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        end = Connection(context, endpoint.format(port=taken.getsockname()[1]))
        end.send([b"into the void"])
        assert lost(end) == "the connection was refused"
    end.close()


def test_the_death_of_the_other_process_is_seen_after_its_last_answer(
    context: Context, directory: str
) -> None:
    code = (
        "import sys, zmq\n"
        "s = zmq.Context().socket(zmq.ROUTER)\n"
        f"s.bind('ipc://{directory}/s')\n"
        "print('up', flush=True)\n"
        "s.send_multipart([*s.recv_multipart(), b'answer'])\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    end = Connection(context, f"ipc://{directory}/s")
    end.send([b"q"])
    assert end.receive(LONG * 1000) == [b"q", b"answer"]
    child.kill()
    assert lost(end) == "the connection was closed"
    end.send([b"dropped"])
    assert end.receive(LONG * 1000) is None
    assert child.wait(LONG) == -9
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()
    end.close()


def test_a_connection_does_not_come_back_by_itself(context: Context, directory: str) -> None:
    endpoint = f"ipc://{directory}/s"
    first = Router(context, [endpoint])
    end = Connection(context, endpoint)
    end.send([b"one"])
    while first.receive() is None:
        pass
    first.close()
    assert lost(end) == "the connection was closed"
    second = Router(context, [endpoint])
    end.send([b"two"])
    again = Connection(context, endpoint)
    again.send([b"three"])
    while (message := second.receive()) is None:
        pass
    assert message[1] == [b"three"]
    for each in (end, again, second):
        each.close()


def test_wait_names_those_that_are_ready(context: Context, address: str) -> None:
    routers = [Router(context, [address]), Router(context, ["tcp://127.0.0.1:0"])]
    ends = [Connection(context, router.endpoints[0]) for router in routers]
    assert wait(ends, 0) == []
    assert wait(ends, 20) == []
    ends[1].send([b"q"])
    while (message := routers[1].receive()) is None:
        pass
    routers[1].send(message[0], [b"a"])
    assert wait(ends, LONG * 1000) == [ends[1]]
    assert ends[1].receive() == [b"a"]
    for each in (*ends, *routers):
        each.close()


def test_wait_ends_for_a_lost_connection(context: Context) -> None:
    end = Connection(context, "ipc:///tmp/sparkps-nobody")
    assert wait([end], LONG * 1000) == [end]
    assert end.lost
    end.close()


def test_a_wakeup_ends_a_wait_of_another_thread(context: Context, address: str) -> None:
    router = Router(context, [address])
    end = Connection(context, router.endpoints[0])
    wakeup = Wakeup()
    threading.Timer(0.01, wakeup.set).start()
    assert wait([end], -1, wakeup) == []
    assert wait([end], -1, wakeup) == []  # it stays set
    wakeup.clear()
    assert wait([end], 20, wakeup) == []
    end.close()
    router.close()
    wakeup.close()


def test_a_wakeup_may_be_set_often_and_after_its_end() -> None:
    wakeup = Wakeup()
    for _ in range(70_000):
        wakeup.set()
    wakeup.clear()
    with pytest.raises(BlockingIOError):
        os.read(wakeup.fileno(), 1)
    wakeup.close()
    wakeup.set()
    wakeup.close()


def test_what_is_sent_when_the_connection_has_just_ended_is_dropped(context: Context) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    end = Connection(context, f"tcp://127.0.0.1:{port}")
    readable(end._monitor.fd)  # it was refused, which nobody has looked at
    for _ in range(3):
        end.send([b"hello"])
    assert end.receive(LONG * 1000) is None
    assert end.lost == "the connection was refused"
    end.close()
