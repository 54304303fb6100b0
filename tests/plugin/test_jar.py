"""The jar: it compiles without a warning, and a checkout without it says what to do."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest

from sparkps import errors, plugin

SOURCES = sorted((Path(plugin.__file__).parent / "java").rglob("*.java"))
JARS = Path(pyspark.__file__).parent / "jars"


def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    # Jars of Spark name jars beside them that are not shipped, which "path" would warn of.
    done = subprocess.run(
        [
            "javac", "--release", "11", "-Xlint:all,-path", "-Werror",
            "-cp", f"{JARS}/*", "-d", str(tmp_path), *map(str, SOURCES),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_jar_has_every_class_and_no_time_of_its_build() -> None:
    with zipfile.ZipFile(plugin.jar_path()) as jar:
        names = set(jar.namelist())
        assert {info.date_time for info in jar.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert {f"org/sparkps/{path.stem}.class" for path in SOURCES} <= names
    assert plugin.PLUGIN.replace(".", "/") + ".class" in names


def test_a_checkout_that_was_not_built_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_JAR", tmp_path / "sparkps.jar")
    with pytest.raises(errors.JarMissing, match=r"sparkps\.jar is missing, so this .* JDK"):
        plugin.jar_path()
