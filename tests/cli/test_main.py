from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sparkps
from sparkps.cli.main import main
from sparkps.config import Settings
from sparkps.plugin import PLUGIN, jar_path


def test_conf_prints_what_spark_submit_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "--jars", "mine.jar", "--plugins", "my.Plugin"]) == 0
    words = capsys.readouterr().out.split()
    assert words[:2] == ["--jars", f"mine.jar,{jar_path()}"]
    assert f"spark.plugins=my.Plugin,{PLUGIN}" in words


def test_the_verbs_need_nothing_that_doctor_may_find_missing() -> None:
    code = (
        "import sys, sparkps.cli.main\n"
        "print([name for name in sys.modules if 'kernels.' in name or name == 'pyarrow'])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_settings_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    assert capsys.readouterr().out.strip() == Settings.describe().strip()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--conf", "spark.sparkps.heartbeet=2s"], "did you mean 'heartbeat'?"),
        (["--conf", "spark.executor.memory=2g"], "--conf takes spark.sparkps.KEY=VALUE"),
        (["--servers", "0"], "setting servers=0: must be a whole number, 1 to 1024"),
        (["--key-file", "/nowhere/key"], "key.file='/nowhere/key': cannot be made"),
    ],
)
def test_a_wrong_argument_is_a_sentence_and_status_1(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", *arguments]) == 1
    assert sentence in capsys.readouterr().err


def test_it_runs_as_a_module_and_says_its_version(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sparkps", "--version"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.strip() == sparkps.__version__
