"""Cached rows are used while they are fresh enough, and never beyond."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.client.cache import KeyCache, RowCache
from sparkps.spec import TableSpec

SPEC = TableSpec("t", width=2)


def rows(*numbers: float) -> np.ndarray:
    return np.repeat(np.array(numbers, np.float32)[:, None], 2, axis=1)


def slots(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def test_a_row_is_fresh_from_its_stamp_on_down() -> None:
    cache = RowCache(SPEC)
    cache.store(slots(0, 5), rows(1, 2), stamp=3)
    assert cache.fresh(slots(5, 1, -1, 99), oldest=3).tolist() == [True, False, False, False]
    assert not cache.fresh(slots(0), oldest=4).any()
    assert cache.read(slots(5, 0, 5)).tolist() == rows(2, 1, 2).tolist()


def test_the_newest_pull_counts() -> None:
    cache = RowCache(SPEC)
    cache.store(slots(0), rows(1), stamp=3)
    cache.store(slots(0), rows(9), stamp=4)
    assert cache.read(slots(0)).tolist() == rows(9).tolist()
    assert cache.fresh(slots(0), oldest=4).all()


@pytest.mark.parametrize("stored", [slots(), slots(-1)])
def test_nothing_to_keep_is_no_error(stored: np.ndarray) -> None:
    cache = RowCache(SPEC)
    cache.store(stored, rows(*[1.0] * len(stored)), stamp=0)
    assert not cache.fresh(slots(0), oldest=0).any()


def test_a_full_cache_keeps_what_it_has() -> None:
    cache = RowCache(SPEC, limit=2 * 16)
    cache.store(slots(0, 1, 2), rows(1, 2, 3), stamp=0)
    assert cache.fresh(slots(0, 1, 2), oldest=0).tolist() == [True, True, False]


def test_keys_get_slots_while_there_is_room() -> None:
    cache = KeyCache(SPEC, limit=2 * 16)
    assert cache.find(np.array([7])).tolist() == [-1]
    assert cache.slots(np.array([7, -2])).tolist() == [0, 1]
    assert cache.slots(np.array([7, 8])).tolist() == [0, -1]


def test_a_slot_that_holds_nothing_is_never_fresh() -> None:
    cache = RowCache(SPEC)
    cache.store(slots(3), rows(1), stamp=0)
    assert cache.fresh(slots(0, 1, 3), oldest=-1).tolist() == [False, False, True]
