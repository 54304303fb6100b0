"""The three cores together: every seed holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sparkps.testing.simulation import Plan, Simulation, simulate

#: Seeds of each test of a consistency; a seed takes 50 to 100 ms.
SEEDS = range(28)
#: What happens to messages.
FAULTS = ("cuts", "false alarms", "drops", "doubles", "slow", "slices not served")
#: What happens to processes.
TROUBLES = ("kill", "double", "pause", "cut off", "deaf", "server", "coordinator")


def run_all(consistency: str, seeds: Any = SEEDS, **fixed: Any) -> Counter[str]:
    """Run seeds; return the sums of what happened, and of "most" the largest."""
    sums: Counter[str] = Counter()
    for seed in seeds:
        counts = simulate(seed, consistency, **fixed)
        most = max(sums["most in flight"], counts["most in flight"])
        sums.update(counts)
        sums["most in flight"] = most
    return sums


def check_that_it_happened(counts: Counter[str], *also: str) -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    for what in (*FAULTS, "duplicates", "gaps", "tokens passed", "zombies refused", *also):
        assert counts[what] > 10, what
    for kind in TROUBLES:
        assert counts[f"trouble: {kind}"] > 2, kind
    assert counts["tokens lost"] > 0
    assert counts["most in flight"] >= 4
    assert counts["runs that failed"] == 0


def test_asp_applies_every_write_once() -> None:
    check_that_it_happened(run_all("asp"))


def test_ssp_stays_within_its_bound() -> None:
    check_that_it_happened(run_all("ssp:2"), "held back")


def test_bsp_computes_the_bits_of_the_sequential_reference() -> None:
    check_that_it_happened(run_all("bsp"))


@pytest.mark.parametrize("consistency", ["asp", "ssp:0", "bsp"])
def test_refusals_end_the_run_and_lose_nothing_that_was_acknowledged(consistency: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(20):
        counts += simulate(seed, consistency, memory=3000 + 1800 * seed)
    # In bsp most of the memory is wanted, and refused, when staged rows are sealed.
    assert counts["refused slices"] > (5 if consistency == "bsp" else 50)
    assert 7 < counts["runs that failed"] < 17


@pytest.mark.parametrize("end", ["driver_leaves", "driver_dies", "server_dies"])
@pytest.mark.parametrize("consistency", ["asp", "ssp:0", "bsp"])
def test_a_run_that_ends_in_the_middle_ends_for_everyone(consistency: str, end: str) -> None:
    counts = run_all(consistency, range(8), troubles=3, **{end: True})
    assert counts["runs that failed"] > 3


def test_zombies_that_push_after_the_end_of_their_session_change_nothing() -> None:
    counts = run_all("asp", range(12), driver_leaves=True, troubles=2)
    assert counts["refused after the end"] > 10


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_the_same_seed_gives_the_same_run(consistency: str) -> None:
    plan = Plan.draw(5, consistency, cut=0.02, drop=0.02, double=0.1, refuse=0.05, troubles=4)
    first, second = Simulation(plan), Simulation(plan)
    assert first.run() == second.run()
    assert first.network.now == second.network.now


def test_any_seed_may_have_every_end() -> None:
    plans = [Plan.any(seed) for seed in range(100)]
    for end in ("server_dies", "driver_leaves", "driver_dies"):
        assert any(getattr(plan, end) for plan in plans), end
    assert {plan.consistency for plan in plans} == {"bsp", "ssp:0", "ssp:1", "ssp:2", "asp"}
