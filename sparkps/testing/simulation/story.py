"""A violation as a short text: which invariant, how, the plan to run again, and what led to it.

Of the events only those that concern it are told: what happened to the ranks that it names, and
whatever went wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from sparkps.testing.simulation.plan import Plan

#: Events that are told, and characters of a line.
_EVENTS: Final = 30
_WIDTH: Final = 180

_RANK: Final = re.compile(r"\brank[ =](\d+)")
#: What is told whomever it happens to.
_ALWAYS: Final = ("trouble", "the run", "the driver")


def tell(plan: Plan, rule: str, what: str, at: float, events: Sequence[tuple[float, str]]) -> str:
    """Tell a violation in at most 40 lines."""
    about = set(_RANK.findall(what))
    told = [_short(f"  {when:.6f} {text}") for when, text in events if _concerns(text, about)]
    return "\n".join(
        [
            f"seed {plan.seed}: the invariant {rule!r} is broken at {at:.6f} s:",
            _short(f"  {what}", 4),
            "to run it again:",
            f"  Simulation({replayed(plan)}).run()",
            "what led to it:",
            *told[-_EVENTS:],
        ]
    )


def replayed(plan: Plan) -> str:
    """The plan as Python, without what is as usual."""
    different = [
        f"{field.name}={value!r}"
        for field in fields(Plan)
        if field.init and (value := getattr(plan, field.name)) != field.default
    ]
    return f"Plan({', '.join(different)})"


def _concerns(text: str, ranks: set[str]) -> bool:
    named = set(_RANK.findall(text))
    return not ranks or text.startswith(_ALWAYS) or not named.isdisjoint(ranks)


def _short(text: str, lines: int = 1) -> str:
    text = text.replace("\n", " ")
    most = lines * _WIDTH
    return text if len(text) <= most else f"{text[: most - 1]}…"
