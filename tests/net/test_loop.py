import os
import threading

import pytest
import zmq

from sparkps.net.loop import Loop
from sparkps.net.rpc import Connection
from sparkps.net.serve import Router
from sparkps.net.sockets import Context
from tests.net.conftest import LONG, Running, readable


def test_messages_are_answered_and_leavers_are_told(
    context: Context, address: str, running: Running
) -> None:
    router = Router(context, [address])
    gone: list[bytes] = []
    peers: set[bytes] = set()
    left = threading.Event()

    def on_message(peer: bytes, frames: list[object], now: float) -> None:
        peers.add(peer)
        assert now == running.loop.now
        router.send(peer, [b"re", *frames])

    def on_gone(peer: bytes, now: float) -> None:
        gone.append(peer)
        left.set()

    running.loop.serve(router, on_message, on_gone)
    running.start()
    end = Connection(context, router.endpoints[0])
    for number in range(200):
        end.send([b"%d" % number])
    answers = [end.receive(LONG * 1000) for _ in range(200)]
    assert answers == [[b"re", b"%d" % number] for number in range(200)]
    end.close()
    assert left.wait(LONG)
    assert gone == list(peers)
    running.stop()
    router.close()


def test_a_router_given_first_is_read_first(context: Context, directory: str) -> None:
    loop = Loop()
    order: list[str] = []
    routers = {name: Router(context, [f"ipc://{directory}/{name}"]) for name in ("control", "data")}
    ends = {name: Connection(context, router.endpoints[0]) for name, router in routers.items()}

    def handler(name: str) -> object:
        def on_message(peer: bytes, frames: object, now: float) -> None:
            order.append(name)
            if len(order) == 1:  # from now on both have messages waiting
                for each in ("data", "control"):
                    for _ in range(8):
                        ends[each].send([b"m"])
                readable(routers["control"].fd)
            if len(order) == 17:
                loop.stop()

        return on_message

    for name, router in routers.items():
        loop.serve(router, handler(name), lambda peer, now: None, batch=4)
    ends["data"].send([b"first"])
    loop.run()
    assert order.index("control") <= 4  # after the batch of data that was being read
    assert order.count("control") == 8
    for end in ends.values():
        end.close()
    for router in routers.values():
        router.close()
    loop.close()


def test_timers_come_in_time_and_may_be_moved_and_turned_off() -> None:
    loop = Loop()
    seen: list[str] = []
    never = loop.timer(lambda now: seen.append("never"))
    late = loop.timer(lambda now: seen.append("late"))
    again = loop.timer(lambda now: (seen.append("again"), again.set(now + 0.001))[0])
    end = loop.timer(lambda now: loop.stop())
    start = loop.now
    never.set(start + 0.001)
    late.set(start + 60)
    late.set(start + 0.002)
    again.set(start + 0.001)
    end.set(start + 0.03)
    never.set(None)
    loop.run()
    loop.close()
    assert loop.now >= start + 0.03
    assert seen.count("late") == 1
    assert seen.count("again") > 2
    assert "never" not in seen


def test_posted_calls_run_in_order_in_the_loop(running: Running) -> None:
    running.start()
    order: list[int] = []
    for number in range(100):
        running.loop.post(lambda number=number: order.append(number))
    where = running.do(threading.get_ident)
    assert order == list(range(100))
    assert where != threading.get_ident()


def test_a_watched_descriptor_calls_at_its_end_too() -> None:
    loop = Loop()
    read, write = os.pipe()
    seen: list[bytes] = []

    def on_readable() -> None:
        data = os.read(read, 10)
        seen.append(data)
        if data:
            os.close(write)
        else:
            loop.unwatch(read)
            loop.stop()

    loop.watch(read, on_readable)
    os.write(write, b"x")
    loop.run()
    assert seen == [b"x", b""]
    os.close(read)
    loop.close()


def test_an_exception_of_a_handler_ends_the_loop() -> None:
    loop = Loop()

    def broken() -> None:
        raise ZeroDivisionError

    loop.post(broken)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.close()


def test_a_loop_stops_reading_while_its_replies_are_not_taken(
    context: Context, directory: str, running: Running
) -> None:
    """A client that asks and does not read makes the server stop; nothing is lost."""
    router = Router(context, [f"ipc://{directory}/s"])
    most = 0

    def on_message(peer: bytes, frames: object, now: float) -> None:
        nonlocal most
        router.send(peer, [b"x" * 100_000])
        most = max(most, router.backlog)

    running.loop.serve(router, on_message, lambda peer, now: None, limit=1 << 20)
    running.start()
    end = context.socket(zmq.DEALER)
    end.set(zmq.RCVHWM, 1)
    end.connect(router.endpoints[0])
    for _ in range(400):
        end.send(b"give")
    answers = 0
    while answers < 400:
        assert end.poll(int(LONG * 1000))
        end.recv()
        answers += 1
    assert most <= (1 << 20) + 100_000
    end.close(linger=0)
    running.stop()
    router.close()
