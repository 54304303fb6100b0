import contextlib
import os
import socket

import numpy as np
import pytest
import zmq

from sparkps.errors import InvalidSetting, PortsTaken
from sparkps.net.rpc import Connection
from sparkps.net.serve import QUEUE, Router
from sparkps.net.sockets import COPY_RECEIVE, COPY_SEND, Context
from tests.net.conftest import LONG, readable


def take(router: Router) -> tuple[bytes, list[bytes]]:
    """Wait for the next message."""
    while (message := router.receive()) is None:
        readable(router.fd)
    return message[0], [bytes(frame) for frame in message[1]]


def wait_gone(router: Router) -> list[bytes]:
    while not (gone := router.gone()):
        if not router.ending:
            readable(router.events_fd)
    return gone


def held(connection: socket.socket) -> int:
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def widened() -> int:
    """How many local sockets of this process hold more than usual."""
    with socket.socket(socket.AF_UNIX) as new:
        usual = held(new)
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # no socket
            connection = socket.socket(fileno=int(number))
            found += connection.family == socket.AF_UNIX and held(connection) > usual
            connection.detach()
    return found


def test_a_message_comes_with_its_peer_and_the_answer_finds_it(
    context: Context, address: str
) -> None:
    router = Router(context, [address])
    ends = [Connection(context, router.endpoints[0]) for _ in range(3)]
    for number, end in enumerate(ends):
        end.send([b"hello", bytes([number])])
    peers = {}
    for _ in ends:
        peer, frames = take(router)
        peers[frames[1][0]] = peer
        assert router.send(peer, [b"to", frames[1]])
    assert len(set(peers.values())) == 3
    for number, end in enumerate(ends):
        assert end.receive(LONG * 1000) == [b"to", bytes([number])]
        end.close()
    router.close()


def test_both_ends_of_a_local_connection_hold_large_messages(
    context: Context, address: str
) -> None:
    before = widened()
    router = Router(context, [address])
    end = Connection(context, router.endpoints[0])
    end.send([b"question"])
    router.send(take(router)[0], [b"answer"])
    assert end.receive(LONG * 1000) == [b"answer"]
    assert end.receive() is None  # which looks for events
    assert widened() - before == (2 if address.startswith("ipc") else 0)
    end.close()
    router.close()


@pytest.mark.parametrize(
    "size", [0, 1, COPY_RECEIVE - 1, COPY_RECEIVE, COPY_SEND - 1, COPY_SEND, 5 << 20]
)
def test_buffers_of_every_size_and_kind_travel_whole(
    context: Context, address: str, size: int
) -> None:
    router = Router(context, [address])
    end = Connection(context, router.endpoints[0])
    array = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    end.send([b"h", array, memoryview(array), array.tobytes()])
    peer, frames = take(router)
    assert frames == [b"h", *[array.tobytes()] * 3]
    router.send(peer, [b"h", array.reshape(1, -1)])
    answer = end.receive(LONG * 1000)
    assert answer is not None
    assert bytes(answer[1]) == array.tobytes()
    end.close()
    router.close()


