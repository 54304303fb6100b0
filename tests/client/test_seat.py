"""Chains of positions, and the acknowledged clock."""

from __future__ import annotations

import os

import numpy as np
import pytest

from sparkps.client.seat import Chain, Seat
from sparkps.errors import PSError

NONE = [-1, -1, -1]


def write(*partitions: int, slices: int = 1) -> np.ndarray:
    rows = [(p, s, 1, -1, -1, -1) for p in partitions for s in range(slices)]
    return np.array(rows, np.int64)


def prev(slices: np.ndarray) -> list[list[int]]:
    return [row[3:] for row in slices.tolist()]


def test_each_slice_names_the_one_before_it_in_its_partition() -> None:
    chain = Chain(4)
    first, second = write(1, 2, slices=2), write(2)
    assert chain.add(first, clock=0) == 0
    assert chain.add(second, clock=0) == 1
    assert prev(first) == [NONE, [0, 0, 0], NONE, [0, 0, 0]]
    assert prev(second) == [[0, 0, 1]]


def test_seq_counts_the_writes_of_a_clock() -> None:
    chain = Chain(4)
    assert [chain.add(write(0), clock) for clock in (0, 0, 3, 3, 4)] == [0, 1, 0, 1, 0]


def test_what_follows_a_refused_write_follows_what_came_before_it() -> None:
    chain = Chain(4)
    first, refused, third = write(1, 2), write(1, 2, slices=2), write(1, 2)
    for slices in (first, refused, third):
        chain.add(slices, clock=5)
    chain.give_up(5, 1, refused, [third])
    assert prev(third) == [[5, 0, 0], [5, 0, 0]]
    assert chain.last[1].tolist() == [5, 2, 0]


def test_a_refused_last_write_is_forgotten() -> None:
    chain = Chain(4)
    refused = write(1, slices=3)
    chain.add(refused, clock=0)
    chain.give_up(0, 0, refused, [])
    assert chain.last[1].tolist() == NONE


def test_only_the_refused_slices_are_given_up() -> None:
    chain = Chain(4)
    both, third = write(1, 2), write(1, 2)
    chain.add(both, clock=0)
    chain.add(third, clock=0)
    chain.give_up(0, 0, both[1:], [third])
    assert prev(third) == [[0, 0, 0], NONE]


def test_the_acknowledged_clock_is_that_of_the_oldest_write_under_way() -> None:
    seat = Seat(7, 0, 1, clock=4)
    assert seat.acknowledged == 4
    seat.sent(2)
    seat.sent(2)
    seat.sent(3)
    assert seat.acknowledged == 2
    seat.settled(2)
    assert seat.acknowledged == 2
    seat.settled(2)
    assert seat.acknowledged == 3
    seat.settled(3)
    assert seat.acknowledged == 4


def test_an_error_is_raised_once() -> None:
    seat = Seat(7, 0, 1)
    seat.error = PSError(reason="no")
    with pytest.raises(PSError, match="no"):
        seat.raise_error()
    seat.raise_error()


def test_a_renewed_seat_begins_a_new_chain() -> None:
    seat = Seat(7, 0, 1)
    seat.sent(0)
    before = seat.chain(1, 4)
    seat.renew(2)
    assert seat.token == 2
    assert seat.chain(1, 4) is not before
    assert seat.acknowledged == seat.clock


def test_a_forked_process_may_not_write() -> None:
    seat = Seat(7, 0, 1)
    child = os.fork()
    if child == 0:
        os._exit(0 if seat.denied == "in a forked process" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert seat.denied == ""
