"""Runs seeds for a while: ``python -m sparkps.testing.simulation --seconds 60``.

A seed decides everything, the consistency too; ``--seed 17 --seeds 1`` runs one again. The first
that breaks an invariant is made small and told, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TextIO

from sparkps.testing.simulation.history import Violation
from sparkps.testing.simulation.plan import Plan
from sparkps.testing.simulation.shrink import shrunk
from sparkps.testing.simulation.simulation import Simulation

#: Seconds between two lines that say how far it is.
_EVERY: Final = 5.0
#: What those lines count.
_TOLD: Final = ("cuts", "drops", "duplicates", "gaps", "zombies refused", "tokens passed")


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Run seeds; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sparkps.testing.simulation")
    parser.add_argument("--seconds", type=float, help="how long to go on (60 without --seeds)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, help="how many seeds at most")
    asked = parser.parse_args(arguments)
    seconds = 60.0 if asked.seconds is None and asked.seeds is None else asked.seconds
    seeds = itertools.islice(itertools.count(asked.seed), asked.seeds)
    return _soak(seeds, float("inf") if seconds is None else seconds, out)


def _soak(seeds: Iterable[int], seconds: float, out: TextIO) -> int:
    begun = told = time.monotonic()
    counts: Counter[str] = Counter()
    done = 0
    for seed in seeds:
        plan = Plan.any(seed)
        try:
            counts.update(Simulation(plan).run())
        except Violation as violation:
            _say(out, f"seed {seed} breaks the invariant {violation.rule!r}; it is made smaller")
            _say(out, str(shrunk(plan) or violation))
            return 1
        done += 1
        now = time.monotonic()
        if now >= begun + seconds:
            break
        if now >= told + _EVERY:
            told = now
            _say(out, _progress(done, now - begun, counts))
    _say(out, _progress(done, time.monotonic() - begun, counts))
    return 0


def _progress(done: int, seconds: float, counts: Counter[str]) -> str:
    happened = ", ".join(f"{counts[what]} {what}" for what in _TOLD)
    return f"{done} seeds in {seconds:.0f} s, all invariants hold: {happened}"


def _say(out: TextIO, text: str) -> None:
    out.write(f"{text}\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
