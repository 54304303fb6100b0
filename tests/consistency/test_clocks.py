from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkps.consistency.clocks import NEVER, EpochPlan, RankClocks, make_plan, own_clocks
from sparkps.errors import InvalidArgument


def clocks(batches, epochs=2, every="batch"):
    return RankClocks(make_plan(every, epochs, batches), [own_clocks(every, b) for b in batches])


def test_an_epoch_has_as_many_clocks_as_the_largest_rank():
    assert make_plan("batch", 3, [2, 7, 0]) == EpochPlan(7, 3)
    assert make_plan("epoch", 3, [2, 7, 0]) == EpochPlan(1, 3)
    assert make_plan("batch", 3, [0, 0]) == EpochPlan(1, 3)
    assert make_plan("manual", 3, [2]).manual


def test_the_slowest_is_the_smallest_acknowledged_clock():
    ranks = clocks([3, 3, 3])
    assert not ranks.acknowledge(0, 2)
    assert not ranks.acknowledge(1, 1)
    assert ranks.acknowledge(2, 1)
    assert (ranks.slowest, ranks.slowest_rank, ranks.fastest) == (1, 1, 2)


def test_a_rank_that_ran_out_counts_as_having_ended_the_epoch():
    ranks = clocks([4, 2])
    ranks.acknowledge(1, 2)
    assert (ranks.acknowledged(1), ranks.effective(1)) == (2, 4)
    for clock in (1, 2, 3, 4):
        assert ranks.acknowledge(0, clock)
        assert ranks.slowest == clock
    assert ranks.epochs_ended == 1
    assert not ranks.acknowledge(0, 5)
    assert (ranks.slowest_rank, ranks.slowest) == (1, 4)


def test_a_rank_without_rows_holds_nobody_back():
    ranks = clocks([2, 0])
    assert ranks.effective(1) == NEVER
    ranks.acknowledge(0, 4)
    assert (ranks.slowest, ranks.epochs_ended) == (NEVER, 2)


def test_the_last_epoch_ends_for_good():
    ranks = clocks([3, 1], epochs=1)
    ranks.acknowledge(1, 1)
    assert ranks.effective(1) == NEVER
    ranks.acknowledge(0, 3)
    assert ranks.epochs_ended == 1


def test_what_comes_late_or_twice_changes_nothing():
    ranks = clocks([3])
    assert ranks.acknowledge(0, 2)
    assert not ranks.acknowledge(0, 2)
    assert not ranks.acknowledge(0, 1)
    assert ranks.acknowledged(0) == 2


def test_manual_epochs_end_when_all_have_and_begin_at_the_largest_clock():
    ranks = clocks([5, 5], every="manual")
    ranks.acknowledge(0, 3)
    assert not ranks.end_epoch(0)
    assert ranks.slowest == 0
    ranks.acknowledge(1, 9)
    ranks.end_epoch(1)
    assert ranks.all_ended
    assert ranks.next_epoch() == 9
    assert (ranks.slowest, ranks.all_ended) == (9, False)
    assert (ranks.acknowledged(0), ranks.acknowledged(1)) == (9, 9)


def test_a_finished_rank_holds_nobody_back():
    ranks = clocks([2, 2])
    ranks.acknowledge(0, 1)
    assert ranks.finish(1)
    assert ranks.slowest == 1


def test_manual_plans_know_no_epochs():
    with pytest.raises(InvalidArgument, match="manual clocks have no fixed number"):
        make_plan("manual", 1, [1]).epoch_of(3)


def test_clocks_of_an_epoch():
    plan = EpochPlan(clocks=5, epochs=3)
    assert [plan.epoch_of(c) for c in (0, 4, 5, 14)] == [0, 0, 1, 2]
    assert (plan.first(2), plan.end(2), plan.within(12), plan.total) == (10, 15, 2, 15)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
def test_the_slowest_is_kept_right(batches, data):
    ranks = clocks(batches, epochs=3)
    for _ in range(data.draw(st.integers(0, 30))):
        rank = data.draw(st.integers(0, len(batches) - 1))
        before = ranks.slowest
        moved = ranks.acknowledge(rank, data.draw(st.integers(0, ranks.plan.total)))
        expected = min(ranks.effective(r) for r in range(ranks.size))
        assert ranks.slowest == expected
        assert moved == (expected != before)
