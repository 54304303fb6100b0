"""The README says what the code says."""

from __future__ import annotations

from pathlib import Path

import sparkps
from sparkps.cli.main import parser
from sparkps.config import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_settings_table_is_the_code_s_own() -> None:
    assert Settings.describe().rstrip() in README


def test_every_verb_of_the_command_line_is_in_the_readme() -> None:
    actions = [action.choices for action in parser()._actions if isinstance(action.choices, dict)]
    assert len(actions[0]) >= 4
    for verb in actions[0]:
        assert f"python -m sparkps {verb}" in README, verb


def test_every_public_name_is_short_of_many_and_has_a_docstring() -> None:
    assert len(sparkps.__all__) <= 25
    for name in sparkps.__all__:
        assert name == "__version__" or getattr(sparkps, name).__doc__, name


def test_every_benchmark_is_listed() -> None:
    for script in (ROOT / "jobs" / "bench").glob("*.py"):
        assert script.name == "echo.py" or f"`jobs/bench/{script.name}`" in README
