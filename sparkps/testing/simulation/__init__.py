"""The three cores together, on fake time and an in-memory network, from a seed.

A simulation runs the shipped cores of the coordinator, the servers and the clients, in one process
and one thread, with everything that can go wrong between them: connections that are cut with
messages in flight or lose one from the middle, writes that come twice or late, slices that are
refused, tasks that die, are doubled, paused or cut off, runs that end in the middle. All that
happens is drawn from a seed: a failing seed is a bug report, and can be run again.

>>> counts = simulate(7, "asp", troubles=0)
>>> counts["reads"] > 0
True

``plan`` says what a seed decides, ``machines`` and ``process`` put the cores on the network,
``faults`` has what happens to messages, ``worker``, ``driver`` and ``hands`` tell what a run does,
``reference`` what bsp must compute, ``history`` holds the invariants, ``simulation`` puts it
together. ``shrink`` makes a failing seed small, ``story`` tells it; ``bugs`` are deliberate ones,
each of which is caught.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparkps.testing.simulation.history import Violation
from sparkps.testing.simulation.plan import Plan
from sparkps.testing.simulation.shrink import shrink
from sparkps.testing.simulation.simulation import Simulation

__all__ = ["Plan", "Simulation", "Violation", "shrink", "simulate"]


def simulate(seed: int, consistency: str, **fixed: Any) -> Counter[str]:
    """Run the simulation of a seed.

    Parameters
    ----------
    seed
        Decides everything that is not fixed.
    consistency
        ``"bsp"``, ``"ssp:2"`` or ``"asp"``.
    **fixed
        Attributes of the :class:`Plan`.

    Returns
    -------
    Counter
        How often what happened.

    Raises
    ------
    Violation
        An invariant does not hold.
    """
    return Simulation(Plan.draw(seed, consistency, **fixed)).run()
