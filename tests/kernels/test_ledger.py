"""Exactly-once: what a ledger accepts, and what it does with everything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparkps.kernels.ledger import (
    ACCEPTED,
    DUPLICATE,
    GAP,
    LATE,
    NOT_MINE,
    applied_up_to,
    check,
    groups,
)
from sparkps.kernels.partitions import PartitionArray

Array = NDArray[Any]
P = 4
NONE = (-1, -1, -1)


class Rank:
    """A table, the ledger of one rank on it, and what that rank sends."""

    def __init__(self, closed: tuple[int, ...] = ()) -> None:
        self.pa = PartitionArray(P, 1, "float32", [("float32", False, 0.0)])
        for p in set(range(P)) - set(closed):
            self.pa.open(p)
        self.ledger = np.full((P, 8), -1, np.int64)

    def send(
        self, clock: int, seq: int, *slices: Any, sealed: Any = None, staged: bool = False
    ) -> list[int]:
        """Send slices, each (partition, slice, predecessor)."""
        table = np.array([(p, s, 10, *prev) for p, s, prev in slices], np.int64).reshape(-1, 6)
        status = np.full(len(slices), 99, np.uint8)
        accepted = check(self.pa, self.ledger, table, clock, seq, sealed, staged, status)
        assert accepted == status.tolist().count(ACCEPTED)
        return status.tolist()

    def accepted(self, p: int) -> tuple[int, int, int]:
        clock, place = self.ledger[p, :2].tolist()
        return (clock, place >> 32, place & (2**32 - 1)) if place >= 0 else NONE

    def applied(self, p: int) -> tuple[int, int, int]:
        clock, place = self.ledger[p, 3:5].tolist()
        return (clock, place >> 32, place & (2**32 - 1)) if place >= 0 else NONE


def test_a_first_slice_is_accepted_applied_and_logged() -> None:
    rank = Rank()
    rank.pa.set_log(2, 40)
    assert rank.send(0, 0, (2, 0, NONE)) == [ACCEPTED]
    assert rank.accepted(2) == rank.applied(2) == (0, 0, 0)
    assert rank.ledger[2, 2] == rank.pa.log(2) == 41
    assert rank.pa.logs().tolist() == [0, 0, 41, 0]


def test_what_comes_again_is_a_duplicate_and_changes_nothing() -> None:
    rank = Rank()
    rank.send(0, 0, (1, 0, NONE), (1, 1, (0, 0, 0)))
    before = rank.ledger.copy()
    assert rank.send(0, 0, (1, 0, NONE), (1, 1, (0, 0, 0))) == [DUPLICATE, DUPLICATE]
    assert np.array_equal(rank.ledger, before)
    assert rank.pa.log(1) == 2


def test_a_gap_is_refused_and_so_is_all_that_follows_it_in_that_partition() -> None:
    rank = Rank()
    rank.send(0, 0, (0, 0, NONE), (1, 0, NONE))
    late_ones = ((0, 1, (0, 1, 0)), (0, 2, (0, 2, 1)), (1, 0, (0, 0, 0)))
    assert rank.send(0, 2, *late_ones) == [GAP, GAP, ACCEPTED]
    assert rank.accepted(0) == (0, 0, 0)
    assert rank.send(0, 1, (0, 0, (0, 0, 0))) == [ACCEPTED]
    assert rank.send(0, 2, *late_ones) == [ACCEPTED, ACCEPTED, DUPLICATE]


def test_a_new_holder_of_the_rank_begins_without_a_predecessor() -> None:
    rank = Rank()
    rank.send(3, 0, (0, 0, NONE), (0, 1, (3, 0, 0)))
    assert rank.send(3, 0, (0, 0, NONE), (0, 1, (3, 0, 0)), (0, 2, (3, 0, 1))) == [
        DUPLICATE,
        DUPLICATE,
        ACCEPTED,
    ]


def test_a_write_of_a_sealed_clock_is_late_unless_it_is_a_duplicate() -> None:
    rank = Rank()
    sealed = np.array([0, 6, 5, 0])
    rank.send(5, 0, (1, 0, NONE), staged=True)
    slices = ((1, 0, NONE), (1, 1, (5, 0, 0)), (2, 0, NONE))
    assert rank.send(5, 0, *slices, sealed=sealed, staged=True) == [DUPLICATE, LATE, ACCEPTED]


def test_a_partition_that_is_elsewhere_is_not_mine_before_anything_else() -> None:
    rank = Rank(closed=(3,))
    assert rank.send(0, 0, (3, 0, (9, 9, 9)), sealed=np.full(P, 5)) == [NOT_MINE]
    assert (rank.ledger == -1).all()


def test_late_is_decided_before_gap() -> None:
    assert Rank().send(1, 0, (0, 0, (0, 0, 0)), sealed=np.full(P, 2)) == [LATE]


def test_staged_slices_are_applied_by_the_seal_and_only_those_of_earlier_clocks() -> None:
    rank = Rank()
    rank.send(0, 0, (0, 0, NONE), (1, 0, NONE), staged=True)
    rank.send(0, 1, (0, 0, (0, 0, 0)), staged=True)
    assert rank.applied(0) == NONE
    rank.send(1, 0, (0, 0, (0, 1, 0)), staged=True)
    rank.send(1, 1, (0, 0, (1, 0, 0)), staged=True)
    applied_up_to(rank.ledger, np.array([0], np.int32), 1)
    assert rank.applied(0) == (0, 1, 0)
    assert rank.applied(1) == NONE
    applied_up_to(rank.ledger, np.array([0, 1], np.int32), 2)
    assert rank.applied(0) == (1, 1, 0)
    assert rank.applied(1) == (0, 0, 0)
    applied_up_to(rank.ledger, np.array([0], np.int32), 1)
    assert rank.applied(0) == (1, 1, 0)


def test_a_rank_two_clocks_ahead_of_a_seal_is_an_error() -> None:
    rank = Rank()
    rank.send(0, 0, (0, 0, NONE), staged=True)
    rank.send(1, 0, (0, 0, NONE), staged=True)
    rank.send(2, 0, (0, 0, NONE), staged=True)
    with pytest.raises(ValueError, match="accepted clocks 1 and 2 before clock 1 was sealed"):
        applied_up_to(rank.ledger, np.array([0], np.int32), 1)


positions = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))


@settings(deadline=None)  # a busy machine is no error
@given(st.lists(st.tuples(positions, st.just(NONE) | positions), max_size=40))
def test_any_sequence_is_decided_like_tuples_compare(sent: list[Any]) -> None:
    rank, last, log = Rank(), NONE, 0
    for position, prev in sent:
        clock, seq, number = position
        got = rank.send(clock, seq, (2, number, prev))
        want = DUPLICATE if position <= last else GAP if prev > last else ACCEPTED
        assert got == [want]
        if want == ACCEPTED:
            last, log = position, log + 1
        assert rank.accepted(2) == last
        assert rank.pa.log(2) == log


def test_large_positions_keep_their_order() -> None:
    rank = Rank()
    assert rank.send(2**62, 2**31 - 1, (0, 2**32 - 2, NONE)) == [ACCEPTED]
    top = (2**62, 2**31 - 1, 2**32 - 2)
    assert rank.send(2**62, 2**31 - 1, (0, 2**32 - 1, top)) == [ACCEPTED]
    assert rank.accepted(0) == (2**62, 2**31 - 1, 2**32 - 1)


def test_an_empty_message_is_accepted() -> None:
    assert Rank().send(0, 0) == []


@pytest.mark.parametrize(
    ("clock", "seq", "line", "sentence"),
    [
        (-1, 0, (0, 0, 1, *NONE), "clock -1 and seq 0 are no position"),
        (0, 2**31, (0, 0, 1, *NONE), "are no position"),
        (0, 0, (P, 0, 1, *NONE), r"slices\[0\] names partition 4; the table has 4"),
        (0, 0, (-1, 0, 1, *NONE), r"slices\[0\] names partition -1"),
        (0, 0, (0, 2**32, 1, *NONE), r"slices\[0\] has the number 4294967296"),
        (0, 0, (0, -1, 1, *NONE), r"slices\[0\] has the number -1"),
        (0, 0, (0, 0, 1, 0, -2, 0), "which is no position"),
        (0, 0, (0, 0, 1, 0, 0, 2**32), "which is no position"),
        (0, 0, (0, 0, 1, -2, 0, 0), "which is no position"),
    ],
)
def test_numbers_that_are_no_position_are_refused(
    clock: int, seq: int, line: Any, sentence: str
) -> None:
    rank = Rank()
    with pytest.raises(ValueError, match=sentence):
        check(
            rank.pa, rank.ledger, np.array([line]), clock, seq, None, False, np.empty(1, np.uint8)
        )
    assert (rank.ledger == -1).all()


def test_arrays_of_other_sizes_are_refused() -> None:
    rank, status = Rank(), np.empty(1, np.uint8)
    slices = np.array([(0, 0, 1, *NONE)])
    with pytest.raises(ValueError, match="ledger holds 24 numbers"):
        check(rank.pa, rank.ledger[:3].copy(), slices, 0, 0, None, False, status)
    with pytest.raises(ValueError, match="slices holds 5 numbers"):
        check(rank.pa, rank.ledger, slices[0, :5].copy(), 0, 0, None, False, status)
    with pytest.raises(ValueError, match="status holds 2 numbers"):
        check(rank.pa, rank.ledger, slices, 0, 0, None, False, np.empty(2, np.uint8))
    with pytest.raises(ValueError, match="sealed holds 3 numbers"):
        check(rank.pa, rank.ledger, slices, 0, 0, np.zeros(3, np.int64), False, status)
    with pytest.raises(ValueError, match=r"parts\[0\] is 4, but the ledger has 4 partitions"):
        applied_up_to(rank.ledger, np.array([4], np.int32), 1)


def test_slices_make_groups_and_a_total() -> None:
    slices = np.arange(60, dtype=np.int64).reshape(10, 6)
    parts, total = groups(slices.tobytes())
    assert parts.dtype == np.int32
    np.testing.assert_array_equal(parts, slices[:, [0, 2]])
    assert total == slices[:, 2].sum()


def test_no_slices_make_no_groups() -> None:
    parts, total = groups(np.empty((0, 6), np.int64))
    assert parts.shape == (0, 2)
    assert total == 0


def test_many_large_slices_are_counted_exactly() -> None:
    slices = np.full((5, 6), 2**31 - 1)
    assert groups(slices)[1] == 5 * (2**31 - 1)


@pytest.mark.parametrize(("column", "number"), [(0, -1), (0, 2**31), (2, -1), (2, 2**32 + 1)])
def test_slices_that_do_not_fit_are_refused_by_place(column: int, number: int) -> None:
    slices = np.ones((3, 6), np.int64)
    slices[1, column] = number
    with pytest.raises(ValueError, match=r"slices\[1\] counts"):
        groups(slices)
