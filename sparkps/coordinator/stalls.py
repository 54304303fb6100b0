"""Stalls: which rank others wait for, since when, and when that is too long.

The rules: a rank that others wait for is named after ``stall.warn`` and ends the run after
``stall.fatal``. Time counts from its last progress, or from when the others began to wait,
whichever is later. A rank that has finished waits for all that have not. A task that reads its rows
is only named: a big input may take its time, and Spark watches over its tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkps.config import Settings
from sparkps.coordinator.gate import Gate
from sparkps.coordinator.ranks import Rank
from sparkps.errors import WorkerStalled


@dataclass(frozen=True, slots=True)
class Stalls:
    """What was found: sentences to warn with, and the error that ends the run, if any."""

    warnings: list[str]
    fatal: WorkerStalled | None


def find_stalls(ranks: list[Rank], gate: Gate, settings: Settings, now: float) -> Stalls:
    """Find the ranks that hold others back too long; each stall is warned of once."""
    warnings: list[str] = []
    for rank in ranks:
        if now - rank.since < settings.stall_warn:
            continue  # it is not that long that it could be held back; most ranks end here
        since = _held_back_since(rank, ranks, gate)
        if since is None:
            continue
        seconds = now - max(since, rank.since)
        host, pid = rank.place()
        clock = gate.acknowledged(rank)
        reading = rank.holder is not None and not rank.begun
        if seconds >= settings.stall_fatal and not reading:
            return Stalls(
                warnings,
                WorkerStalled(
                    rank=rank.number, host=host, pid=pid, clock=clock, seconds=round(seconds, 3)
                ),
            )
        if seconds >= settings.stall_warn and rank.warned != rank.since:
            rank.warned = rank.since
            if rank.holder is None:
                doing = f"at clock {clock} has had no task"
            else:
                doing = "has been reading its rows" if reading else f"has been at clock {clock}"
            warnings.append(
                f"rank {rank.number} on {host} (pid {pid}) {doing} for {seconds:.0f} s "
                "and holds the others back"
            )
    return Stalls(warnings, None)


def _held_back_since(rank: Rank, ranks: list[Rank], gate: Gate) -> float | None:
    """Since when others have been waiting for a rank; None if nobody does."""
    if rank.finished or rank.waiting is not None:
        return None
    if not gate.begun:
        return None if rank.read else min((r.since for r in ranks if r.read), default=None)
    return min(
        (
            other.waiting_since
            for other in ranks
            if other.finished or (other.waiting is not None and gate.holds_back(rank, other))
        ),
        default=None,
    )
