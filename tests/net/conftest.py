"""A context per test whose sockets must all be closed at its end, and a short directory."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator

import pytest

from sparkps.net.directory import remove_directory, runtime_directory
from sparkps.net.loop import Loop
from sparkps.net.sockets import Context, new_context

#: Seconds after which a wait is a failure.
LONG = 10.0


def readable(*fds: int) -> None:
    """Wait until one of the descriptors is readable."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    assert poll.poll(LONG * 1000)


@pytest.fixture
def context() -> Iterator[Context]:
    context = new_context()
    yield context
    left = [socket for socket in context._sockets or () if not socket.closed]
    context.destroy(linger=0)
    assert left == []


@pytest.fixture
def directory() -> Iterator[str]:
    path = runtime_directory()
    yield path
    remove_directory(path)


@pytest.fixture(params=["ipc", "tcp"])
def address(request: pytest.FixtureRequest, directory: str) -> str:
    return f"ipc://{directory}/s" if request.param == "ipc" else "tcp://127.0.0.1:0"


class Running:
    """A loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def do(self, call: Callable[[], object]) -> object:
        """Run something in the loop's thread and wait for it."""
        done = threading.Event()
        result: list[object] = []

        def run() -> None:
            result.append(call())
            done.set()

        self.loop.post(run)
        assert done.wait(LONG)
        return result[0]

    def stop(self) -> None:
        """End the loop; its routers may be closed after it. Doing it again is no error."""
        if not self._thread.is_alive() and self._stopped:
            return
        self._stopped = True
        self.loop.post(self.loop.stop)
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        self.loop.close()
        if self.error is not None:
            raise self.error


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.stop()
