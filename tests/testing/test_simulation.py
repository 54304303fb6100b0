"""The three cores together: every seed holds, and deliberate bugs are caught within some tens."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparkps.client import split
from sparkps.client.seat import Seat
from sparkps.coordinator.run import Run
from sparkps.errors import SessionEnded
from sparkps.kernels import ledger as kernels
from sparkps.server import writes
from sparkps.server.sessions import OpenSession, Sessions
from sparkps.server.state import State
from sparkps.testing.simulation import Plan, Simulation, Violation, simulate
from sparkps.wire.messages import APPLIED, DUPLICATE

#: Seeds of each test of a consistency; a seed takes 50 to 100 ms.
SEEDS = range(70)
#: Seeds within which a deliberate bug must be caught.
SOON = 60


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
    for what in ("cuts", "false alarms", "duplicates", "gaps", "slices not served", *also):
        assert counts[what] > 10, what
    for kind in ("kill", "double", "pause", "cut off", "server", "coordinator"):
        assert counts[f"trouble: {kind}"] > 5, kind
    assert counts["tokens passed"] > 10
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
    for seed in range(40):
        counts += simulate(seed, consistency, memory=3000 + 900 * seed)
    # In bsp most of the memory is wanted, and refused, when staged rows are sealed.
    assert counts["refused slices"] > (5 if consistency == "bsp" else 100)
    assert 15 < counts["runs that failed"] < 30


@pytest.mark.parametrize("consistency", ["asp", "ssp:0", "bsp"])
def test_a_run_that_is_closed_in_the_middle_leaves_nothing_behind(consistency: str) -> None:
    counts = run_all(consistency, range(20), driver_leaves=True, troubles=3)
    assert counts["runs that failed"] > 10


@pytest.mark.parametrize("consistency", ["asp", "ssp:0", "bsp"])
def test_a_dead_server_ends_the_run_for_everyone(consistency: str) -> None:
    counts = run_all(consistency, range(20), server_dies=True, troubles=3)
    assert counts["runs that failed"] > 10


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_the_same_seed_gives_the_same_run(consistency: str) -> None:
    plan = Plan.draw(5, consistency, cut=0.02, refuse=0.05, troubles=4)
    first, second = Simulation(plan), Simulation(plan)
    assert first.run() == second.run()
    assert first.network.now == second.network.now


# --- deliberate bugs


def caught_within(consistency: str, **fixed: Any) -> int:
    """How many seeds it takes until a violation."""
    for seed in range(SOON):
        try:
            simulate(seed, consistency, **fixed)
        except Violation:
            return seed + 1
    pytest.fail(f"the bug is not caught in {SOON} seeds")


def patch_check(monkeypatch: pytest.MonkeyPatch, check: Any) -> None:
    """Replace the ledger's kernel in writes; seals keep theirs."""
    monkeypatch.setattr(writes, "kernels", SimpleNamespace(check=check))


@pytest.mark.parametrize("consistency", ["asp", "ssp:1", "bsp"])
def test_no_gap_check_is_caught(monkeypatch: pytest.MonkeyPatch, consistency: str) -> None:
    def check(pa: Any, ledger: Any, slices: Any, *rest: Any) -> int:
        forgetful = slices.copy()
        forgetful[:, 3:] = -1
        return kernels.check(pa, ledger, forgetful, *rest)

    patch_check(monkeypatch, check)
    caught_within(consistency)


def test_staged_duplicates_that_are_not_recognised_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check(pa: Any, ledger: Any, slices: Any, clock: int, seq: int, *rest: Any) -> int:
        _, staged, status = rest
        accepted = kernels.check(pa, ledger, slices, clock, seq, *rest)
        for i in np.flatnonzero(status == DUPLICATE).tolist() if staged else ():
            partition, piece = slices[i, :2].tolist()
            if [clock, seq << 32 | piece] > ledger[partition, 3:5].tolist():
                status[i] = APPLIED
                accepted += 1
        return accepted

    patch_check(monkeypatch, check)
    caught_within("bsp")


def test_a_missing_final_seal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "_seal", lambda self, clock, what, then: then())
    caught_within("bsp")


def test_one_position_for_two_slices_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = split.cut

    def careless(*args: Any) -> Any:
        slices = cut(*args)
        slices[:, 1] = 0
        return slices

    monkeypatch.setattr(split, "cut", careless)
    caught_within("asp")


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_a_zombie_after_the_end_of_its_session_is_caught(
    monkeypatch: pytest.MonkeyPatch, consistency: str
) -> None:
    closed: dict[int, OpenSession] = {}
    close, check = Sessions.close, Sessions.check

    def remember(self: Sessions, session: int) -> None:
        closed[session] = self._open[session]
        close(self, session)

    def forgive(self: Sessions, session: int, rank: int, token: int) -> OpenSession:
        try:
            return check(self, session, rank, token)
        except SessionEnded:
            return closed[session]

    monkeypatch.setattr(Sessions, "close", remember)
    monkeypatch.setattr(Sessions, "check", forgive)
    caught_within(consistency, driver_leaves=True, troubles=1)


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_a_zombie_with_an_old_token_is_caught(
    monkeypatch: pytest.MonkeyPatch, consistency: str
) -> None:
    monkeypatch.setattr(Sessions, "check", lambda self, session, rank, token: self.find(session))
    caught_within(consistency, troubles=4)


def test_a_clock_that_is_reported_before_it_is_acknowledged_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Seat, "acknowledged", property(lambda self: self.clock))
    caught_within("asp")


def test_a_seal_of_one_clock_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = State.seal
    monkeypatch.setattr(
        State, "seal", lambda self, hosted, session, clock: seal(self, hosted, session, clock + 1)
    )
    caught_within("bsp")


def test_a_refusal_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes.Entry, "recall", lambda self: None)
    caught_within("asp", memory=9000, cut=0.1)
