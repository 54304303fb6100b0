"""Compile the kernels. All other metadata stands in ``setup.cfg``."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# SEMANTICS of "same bits": no contraction of a*b+c, no fast-math, no code for one CPU model only.
COMPILE_ARGS = ["-O3", "-ffp-contract=off", "-fno-math-errno"]

extensions = [
    Extension(
        f"sparkps.kernels.{path.stem}",
        [str(path)],
        extra_compile_args=COMPILE_ARGS,
    )
    for path in sorted(Path("sparkps/kernels").glob("*.pyx"))
]

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
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
