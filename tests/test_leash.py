"""The leash that needs no interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: A process whose interpreter is held for ever, with a leash on its stdin.
HELD = """
import re, sys, threading
from sparkps import _leash
last = (0, 200, *(name.encode() for name in sys.argv[1:]))
threading.Thread(target=_leash.hold, args=last, daemon=True).start()
print("held", flush=True)
re.match("(a+)+$", "a" * 60 + "b")
"""


def test_a_process_whose_interpreter_is_held_ends_with_its_parent(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    socket = directory / "s0"
    socket.touch()
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(socket), str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == b"held\n"
            process.stdin.write(b"what is not read holds up nobody\n")
            process.stdin.flush()
            assert process.poll() is None
            process.stdin.close()
            assert process.wait(30) == 1
        finally:
            process.kill()
    assert not directory.exists()
