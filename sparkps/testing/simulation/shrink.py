"""A failing seed made small: less of everything, as long as the same invariant breaks.

Fewer ranks, epochs, batches, servers, partitions, writes and keys, and each kind of fault without
the others, one at a time and again until nothing helps. What a run draws depends on all of its
plan, so a smaller plan is tried with some other seeds too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sparkps.testing.simulation.history import Violation
from sparkps.testing.simulation.plan import PLENTY, Plan
from sparkps.testing.simulation.simulation import Simulation

#: Seeds that a smaller plan is tried with, beside its own.
_SEEDS: Final = 8
#: Events of all runs together: half a minute.
_EVENTS: Final = 300_000


def shrink(seed: int, consistency: str = "", **fixed: Any) -> Violation | None:
    """Find the smallest run that breaks the same invariant as a seed.

    Parameters
    ----------
    seed, consistency, **fixed
        As for :func:`sparkps.testing.simulation.simulate`.

    Returns
    -------
    Violation or None
        Its text is the story; None if the seed breaks nothing.
    """
    plan = Plan.draw(seed, consistency, **fixed) if consistency else Plan.any(seed, **fixed)
    return shrunk(plan)


def shrunk(plan: Plan) -> Violation | None:
    """The same, of a plan."""
    violation, left = _run(plan, _EVENTS)
    if violation is None:
        return None
    tried: set[Plan] = set()
    helped = True
    while helped and left > 0:
        helped = False
        for smaller in _smaller(violation.plan):
            if smaller in tried or left <= 0:
                continue
            tried.add(smaller)
            found, left = _find(smaller, violation, left)
            if found is not None:
                violation, helped = found, True
                break
    return violation


def _find(plan: Plan, like: Violation, left: int) -> tuple[Violation | None, int]:
    """The first of some seeds that breaks the same invariant."""
    for seed in (plan.seed, *range(_SEEDS)):
        found, left = _run(replace(plan, seed=seed), left)
        if found is not None and found.rule == like.rule:
            return found, left
        if left <= 0:
            break
    return None, left


def _run(plan: Plan, left: int) -> tuple[Violation | None, int]:
    simulation = Simulation(plan)
    found = None
    try:
        simulation.run()
    except Violation as violation:
        found = violation
    return found, left - simulation.history.counts["steps"]


#: What a plan has of each, most drastic first.
_LESS: Final[dict[str, tuple[Any, ...]]] = {
    "epochs": (1, 2),
    "servers": (1, 2),
    "troubles": (0, 1, 2),
    "cut": (0.0,),
    "drop": (0.0,),
    "double": (0.0,),
    "slow": (0.0,),
    "refuse": (0.0,),
    "memory": (PLENTY,),
    "keysets": (1 << 20,),
    "server_dies": (False,),
    "driver_leaves": (False,),
    "driver_dies": (False,),
    "barrier_epochs": (False,),
    "clock_every": ("batch",),
    "partitions": (1, 2, 4),
    "writes": (1, 2),
    "markers": (1, 2, 4),
    "shared": (0, 1),
    "changes": (0, 1),
    "optimizer": ("sgd",),
    "window": (1 << 20,),
    "message_rows": (8,),
    "slice_rows": (3,),
}
#: Of which there is more in a simpler plan.
_MORE: Final = ("memory", "keysets", "window", "message_rows", "slice_rows")


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with less of one thing."""
    for keep in _fewer(plan):
        if any(keep):
            yield replace(plan, batches=keep, pace=(0.0,) * len(keep))
    for name, values in _LESS.items():
        now = getattr(plan, name)
        for value in values:
            if value == now:
                break
            if name in _MORE or isinstance(value, str) or value < now:
                yield replace(plan, **{name: value})
    if any(plan.pace):
        yield replace(plan, pace=(0.0,) * plan.size)


def _fewer(plan: Plan) -> Iterator[tuple[int, ...]]:
    """Batches of fewer ranks, or fewer of one rank."""
    batches = plan.batches
    if plan.size > 1:
        for rank in range(plan.size):
            yield batches[:rank] + batches[rank + 1 :]
    for rank, count in enumerate(batches):
        for less in range(min(count, 2)):
            yield (*batches[:rank], less, *batches[rank + 1 :])
