"""``spark.sparkps.test.server``: ``fails`` or is ``silent`` before it is up, ``ends`` after, or
unset.
``spark.sparkps.test.holding``: the executor whose servers hold a table until SIGUSR1. With SIGUSR2
it leaves as if it was told to.
"""

from __future__ import annotations

import signal
import sys

from sparkps.record import begin, end, say


def leave(*_: object) -> None:
    say("leaving")
    sys.exit(0)


def main() -> int:
    first, settings = begin("server")
    if settings.get("server") == "fails":
        say("failed the coordinator refused it")
        return 4
    signal.signal(signal.SIGUSR1, lambda *_: say("holding 0"))
    signal.signal(signal.SIGUSR2, leave)
    if settings.get("holding") == first["executor"]:
        say("holding 1")
    if settings.get("server") != "silent":
        say(f"up {first['server']}")
    if settings.get("server") == "ends":
        return 5
    sys.stdin.read()
    end(first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
