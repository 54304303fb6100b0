"""Deliberate bugs are caught; a failing seed becomes a short story."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sparkps.testing.simulation import Plan, Simulation, Violation
from sparkps.testing.simulation.__main__ import main
from sparkps.testing.simulation.bugs import BUGS
from sparkps.testing.simulation.shrink import shrink

#: Seeds within which a deliberate bug must be caught.
SOON = 200


def run_all(consistency: str, fixed: dict[str, Any]) -> None:
    for seed in range(SOON):
        Simulation(Plan.draw(seed, consistency, **fixed)).run()


@pytest.mark.parametrize(
    ("name", "consistency"),
    [(bug.name, consistency) for bug in BUGS.values() for consistency in bug.consistency],
)
def test_a_deliberate_bug_is_caught(name: str, consistency: str) -> None:
    bug = BUGS[name]
    with bug.planted(), pytest.raises(Violation) as caught:
        run_all(consistency, bug.plan)
    # A bug that only raises somewhere would prove nothing of the invariants.
    assert caught.value.rule != "crash", caught.value


def test_without_its_bug_a_seed_holds_again() -> None:
    with BUGS["no gap check"].planted():
        pass
    assert Simulation(Plan.draw(0, "asp")).run()["reads"] > 0


def test_a_failing_seed_becomes_a_short_story_that_names_the_invariant() -> None:
    with BUGS["a write is given up with its connection"].planted():
        violation = shrink(2, "asp")
        assert violation is not None
        with pytest.raises(Violation, match="invariant 'kept' is broken"):
            Simulation(violation.plan).run()
    plan, story = violation.plan, str(violation).splitlines()
    assert len(story) <= 40
    assert "'kept' is broken" in story[0]
    assert "Write(rank=0" in story[1]
    assert plan.size == plan.servers == plan.epochs == 1
    assert (plan.troubles, plan.double, plan.slow, plan.refuse) == (0, 0.0, 0.0, 0.0)


def test_a_seed_that_holds_has_no_story() -> None:
    assert shrink(0, "asp") is None


def test_the_command_tells_how_many_seeds_hold() -> None:
    out = io.StringIO()
    assert main(["--seed", "5", "--seeds", "3"], out) == 0
    assert out.getvalue().startswith("3 seeds in ")


def test_the_command_tells_the_story_of_a_seed_that_fails() -> None:
    out = io.StringIO()
    with BUGS["ledgers outlive their session"].planted():
        assert main(["--seconds", "60"], out) == 1
    assert "breaks the invariant 'session'" in out.getvalue()
    assert "to run it again:\n  Simulation(Plan(seed=" in out.getvalue()
