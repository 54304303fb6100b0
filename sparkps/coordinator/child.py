"""How a child starts: ``python -m sparkps.coordinator.child MODULE PARENT SIGNAL DIRECTORY``.

It ties its life to its parent's before anything else is imported, then becomes ``python -m
MODULE``:

* The parent's death sends it SIGNAL (Linux). That is set only for children of a thread that stays
  in ``waitpid``, since it fires when the *thread* that forked ends; so it is the launcher's to ask
  for.
* A parent that is gone already is noticed by its process id.
* Ctrl-C is for the parent, which stops its children in order.
* The directory that the child works for is the last argument, so that a list of processes tells
  whose it is.

The leash proper, stdin at its end, is the programs' own, and all there is on other systems.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tie_to(parent: int, number: int) -> bool:
    """Have ``number`` sent at the parent's death; return whether the parent lives."""
    if number and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    return os.getppid() == parent


def main(arguments: list[str]) -> None:
    """Run the module that the arguments name."""
    module, parent, number = arguments[:3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if tie_to(int(parent), int(number)):
        # ``-m`` puts the working directory first; what lies there must not hide our modules. (From
        # Python 3.11 on the launcher forbids it, which also spares the modules imported above.)
        if not getattr(sys.flags, "safe_path", False):
            sys.path.append(sys.path.pop(0))
        del sys.argv[1:]  # ours, not the module's
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
