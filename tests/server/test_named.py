"""Lists of row numbers whose missing rows are found bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.server.named import RowList


def a_list(present: np.ndarray) -> tuple[RowList, np.ndarray]:
    """A list of two appendings, in which ``present`` places have rows already."""
    keys = np.arange(100, 100 + len(present))
    rows = np.where(present, np.arange(len(present)), -1).astype(np.int32)
    found, half = RowList(4), len(present) // 2
    found.append(rows[:half], keys[:half], 1)
    found.append(rows[half:], keys[half:], 1)
    return found, keys


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_missing_rows_are_counted_and_keep_their_keys(share: float) -> None:
    rng = np.random.default_rng(2)
    found, keys = a_list(rng.random(200) < share)
    missing = np.flatnonzero(found.rows < 0)
    assert found.missing == len(missing)
    while len(missing):
        places = np.sort(rng.choice(200, 30)).astype(np.int32)  # some of them more than once
        rows = found.rows[places]
        named = found.keys_of(places, rows)
        if named is not None:
            assert named[rows < 0].tolist() == keys[places[rows < 0]].tolist()
        # What is looked up is found, but for some that still are not there.
        looked_up = np.where(places % 7 == 3, rows, places).astype(np.int32)
        found.learn(places, looked_up, 1)
        left = np.flatnonzero(found.rows < 0)
        assert found.missing == len(left)
        if len(left) == len(missing) and (left % 7 == 3).all():
            break
        missing = left
    assert found.nbytes <= found.rows.base.nbytes + 12 * 4 * max(1, found.missing)


def test_nothing_is_kept_once_all_are_found() -> None:
    found, _ = a_list(np.zeros(50, bool))
    places = np.arange(50, dtype=np.int32)
    found.learn(places, places, 1)
    assert found.missing == 0
    assert found.nbytes == found.rows.base.nbytes
    assert found.keys_of(places, found.rows) is None
