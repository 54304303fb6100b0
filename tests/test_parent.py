"""Lines between a child and its parent."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sparkps._parent import Lines, Parent, told


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        if os.fstat(fd):
            os.close(fd)


@pytest.fixture
def parent(pipe: tuple[int, int]) -> Iterator[Parent]:
    """One whose child's stdout is the pipe."""
    saved = os.dup(1)
    os.dup2(pipe[1], 1)
    try:
        parent = Parent()
    finally:
        os.dup2(saved, 1)
        os.close(saved)
    yield parent
    os.close(parent._fd)


def test_the_first_line_is_waited_for_piece_by_piece(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b'{"a": 1}\nsecond\nthi')
    lines = Lines(read)
    assert lines.first() == b'{"a": 1}'
    os.write(write, b"rd\n\n")
    assert lines.read() == [b"second", b"third"]
    assert not lines.ended


def test_a_stream_that_ends_before_its_first_line_says_so() -> None:
    read, write = os.pipe()
    os.write(write, b'{"half": ')
    os.close(write)
    lines = Lines(read)
    assert lines.first() == b""
    assert lines.ended
    os.close(read)


def test_an_empty_stream_has_no_first_line() -> None:
    read, write = os.pipe()
    os.close(write)
    assert Lines(read).first() == b""
    os.close(read)


def test_the_end_is_seen_after_the_last_lines() -> None:
    read, write = os.pipe()
    os.write(write, b"one\ntwo\n")
    os.close(write)
    lines = Lines(read)
    assert (lines.read(), lines.ended) == ([b"one", b"two"], False)
    assert (lines.read(), lines.ended) == ([], True)
    os.close(read)


def test_what_a_child_says_is_read_again(pipe: tuple[int, int], parent: Parent) -> None:
    parent.tell("listening", "ipc:///tmp/c,tcp://[::1]:7000")
    parent.tell("ready", 2)
    parent.tell("failed", ValueError("one\ntwo"))
    parent.tell("bye")
    said = os.read(pipe[0], 4096).splitlines()
    assert [told(line) for line in said] == [
        ("listening", "ipc:///tmp/c,tcp://[::1]:7000"),
        ("ready", "2"),
        ("failed", "one | two"),
        ("bye", ""),
    ]


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"sparkps", b"Sparkps ready 2", b" sparkps ready 2", b"\xff\xfe"]
)
def test_all_else_is_noise(line: bytes) -> None:
    assert told(line) is None


def test_text_that_is_no_utf8_ends_no_parent() -> None:
    assert told(b"sparkps failed \xff!") == ("failed", "\ufffd!")


def test_a_parent_that_is_gone_is_told_nothing(parent: Parent) -> None:
    pass_on, write = os.pipe()
    os.dup2(write, parent._fd)
    os.close(write)
    os.close(pass_on)
    parent.tell("ready", 2)


def test_a_parent_that_does_not_read_holds_up_nobody(pipe: tuple[int, int], parent: Parent) -> None:
    for _ in range(2000):
        parent.tell("figures", "x" * 100)
    heard = [told(line) for line in os.read(pipe[0], 1 << 20).splitlines()]
    assert 100 < len(heard) < 2000
    assert set(heard) == {("figures", "x" * 100)}
