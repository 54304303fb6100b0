"""What both children do: read the first line, write down who they are, say words."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def begin(role: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the first line, and the settings ``spark.sparkps.test.*`` in it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = json.loads(sys.stdin.readline())
    settings = {
        key.removeprefix("spark.sparkps.test."): value
        for key, value in first["conf"].items()
        if key.startswith("spark.sparkps.test.")
    }
    record = {
        "role": role,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "first": first,
        "safe_path": sys.flags.safe_path,
        "environment": Path("/proc/self/environ").read_bytes().decode().split("\0"),
        "arguments": Path("/proc/self/cmdline").read_bytes().decode().split("\0"),
        "log": os.readlink("/proc/self/fd/2"),
    }
    directory = Path(settings["dir"])
    begun = directory / f".{os.getpid()}"
    begun.write_text(json.dumps(record))
    begun.rename(directory / f"{role}-{os.getpid()}.json")
    sys.stderr.write(f"{role} {os.getpid()} begins\n")
    return first, settings


def end(first: dict[str, Any]) -> None:
    """Leave nothing: the parent may be gone."""
    with contextlib.suppress(FileNotFoundError):
        Path(first["directory"]).rmdir()


def say(words: str) -> None:
    """A word to the parent."""
    sys.stdout.write(f"sparkps {words}\n")
    sys.stdout.flush()
