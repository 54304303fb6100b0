"""Compile the kernels and the Spark plugin's jar. All other metadata stands in ``setup.cfg``."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError

# SEMANTICS of "same bits": no contraction of a*b+c, no fast-math, no code for one CPU model only.
COMPILE_ARGS = ["-O3", "-ffp-contract=off", "-fno-math-errno"]

JAVA = Path("sparkps/plugin/java")
JAR = Path("sparkps/plugin/sparkps.jar")
MANIFEST = "Manifest-Version: 1.0\r\n\r\n"
#: The first moment that a zip file can tell: the same sources make the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)

extensions = [
    Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        extra_compile_args=COMPILE_ARGS,
    )
    for path in sorted(Path("sparkps").rglob("*.pyx"))
]


def make_jar():
    """Compile the plugin into the source tree, where package data is taken from, if it is old."""
    sources = sorted(JAVA.rglob("*.java"))
    newest = max(path.stat().st_mtime for path in [*sources, Path(__file__)])
    if JAR.exists() and JAR.stat().st_mtime > newest:
        return
    javac = shutil.which("javac")
    if javac is None:
        raise ExecError("javac was not found: a JDK (17 or newer) is needed for the Spark plugin")
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ExecError("pyspark was not found: the Spark plugin is compiled against its jars")
    jars = Path(found.origin).parent / "jars"
    with tempfile.TemporaryDirectory() as classes:
        options = ["--release", "11", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", classes]
        done = subprocess.run([javac, *options, *map(str, sources)], check=False)
        if done.returncode:
            raise ExecError(f"javac failed with exit status {done.returncode}")
        write_jar(Path(classes))


def write_jar(classes):
    """Write the jar at one stroke: a running Spark may have the old one open."""
    begun = JAR.with_suffix(".begun")
    with zipfile.ZipFile(begun, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", EPOCH), MANIFEST)
        for path in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), EPOCH)
            jar.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    begun.replace(JAR)


class BuildPython(build_py):
    """The jar is package data: it must be there before that is collected."""

    def run(self):
        make_jar()
        super().run()


class BuildExtensions(build_ext):
    """``build_ext --inplace`` makes all that is compiled."""

    def run(self):
        make_jar()
        super().run()


setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    cmdclass={"build_py": BuildPython, "build_ext": BuildExtensions},
    ext_modules=cythonize(
        extensions,
        language_level=3,
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": False,
        },
    ),
)
