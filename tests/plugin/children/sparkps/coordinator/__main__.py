"""``spark.sparkps.test.coordinator``: ``fails``, ``silent``, or unset."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sparkps.record import begin, end, say

ADDRESS = json.dumps({"endpoint": "tcp://127.0.0.1:1", "quote": 'a "b" \\ ü'})


def main() -> int:
    first, settings = begin("coordinator")
    if settings.get("coordinator") == "fails":
        say('failed setting spark.sparkps.heartbeat=0: must be a "positive" time')
        return 3
    if settings.get("coordinator") != "silent":
        sys.stdout.write("a greeting of sitecustomize\n")
        say(f"listening {ADDRESS}")
        say("figures servers=2 partitions=6 rows=70 bytes=1.5e9 requests_per_second=8.5 x=none")
    with (Path(settings["dir"]) / "events").open("a") as events:
        for line in sys.stdin:
            events.write(line)
            events.flush()
            if "shutdown" in json.loads(line):
                break
    end(first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
