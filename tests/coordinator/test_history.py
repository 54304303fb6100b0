"""Sums of what ticks bring."""

from __future__ import annotations

import math

import pytest

from sparkps.coordinator.history import History, add, sum_up
from sparkps.errors import InvalidArgument


def test_rows_are_summed_by_batch_within_a_rank_and_then_by_rank():
    numbers = [[0.1, 1e17], [0.2, -1e17]]
    history = History(2, keep_clocks=False)
    # Rank 1 reports first, and rank 0 in two goes: the order of arrival does not matter.
    for rank in (1, 0):
        for clock in (0, 1):
            history.note(rank, clock, 0, {"x": numbers[rank][clock]})
    assert history.row(0) == {"x": (0.1 + 1e17) + (0.2 + -1e17)}
    assert history.row(0) == {}


def test_a_clock_that_is_reported_again_changes_nothing():
    history = History(1, keep_clocks=True)
    history.note(0, 0, 0, {"x": 1})
    history.note(0, 1, 0, {"x": 2})
    history.note(0, 0, 0, {"x": 100})
    history.close_clocks(2)
    assert (history.sums(0), history.sums(1), history.row(0)) == ({"x": 1}, {"x": 2}, {"x": 3})


def test_sums_are_forgotten_when_all_have_passed():
    history = History(1, keep_clocks=True)
    for clock in range(3):
        history.note(0, clock, 0, {"x": clock})
    history.close_clocks(3)
    history.forget_clocks(2)
    assert [history.sums(clock) for clock in range(3)] == [{}, {}, {"x": 2}]


def test_lists_are_added_element_by_element():
    assert add([1, 2.5], [10, 20]) == [11, 22.5]


def test_bools_are_counted_and_names_may_come_and_go():
    total = {}
    sum_up(total, {"hit": True})
    sum_up(total, {"hit": True, "new": 2.5})
    assert total == {"hit": 2, "new": 2.5}


def test_the_sign_of_a_lone_zero_is_kept():
    total = {}
    sum_up(total, {"x": -0.0})
    assert math.copysign(1, total["x"]) == -1


def test_counts_beyond_64_bits_go_on_as_floats():
    assert add(2**63 - 1, 1) == float(2**63)


@pytest.mark.parametrize(("a", "b"), [(1, "x"), ([1], [1, 2]), ([1], 1), (1, None), (1, b"x")])
def test_what_cannot_be_added_is_named(a, b):
    with pytest.raises(InvalidArgument, match="cannot be added"):
        add(a, b, "loss")


@pytest.mark.parametrize("other", [1.0, [1], [1, 2, 3], [[1, 2]], "x", None, [[1], [1, 2]]])
def test_a_number_whose_shape_changes_is_refused_when_it_comes(other):
    history = History(2, keep_clocks=True)
    history.note(0, 0, 0, {"a": [1, 2]})
    with pytest.raises(InvalidArgument, match="ticks carry"):
        history.note(1, 0, 0, {"a": other})
    # Nothing of it was kept: the sums of the clock can be made.
    history.close_clocks(1)
    assert history.sums(0) == history.row(0) == {"a": [1, 2]}


def test_another_epoch_may_have_other_shapes():
    history = History(1, keep_clocks=False)
    history.note(0, 0, 0, {"a": [1, 2]})
    history.row(0)
    history.note(0, 1, 1, {"a": 3})
    assert history.row(1) == {"a": 3}
