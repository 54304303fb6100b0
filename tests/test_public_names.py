from __future__ import annotations

import subprocess
import sys

import pytest

import sparkps


def test_the_public_face_is_small_and_sorted() -> None:
    assert sparkps.__all__ == sorted(sparkps.__all__)
    assert len(sparkps.__all__) <= 25


@pytest.mark.parametrize("name", sparkps.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(sparkps, name).__doc__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        sparkps.nonsense  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = """if True:
        import sys, sparkps, sparkps.errors
        heavy = {"pyspark", "pandas", "scipy", "pyarrow", "numpy", "zmq"}
        print(sorted(heavy & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