def test_several_addresses_are_bound_with_their_real_ports(
    context: Context, directory: str
) -> None:
    router = Router(context, [f"ipc://{directory}/s", "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])
    assert router.endpoints[0] == f"ipc://{directory}/s"
    ports = [int(text.rpartition(":")[2]) for text in router.endpoints[1:]]
    assert len(set(ports)) == 2
    assert 0 not in ports
    router.close()


def test_an_address_that_is_taken_raises_and_leaves_no_socket(context: Context) -> None:
    router = Router(context, ["tcp://127.0.0.1:0"])
    with pytest.raises(zmq.ZMQError, match="in use"):
        Router(context, router.endpoints)
    router.close()


def test_a_peer_that_left_is_told_after_its_last_message(context: Context, address: str) -> None:
    router = Router(context, [address])
    stays, leaves = (Connection(context, router.endpoints[0]) for _ in range(2))
    stays.send([b"stays"])
    peer_that_stays, _ = take(router)
    leaves.send([b"leaves"])
    peer, _ = take(router)
    assert router.gone() == []
    leaves.close()
    assert wait_gone(router) == [peer]
    assert not router.send(peer, [b"too late"])
    assert router.send(peer_that_stays, [b"still here"])
    assert stays.receive(LONG * 1000) == [b"still here"]
    stays.close()
    router.close()


def test_a_peer_that_sends_and_leaves_at_once_is_heard_and_then_told(
    context: Context, address: str
) -> None:
    """Many times over, so that descriptors are used again while older ends are not read yet."""
    router = Router(context, [address])
    heard: list[bytes] = []
    told: list[bytes] = []
    for round_ in range(30):
        for number in range(4):
            end = context.socket(zmq.DEALER)
            end.connect(router.endpoints[0])
            end.send_multipart([b"%d.%d" % (round_, number), b"x" * 9000])
            end.close(linger=int(LONG * 1000))
        while len(heard) < 4 * round_:
            peer, _ = take(router)
            assert peer not in told
            heard.append(peer)
            told += router.gone()
    while len(heard) < 120:
        heard.append(take(router)[0])
    while len(told) < 120:
        told += wait_gone(router)
    assert len(set(heard)) == 120
    assert sorted(told) == sorted(heard)
    assert router._fd_of == {}
    assert router._peer_at == {}
    router.close()


def test_what_a_slow_peer_does_not_take_is_kept_in_order_and_counted(
    context: Context, directory: str
) -> None:
    router = Router(context, [f"ipc://{directory}/s"])
    slow = context.socket(zmq.DEALER)
    slow.set(zmq.RCVHWM, 1)
    slow.connect(router.endpoints[0])
    slow.send(b"hello")
    quick = Connection(context, router.endpoints[0])
    quick.send([b"hello"])
    peers = [take(router) for _ in range(2)]
    total = 0
    for peer, _ in peers:
        for _ in range(4 * QUEUE):
            router.send(peer, [total.to_bytes(4, "little"), b"x" * 100_000])
            total += 1
    assert router.backlog > 0
    before = router.backlog
    assert before % 100_004 == 0
    router.flush()
    seen = []
    while len(seen) < 4 * QUEUE:
        if slow.poll(10):
            seen.append(int.from_bytes(slow.recv_multipart()[0], "little"))
        while quick.receive() is not None:
            pass
        router.flush()
    assert seen == sorted(seen)
    while router.backlog:
        quick.receive(10)
        router.flush()
    assert not router.flushing
    quick.close()
    slow.close(linger=0)
    router.close()


def test_what_is_kept_for_a_peer_goes_with_it(context: Context, directory: str) -> None:
    router = Router(context, [f"ipc://{directory}/s"])
    slow = context.socket(zmq.DEALER)
    slow.set(zmq.RCVHWM, 1)
    slow.connect(router.endpoints[0])
    slow.send(b"hello")
    peer, _ = take(router)
    while router.backlog < 1 << 20:
        router.send(peer, [b"x" * 100_000])
    slow.close(linger=0)
    assert wait_gone(router) == [peer]
    assert router.backlog == 0
    assert not router.flushing
    router.close()


@pytest.mark.parametrize(
    "junk", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f" * 200, b"", b"\0" * 500]
)
def test_a_stranger_on_the_port_disturbs_nobody(context: Context, junk: bytes) -> None:
    router = Router(context, ["tcp://127.0.0.1:0"])
    end = Connection(context, router.endpoints[0])
    for _ in range(3):
        with socket.create_connection(
            ("127.0.0.1", int(router.endpoints[0].split(":")[2]))
        ) as stranger:
            stranger.sendall(junk)
    end.send([b"hello"])
    peer, frames = take(router)
    assert frames == [b"hello"]
    assert router.gone() == []
    end.close()
    assert wait_gone(router) == [peer]
    assert router._fd_of == {}
    router.close()


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free. Those of the system's own choosing, that
    others may take at any time, are left alone.
    """
    first = 20_000 + os.getpid() % 5_000
    while True:
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                first += count
                continue
        return first


def test_a_range_of_ports_is_taken_from_its_beginning(context: Context) -> None:
    first = free_ports(3)
    routers = [Router(context, ["tcp://127.0.0.1:0"], ports=(first, first + 2)) for _ in range(3)]
    ports = [int(router.endpoints[0].rpartition(":")[2]) for router in routers]
    assert ports == [first, first + 1, first + 2]
    with pytest.raises(PortsTaken, match=f"no port of {first}-{first + 2} is free on 127.0.0.1"):
        Router(context, ["tcp://127.0.0.1:0"], ports=(first, first + 2))
    for router in routers:
        router.close()


def test_an_address_of_another_host_is_said(context: Context) -> None:
    with pytest.raises(InvalidSetting, match=r"bind\.host='203\.0\.113\.7': is no address of this"):
        Router(context, ["tcp://203.0.113.7:0"])


def test_a_port_of_somebody_else_is_passed_over(context: Context) -> None:
    first = free_ports(2)
    with socket.create_server(("127.0.0.1", first)):
        router = Router(context, ["tcp://127.0.0.1:0"], ports=(first, first + 1))
    assert router.endpoints == [f"tcp://127.0.0.1:{first + 1}"]
    router.close()


def test_a_port_is_free_again_when_its_connections_were_closed_a_moment_ago(
    context: Context,
) -> None:
    first = free_ports(1)
    for _ in range(2):
        router = Router(context, ["tcp://127.0.0.1:0"], ports=(first, first))
        end = Connection(context, router.endpoints[0])
        end.send([b"hello"])
        take(router)
        port = int(router.endpoints[0].rpartition(":")[2])
        router.close()  # our end goes first, and is left in TIME_WAIT
        while not end.ready:
            end.receive(10)
        end.close()
        closed(port)


def closed(port: int) -> None:
    """Wait until nobody listens: libzmq closes a listener in a thread of its own."""
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return


def test_an_ipv6_address_is_bound_and_reached(context: Context) -> None:
    router = Router(context, ["tcp://[::1]:0"])
    assert router.endpoints[0].startswith("tcp://[::1]:")
    end = Connection(context, router.endpoints[0])
    end.send([b"hello"])
    peer, frames = take(router)
    assert frames == [b"hello"]
    router.send(peer, [b"answer"])
    assert end.receive(LONG * 1000) == [b"answer"]
    end.close()
    router.close()
