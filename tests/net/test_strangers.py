"""What a connection may take that nobody has been heard on."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest

from sparkps.net.curve import Curve
from sparkps.net.rpc import Connection
from sparkps.net.serve import STRANGERS_FRAME, Router
from sparkps.net.sockets import Context
from sparkps.net.strangers import FAREWELL, LOOK, LOUD, PATIENCE, Strangers
from sparkps.wire.auth import Secret
from tests.net.conftest import LONG, Running
from tests.net.zmtp import admitted, connect, ended, frame, greeting, head, pour


class Books:
    """Strangers with their sockets, on a time of their own."""

    def __init__(self, most: int = 100) -> None:
        self.strangers = Strangers(most)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.near: list[socket.socket] = []
        self.far: list[socket.socket] = []
        self.now = 0.0

    def come(self) -> int:
        self.far.append(socket.create_connection(self.listener.getsockname(), LONG))
        self.near.append(self.listener.accept()[0])
        self.strangers.accepted(self.near[-1].fileno())
        return self.near[-1].fileno()

    def look(self, seconds: float = LOOK, received: int = 0, *, empty: bool = True) -> None:
        self.now += seconds
        self.strangers.look(self.now, received=received, others=5, empty=empty)

    def looks(self, received: int = 0, *, empty: bool = True) -> None:
        for _ in range(3):
            self.look(received=received, empty=empty)

    def shut(self) -> list[bool]:
        """Which of the connections have ended, as their other side sees it."""
        found = []
        for far in self.far:
            far.setblocking(False)
            try:
                found.append(far.recv(1) == b"")
            except BlockingIOError:
                found.append(False)
        return found

    def close(self) -> None:
        for each in (*self.near, *self.far, self.listener):
            each.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Books]]:
    made: list[Books] = []

    def make(most: int = 100) -> Books:
        made.append(Books(most))
        return made[-1]

    yield make
    for books in made:
        books.close()


def test_a_quiet_stranger_has_half_a_minute(make: Callable[..., Books]) -> None:
    books = make()
    books.come()
    books.look()
    books.look(PATIENCE - LOOK)
    assert books.shut() == [False]
    books.looks()
    assert books.shut() == [True]
    assert not books.strangers


def test_a_loud_stranger_is_shut_at_the_third_look(make: Callable[..., Books]) -> None:
    books = make()
    books.come()
    books.far[0].sendall(bytes(LOUD + 1))
    books.look()
    books.look()
    assert books.shut() == [False]
    books.look()
    assert books.shut() == [True]


def test_who_says_no_more_than_a_first_message_has_is_left_alone(
    make: Callable[..., Books],
) -> None:
    books = make()
    books.come()
    books.far[0].sendall(bytes(LOUD))
    books.looks()
    assert books.shut() == [False]


def test_who_was_heard_is_no_stranger_however_much_he_says(make: Callable[..., Books]) -> None:
    books = make()
    books.strangers.heard(books.come())
    books.far[0].sendall(bytes(2 * LOUD))
    assert not books.strangers
    books.look(2 * PATIENCE)
    books.looks()
    assert books.shut() == [False]


def test_a_listener_that_is_behind_with_reading_shuts_nobody_before_his_turn(
    make: Callable[..., Books],
) -> None:
    books = make()
    books.come()
    books.far[0].sendall(bytes(LOUD + 1))
    for _ in range(5):
        books.looks(received=10, empty=False)
    assert books.shut() == [False]
    books.look(received=16, empty=False)  # others and strangers have been heard since
    assert books.shut() == [True]


def test_of_too_many_the_oldest_are_shut(make: Callable[..., Books]) -> None:
    books = make(most=3)
    for _ in range(5):
        books.come()
    books.looks()
    assert books.shut() == [True, True, False, False, False]


def test_who_is_shown_out_gets_a_moment_for_the_last_answer(make: Callable[..., Books]) -> None:
    books = make()
    fd = books.come()
    inode = os.fstat(fd).st_ino
    books.strangers.heard(fd)
    books.strangers.show_out(fd, inode)
    books.look()
    books.strangers.show_out(fd, inode)  # again, which makes it no later
    books.look(FAREWELL - 0.01)
    assert books.shut() == [False]
    books.look(0.02)
    assert books.shut() == [True]
    assert not books.strangers


def test_a_descriptor_that_is_another_connection_s_by_now_is_left_alone(
    make: Callable[..., Books],
) -> None:
    books = make()
    fd = books.come()
    books.strangers.show_out(fd, os.fstat(fd).st_ino)
    books.strangers.heard(fd)
    other = books.come()
    books.strangers.heard(other)
    os.dup2(other, fd)  # closes the first
    books.look()
    books.look(1.0)
    assert books.shut() == [True, False]
    assert not books.strangers


def test_who_has_left_is_forgotten(make: Callable[..., Books]) -> None:
    books = make()
    fd = books.come()
    books.strangers.show_out(fd, os.fstat(fd).st_ino)
    books.strangers.ended(fd)
    assert not books.strangers
    books.near[0].close()
    assert books.strangers.accepted(fd) == 0
    assert not books.strangers


def test_local_sockets_have_no_count_of_bytes(make: Callable[..., Books]) -> None:
    books = make()
    near, far = socket.socketpair()
    books.near.append(near)
    books.far.append(far)
    books.strangers.accepted(near.fileno())
    far.sendall(bytes(LOUD + 1))
    books.looks()
    assert books.shut() == [False]


# -- the same on a real listener -------------------------------------------------------------------


@pytest.fixture
def listen(context: Context, running: Running) -> Iterator[Callable[..., Router]]:
    routers: list[Router] = []

    def listen(curve: Curve | None = None) -> Router:
        router = Router(context, ["tcp://127.0.0.1:0"], curve=curve)
        routers.append(router)

        def received(peer: bytes, frames: list[object], now: float) -> None:
            router.send(peer, [b"answer"])
            if frames[0] == b"out":
                router.cut(peer)

        running.loop.serve(router, received, lambda peer, now: None)
        running.start()
        return router

    yield listen
    running.stop()
    for router in routers:
        router.close()


def test_a_message_without_end_ends_the_connection(
    context: Context, listen: Callable[..., Router]
) -> None:
    router = listen()
    stranger = admitted(router.endpoints[0])
    for _ in range(2):
        stranger.sendall(frame(bytes(LOUD), more=True))
    ended(stranger)
    end = Connection(context, router.endpoints[0])
    end.send([bytes(2 * LOUD)])
    assert end.receive(LONG * 1000) == [b"answer"]
    end.close()


def test_a_frame_beyond_the_limit_ends_the_connection(listen: Callable[..., Router]) -> None:
    stranger = admitted(listen().endpoints[0])
    stranger.sendall(head(STRANGERS_FRAME + 1))
    ended(stranger)


@pytest.mark.parametrize("length", [2**63 - 1, 2**64 - 1, 2**40, STRANGERS_FRAME])
def test_a_handshake_with_a_huge_length_ends_the_connection(
    listen: Callable[..., Router], length: int
) -> None:
    stranger = connect(listen(Curve(Secret.new())).endpoints[0])
    stranger.sendall(greeting(b"CURVE") + head(length, command=True))
    assert pour(stranger, bytes(LOUD), 2**40) < 2**40
    stranger.close()


def test_a_peer_that_is_cut_gets_its_answer_and_is_heard_no_more(
    listen: Callable[..., Router], running: Running
) -> None:
    router = listen()
    stranger = admitted(router.endpoints[0])
    stranger.sendall(frame(b"out") + frame(b"more") * 50)
    said = ended(stranger)
    assert said.count(b"answer") == 1
    while running.do(lambda: bool(router._fd_of or router._peer_at or router._open)):
        pass
    assert router.deaf == set()


def test_a_cut_peer_that_goes_on_sending_gets_nothing_for_it(
    listen: Callable[..., Router], running: Running
) -> None:
    router = listen()
    stranger = admitted(router.endpoints[0])
    stranger.sendall(frame(b"out"))
    pour(stranger, frame(b"x") * 1000, 2**40)
    stranger.close()
    assert router.backlog == 0
