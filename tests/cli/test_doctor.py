from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from sparkps.cli import doctor
from sparkps.cli.main import main


def findings(check: object) -> dict[str, doctor.Finding]:
    return {finding.what: finding for finding in check()}  # type: ignore[operator]


def test_a_machine_that_can_run_the_tests_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for what in ("Python", "packages", "kernels", "Spark", "plugin", "Java", "ports", "sockets"):
        assert f"ok    {what}: " in told
    assert told.endswith("all is well\n")


def test_another_python_for_tasks_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    finding = findings(doctor.pythons)["Python of tasks"]
    assert "/nowhere/python: No such file" in finding.found
    assert "set PYSPARK_PYTHON" in finding.advice

    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    finding = findings(doctor.pythons)["Python of tasks"]
    assert "No module named" in finding.found
    assert finding.advice == f"{bare} -m pip install sparkps"

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert not findings(doctor.pythons)["Python of tasks"].advice


def test_a_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert findings(doctor.java)["Java"].advice == "install a JDK (17 or newer), or set JAVA_HOME"


def test_a_master_that_does_not_run_is_told_at_once() -> None:
    (finding,) = doctor.cluster("spark://127.0.0.1:1,[::1]:1")
    assert finding.found == "spark://127.0.0.1:1,[::1]:1 cannot be reached"
    assert finding.advice.startswith("[::1]:1: ")


def test_what_must_be_mended_is_counted_and_is_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = doctor.Finding("ports", "are shut", "open them")
    weak = doctor.Finding("open files", "10", "more of them", fatal=False)
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [bad, weak],))
    assert doctor.run(argparse.Namespace(cluster=False, master=None)) == 1
    told = capsys.readouterr().out
    assert "FAIL  ports: are shut\n       open them" in told
    assert "warn  open files: 10" in told
    assert "1 of these must be mended" in told


@pytest.mark.spark
def test_every_executor_is_asked(monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(doctor, "configure", lambda builder: builder)  # the session is there
    found = findings(lambda: doctor.cluster(None))
    assert found["master"].found == "local[4,4]: 1 executors, 4 slots"
    (executor,) = [finding for what, finding in found.items() if what.startswith("executor on")]
    assert not executor.advice
    assert os.path.basename(sys.executable) in executor.found
