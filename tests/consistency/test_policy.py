from __future__ import annotations

import pytest

from sparkps.consistency.policy import may_go, may_use_copy, must_reach


@pytest.mark.parametrize("slowest", range(6))
def test_bsp_waits_for_everyone_each_clock(slowest):
    assert may_go("bsp", 0, 4, slowest) == (slowest >= 4)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_ssp_lets_nobody_lead_by_more_than_its_bound(staleness):
    allowed = [clock for clock in range(20) if may_go("ssp", staleness, clock, 10)]
    assert max(allowed) == 10 + staleness


def test_ssp_0_waits_as_bsp_does():
    for clock in range(5):
        assert must_reach("ssp", 0, clock) == must_reach("bsp", 0, clock) == clock


def test_asp_never_waits():
    assert may_go("asp", 0, 10**9, 0)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_copy_holds_all_that_a_clock_must_see(staleness):
    """A pull at clock c sees all clocks up to c - s - 1; a copy stamped m has all below m."""
    for clock in range(8):
        for stamp in range(8):
            sees_enough = clock - staleness - 1 < stamp
            assert may_use_copy("ssp", staleness, clock, stamp) == sees_enough


def test_bsp_and_asp_use_no_copies():
    assert not may_use_copy("bsp", 0, 3, 3)
    assert not may_use_copy("asp", 0, 3, 3)
