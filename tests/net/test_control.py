import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from sparkps.errors import (
    CoordinatorLost,
    CoordinatorUnreachable,
    RequestTimeout,
    TableNotFound,
    VersionMismatch,
    WrongType,
)
from sparkps.net.control import ControlLink
from sparkps.net.serve import Router
from sparkps.net.sockets import Context
from sparkps.spec import View
from sparkps.wire.effects import Buffer
from sparkps.wire.frames import decode_control, encode_control
from sparkps.wire.messages import (
    VERSION,
    Answer,
    Beat,
    Control,
    Denied,
    FindTable,
    GetStatus,
    GetView,
    Join,
    Joined,
    Message,
    Slowest,
    Warned,
)
from tests.net.conftest import LONG, Running

JOIN = Join(version=VERSION, role="driver")


class Coordinator:
    """The least that a link can talk to; keeps what it was told."""

    def __init__(self, context: Context, directory: str, running: Running) -> None:
        self.router = Router(context, [f"ipc://{directory}/c"])
        self.endpoint = self.router.endpoints[0]
        self.heard: list[Control] = []
        self.changed = threading.Condition()
        self.peer = b""
        self.gone = 0
        self.answers: dict[type, Callable[[Control], Message | None]] = {
            Join: lambda message: Joined(version=VERSION, view=View(number=3), heartbeat=60.0)
        }
        self._running = running
        running.loop.serve(self.router, self._received, self._gone)
        running.start()

    def _received(self, peer: bytes, frames: list[Buffer], now: float) -> None:
        message = decode_control(frames[0])
        self.peer = peer
        with self.changed:
            self.heard.append(message)
            self.changed.notify_all()
        answer = self.answers.get(type(message), lambda message: None)(message)
        if answer is not None:
            self.router.send(peer, [encode_control(answer)])

    def _gone(self, peer: bytes, now: float) -> None:
        with self.changed:
            self.gone += 1
            self.changed.notify_all()

    def tell(self, message: Message) -> None:
        self._running.do(lambda: self.router.send(self.peer, [encode_control(message)]))

    def wait(self, what: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(what, LONG)

    def close(self) -> None:
        self._running.stop()
        self.router.close()


@pytest.fixture
def coordinator(context: Context, directory: str, running: Running) -> Iterator[Coordinator]:
    coordinator = Coordinator(context, directory, running)
    yield coordinator
    coordinator.close()


def nothing(_: object) -> None:
    pass


def test_a_link_joins_and_leaves(coordinator: Coordinator) -> None:
    before = threading.active_count()
    link = ControlLink(coordinator.endpoint, JOIN, nothing, nothing)
    assert link.joined.view.number == 3
    assert threading.active_count() == before + 1
    link.tell(Warned(session=1, text="last words"))
    link.close()
    link.close()
    assert threading.active_count() == before
    coordinator.wait(lambda: coordinator.gone == 1)
    assert coordinator.heard[-1] == Warned(session=1, text="last words")


def test_a_request_gets_its_answer_or_its_error(coordinator: Coordinator) -> None:
    coordinator.answers[GetStatus] = lambda m: Answer(id=m.id, result={"servers": 2})
    coordinator.answers[FindTable] = lambda m: Denied(
        m.id,
        "TableNotFound",
        {"table": m.name, "known": "a, b"},
    )
    link = ControlLink(coordinator.endpoint, JOIN, nothing, nothing)
    assert link.request(lambda id: GetStatus(id=id), LONG) == {"servers": 2}
    with pytest.raises(TableNotFound, match="there is no table 'c'; the tables here are a, b"):
        link.request(lambda id: FindTable(id=id, name="c"), LONG)
    link.close()


def test_what_cannot_be_sent_is_refused_in_the_caller_and_the_link_goes_on(
    coordinator: Coordinator,
) -> None:
    coordinator.answers[FindTable] = lambda message: Answer(id=message.id, result=7)
    link = ControlLink(coordinator.endpoint, JOIN, nothing, nothing)
    with pytest.raises(WrongType, match="a field of FindTable"):
        link.request(lambda number: FindTable(number, "\ud800"), LONG)
    assert link.request(lambda number: FindTable(number, "t"), LONG) == 7
    link.close()


def test_requests_of_many_threads_do_not_mix(coordinator: Coordinator) -> None:
    coordinator.answers[FindTable] = lambda m: Answer(id=m.id, result=m.name)
    link = ControlLink(coordinator.endpoint, JOIN, nothing, nothing)
    wrong: list[object] = []

    def ask(thread: int) -> None:
        for number in range(50):
            name = f"{thread}.{number}"
            got = link.request(lambda id: FindTable(id=id, name=name), LONG)  # noqa: B023
            if got != name:
                wrong.append(got)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    link.close()


def test_a_request_without_an_answer_ends_by_its_deadline(coordinator: Coordinator) -> None:
    link = ControlLink(coordinator.endpoint, JOIN, nothing, nothing, log="/logs/c.log")
    with pytest.raises(
        RequestTimeout, match=r"GetView: no answer from the coordinator for 0.02 s.*See /logs/c.log"
    ):
        link.request(lambda id: GetView(id=id), 0.02)
    link.close()


def test_one_way_messages_come_in_order_in_the_links_thread(coordinator: Coordinator) -> None:
    seen: list[tuple[int, str]] = []
    done = threading.Event()

    def on_message(message: Control) -> None:
        assert isinstance(message, Slowest)
        seen.append((message.clock, threading.current_thread().name))
        if message.clock == 99:
            done.set()

    link = ControlLink(coordinator.endpoint, JOIN, on_message, nothing)
    for clock in range(100):
        coordinator.tell(Slowest(session=1, clock=clock))
    assert done.wait(LONG)
    assert seen == [(clock, "sparkps-control") for clock in range(100)]
    link.close()


def test_the_heart_beats_and_carries_figures(coordinator: Coordinator) -> None:
    coordinator.answers[Join] = lambda m: Joined(VERSION, View(number=1), heartbeat=0.005)
    link = ControlLink(coordinator.endpoint, JOIN, nothing, nothing, load=lambda: {"rows": 7.0})
    coordinator.wait(lambda: sum(isinstance(m, Beat) for m in coordinator.heard) >= 3)
    assert coordinator.heard[-1] == Beat(load={"rows": 7.0})
    link.close()


def test_another_version_is_refused(coordinator: Coordinator) -> None:
    coordinator.answers[Join] = lambda m: Denied(
        0, "VersionMismatch", {"peer": "the coordinator", "theirs": 2, "ours": 1}
    )
    before = threading.active_count()
    with pytest.raises(VersionMismatch, match="the coordinator speaks protocol version 2"):
        ControlLink(coordinator.endpoint, JOIN, nothing, nothing)
    assert threading.active_count() == before


def test_nobody_there_is_a_lost_coordinator() -> None:
    before = threading.active_count()
    with pytest.raises(CoordinatorLost, match=r"lets us in at .* \(the connection was refused\)"):
        ControlLink("ipc:///tmp/sparkps-nobody", JOIN, nothing, nothing)
    assert threading.active_count() == before


def test_a_silent_coordinator_is_a_timeout(coordinator: Coordinator) -> None:
    del coordinator.answers[Join]
    with pytest.raises(RequestTimeout, match="joining: no answer from the coordinator"):
        ControlLink(coordinator.endpoint, JOIN, nothing, nothing, timeout=0.05)


def test_the_end_of_the_coordinator_fails_everyone_who_waits(
    context: Context, directory: str, running: Running
) -> None:
    coordinator = Coordinator(context, directory, running)
    reasons: list[str] = []
    link = ControlLink(coordinator.endpoint, JOIN, nothing, reasons.append, log="c.log")
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            link.request(lambda id: GetView(id=id), LONG)
        except CoordinatorLost as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    coordinator.wait(lambda: any(isinstance(m, GetView) for m in coordinator.heard))
    coordinator.close()
    thread.join(LONG)
    assert str(errors[0]).startswith(
        "the coordinator is lost (the connection was closed); every run has failed with it"
    )
    with pytest.raises(CoordinatorLost, match=r"log c\.log"):
        link.request(lambda id: GetView(id=id), LONG)
    link.tell(Beat())
    link.close()
    assert reasons == ["the connection was closed"]
    assert link.lost == "the connection was closed"


def test_a_callback_that_raises_ends_the_link(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    def on_message(message: Control) -> None:
        raise ZeroDivisionError("bug")

    lost = threading.Event()
    link = ControlLink(coordinator.endpoint, JOIN, on_message, lambda reason: lost.set())
    coordinator.tell(Warned(session=1, text="x"))
    assert lost.wait(LONG)
    assert link.lost == "ZeroDivisionError: bug"
    assert "bug" in caplog.text
    link.close()


def test_a_callback_may_tell_and_close(coordinator: Coordinator) -> None:
    link: ControlLink | None = None

    def on_message(message: Control) -> None:
        assert link is not None
        link.tell(Warned(session=2, text="said in the callback"))
        link.close()

    link = ControlLink(coordinator.endpoint, JOIN, on_message, nothing)
    coordinator.tell(Warned(session=1, text="x"))
    coordinator.wait(lambda: coordinator.gone == 1)
    assert coordinator.heard[-1] == Warned(session=2, text="said in the callback")
    link.close()


def test_an_unknown_host_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(CoordinatorUnreachable, match="there is no such host"):
        ControlLink("tcp://nowhere.invalid:7000", JOIN, nothing, nothing)
