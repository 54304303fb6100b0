import itertools
import threading

from sparkps.net.faults import delayed
from sparkps.net.loop import Loop
from sparkps.net.rpc import Connection
from sparkps.net.serve import Router
from sparkps.net.sockets import Context
from sparkps.wire.effects import Buffer
from tests.net.conftest import LONG, Running


def test_no_delay_is_no_wrapper() -> None:
    loop = Loop()

    def on_message(peer: bytes, frames: list[Buffer], now: float) -> None: ...
    def on_gone(peer: bytes, now: float) -> None: ...

    assert delayed(loop, on_message, on_gone, delay_ms=0, seed=1) == (on_message, on_gone)
    loop.close()


def test_each_peer_keeps_its_order_and_peers_overtake_each_other(
    context: Context, directory: str, running: Running
) -> None:
    router = Router(context, [f"ipc://{directory}/s"])
    seen: list[tuple[bytes, int]] = []
    gone: list[bytes] = []
    done = threading.Event()

    def on_message(peer: bytes, frames: list[Buffer], now: float) -> None:
        seen.append((peer, int(bytes(frames[0]))))

    def on_gone(peer: bytes, now: float) -> None:
        assert [number for who, number in seen if who == peer] == list(range(30))
        gone.append(peer)
        if len(gone) == 3:
            done.set()

    handlers = delayed(running.loop, on_message, on_gone, delay_ms=5, seed=1)
    running.loop.serve(router, *handlers)
    ends = [Connection(context, router.endpoints[0]) for _ in range(3)]
    for end in ends:
        for number in range(30):
            end.send([b"%d" % number])
    running.start()
    while len(seen) < 90:  # closing earlier would drop what has not left yet
        running.do(lambda: None)
    for end in ends:
        end.close()
    assert done.wait(LONG)
    assert len(set(gone)) == 3
    changes = sum(a[0] != b[0] for a, b in itertools.pairwise(seen))
    assert changes > 5
    running.stop()
    router.close()
