"""A worker's messages are kept until they are asked for, and errors end every wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkps.client.mailbox import Mailbox
from sparkps.errors import CoordinatorLost, ServerLost, SessionEnded, TokenLost
from sparkps.spec import SessionSpec
from sparkps.wire.messages import (
    Begin,
    Ended,
    GangComplete,
    Granted,
    Message,
    Released,
    Slowest,
    TokenGone,
)

SPEC = SessionSpec(5, 2)


def granted(token: int, **more: Any) -> Granted:
    return Granted(5, 0, token, 0, 0, SPEC, **more)


def box(*messages: Message) -> Mailbox:
    mailbox = Mailbox(5)
    for message in messages:
        mailbox.put(message)
    return mailbox


def test_what_has_come_is_not_waited_for() -> None:
    mailbox = box(granted(7), GangComplete(5), Begin(5, 3, (1, 2)), Slowest(5, 4))
    assert mailbox.wait_granted().token == 7
    mailbox.wait_gang()
    assert mailbox.wait_begin().clocks == 3
    mailbox.wait_slowest(4)


def test_messages_of_other_sessions_are_left_out() -> None:
    mailbox = box(Slowest(6, 4), Ended(6, "ServerLost"))
    assert mailbox.slowest == 0
    mailbox.check()


def test_a_wait_ends_when_its_message_comes() -> None:
    mailbox = box()
    thread = threading.Timer(0, lambda: mailbox.put(Released(5, 3, {"n": 1})))
    thread.start()
    assert mailbox.wait_released(3).sums == {"n": 1}
    thread.join()


def test_an_earlier_release_is_not_the_one_that_is_waited_for() -> None:
    mailbox = box(Released(5, 2, {"n": 1}))
    threading.Timer(0, lambda: mailbox.put(Released(5, 3, {"n": 2}))).start()
    assert mailbox.wait_released(3).sums == {"n": 2}
    mailbox.put(Released(5, 9))
    assert mailbox.wait_released(4, at_least=True).clock == 9


def test_the_slowest_clock_never_goes_back() -> None:
    seen = []
    mailbox = box()
    mailbox.on_slowest = lambda: seen.append(mailbox.slowest)
    for clock in (2, 1, 3):
        mailbox.put(Slowest(5, clock))
    assert seen == [2, 2, 3]


@pytest.mark.parametrize(
    ("happens", "error", "words"),
    [
        (
            lambda box: box.put(Ended(5, *ServerLost(server=3).to_wire())),
            SessionEnded,
            "server 3 is lost",
        ),
        (lambda box: box.put(Ended(5)), SessionEnded, "it is complete"),
        (lambda box: box.put(TokenGone(5, 0, 7)), TokenLost, "token 7 no longer holds rank 0"),
        (
            lambda box: box.lost("the connection was closed"),
            CoordinatorLost,
            "the connection was closed",
        ),
    ],
)
def test_the_end_ends_every_wait(
    happens: Callable[[Mailbox], None], error: type[Exception], words: str
) -> None:
    mailbox = box(granted(7))
    threading.Timer(0, lambda: happens(mailbox)).start()
    for wait in (
        mailbox.wait_gang,
        mailbox.wait_begin,
        lambda: mailbox.wait_slowest(9),
        mailbox.check,
    ):
        with pytest.raises(error, match=words):
            wait()


def test_another_token_s_end_is_nobody_s() -> None:
    box(granted(8), TokenGone(5, 0, 7)).check()


def test_a_task_whose_token_is_gone_waits_for_the_next() -> None:
    mailbox = box(granted(7), Begin(5, 3, (1, 2)), TokenGone(5, 0, 7))
    threading.Timer(0, lambda: mailbox.put(granted(9))).start()
    assert mailbox.take_granted(7).token == 9
    mailbox.check()
    threading.Timer(0, lambda: mailbox.put(Begin(5, 4, (1, 2)))).start()
    assert mailbox.wait_begin().clocks == 4


def test_who_acts_by_a_token_that_was_followed_by_another_has_lost_it() -> None:
    mailbox = box(granted(7))
    assert mailbox.wait_granted().token == 7
    mailbox.check()
    for message in (TokenGone(5, 0, 7), granted(9), TokenGone(5, 0, 7)):
        mailbox.put(message)
        with pytest.raises(TokenLost, match="token 7 no longer holds rank 0"):
            mailbox.check()
    assert mailbox.take_granted(7).token == 9
    mailbox.check()


def test_the_next_token_may_have_come_already() -> None:
    assert box(granted(7), TokenGone(5, 0, 7), granted(9)).take_granted(7).token == 9
    finished = box(granted(7), TokenGone(5, 0, 7), granted(7, finished=True, result=b"r"))
    assert finished.take_granted(7).result == b"r"
