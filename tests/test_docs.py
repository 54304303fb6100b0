"""The README says what the code says."""

from __future__ import annotations

from pathlib import Path

from sparkps.config import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_settings_table_is_the_code_s_own() -> None:
    assert Settings.describe().rstrip() in README


def test_every_benchmark_is_listed() -> None:
    for script in (ROOT / "jobs" / "bench").glob("*.py"):
        assert script.name == "echo.py" or f"`jobs/bench/{script.name}`" in README
