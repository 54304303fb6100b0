"""The limit that a server is measured against: a process that answers frames with frames of given
sizes, and nothing else.

It speaks through the same socket types (ROUTER here, DEALER at the client) over TCP loopback, and
for each request sends back frames of the sizes that the request's first frame asks for. It copies
frames as bytes or passes them without a copy, whichever is faster for their size on this machine;
nothing is looked at.

    python jobs/bench/echo.py        # prints its endpoint, runs until stdin ends
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType

import zmq

#: The same bounds as the product uses (sparkps.net.sockets), found by measurement.
COPY_BELOW = 1 << 19


def serve() -> None:
    """Answer until stdin ends."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        print(f"tcp://127.0.0.1:{port}", flush=True)
        poller = zmq.Poller()
        poller.register(router, zmq.POLLIN)
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        answers: dict[bytes, list[bytes]] = {}
        while True:
            events = dict(poller.poll())
            if sys.stdin.fileno() in events:
                return
            frames = router.recv_multipart(copy=False)
            plan = frames[1].bytes
            if plan not in answers:
                count = struct.unpack_from("<I", plan)[0]
                answers[plan] = [bytes(size) for size in struct.unpack_from(f"<{count}Q", plan, 4)]
            answer = answers[plan]
            large = sum(map(len, answer)) >= COPY_BELOW
            router.send_multipart([frames[0].bytes, *answer], copy=not large)


class Echo:
    """The client's side, with the process behind it."""

    def __enter__(self) -> Echo:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(self.process.stdout.readline().strip())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.context.destroy(linger=0)
        self.process.communicate(timeout=10)

    def prepare(self, sizes: Sequence[int], answer: Sequence[int]) -> list[bytes]:
        """Frames of a request of ``sizes`` bytes, answered by frames of ``answer`` bytes. The first
        frame says so; it is at least as long as that takes."""
        plan = struct.pack(f"<I{len(answer)}Q", len(answer), *answer)
        return [plan.ljust(sizes[0], b"\0"), *(bytes(size) for size in sizes[1:])]

    def call(self, frames: list[bytes]) -> None:
        """One round trip."""
        self.socket.send_multipart(frames, copy=sum(map(len, frames)) < COPY_BELOW)
        self.socket.recv_multipart(copy=False)


if __name__ == "__main__":
    serve()
