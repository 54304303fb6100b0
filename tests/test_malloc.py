"""Freed memory is kept."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import numpy as np

from sparkps._malloc import KEPT, OWN_PAGES, keep_freed_memory


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_arrays_made_again_and_again_use_the_same_pages() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
    assert keep_freed_memory() == keep_freed_memory()

    def use() -> None:
        for array in [np.empty(KEPT // 64, np.uint8) for _ in range(8)]:
            array[::4096] = 1

    use()
    before = faults()
    for _ in range(20):
        use()
    pages = 20 * KEPT // 8 // 4096
    assert faults() - before < pages // 4


def test_large_arrays_have_pages_of_their_own() -> None:
    # In a process of its own: in a heap with a hole of that size, the array would lie there.
    found = subprocess.run(
        [sys.executable, "-c", LARGE], check=True, capture_output=True, text=True
    )
    assert int(found.stdout) > 0


LARGE = f"""
import resource
import numpy as np
from sparkps._malloc import keep_freed_memory

keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    np.empty({2 * OWN_PAGES}, np.uint8)[::4096] = 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
