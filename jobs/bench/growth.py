"""What a growing hashed FTRL table costs: memory per key, and the pauses that growth makes.

Keys are pushed at random order in messages of 100,000. At every million the peak resident memory
since the last one, less that of an empty server, is divided by the keys. Meanwhile a second client
pulls one key every 2 ms; its longest answer is the pause. Prints one JSON object per million, and
one for the worst.

    python jobs/bench/growth.py --first 5 --last 24
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from sparkps.optim import FTRL
from sparkps.testing import LocalCluster


class PullOneKey:
    """A second client: one key, every 2 ms, until it is told to end by the table itself."""

    def __call__(self, worker: Any, name: str) -> dict[str, list[float]]:
        table, orders = worker.table(name), worker.table("orders")
        pause = threading.Event()
        worst, number = 0.0, 0
        while True:
            began = time.perf_counter()
            table.pull([7])
            worst = max(worst, time.perf_counter() - began)
            number += 1
            if number % 50 == 0 and orders.pull([0])[0]:
                return {"worst": worst, "calls": number}
            pause.wait(0.002)


def memory(pid: int, what: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=5, help="million keys")
    parser.add_argument("--last", type=int, default=24, help="million keys")
    args = parser.parse_args()
    keys = np.random.default_rng(0).permutation(args.last * 1_000_000) * 0x9E3779B1
    step = 100_000
    with LocalCluster(servers=1) as cluster:
        table = cluster.table("growth", optimizer=FTRL())
        orders = cluster.table("orders", dtype="int64", dim=1)
        pid = cluster.pids()["server 0"]
        empty = memory(pid, "VmRSS")
        pulls = cluster.start_workers(PullOneKey(), [["growth"]], consistency="asp")
        worst = 0.0
        for million in range(1, args.last + 1):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # a new peak from here on
            for begin in range((million - 1) * 1_000_000, million * 1_000_000, step):
                some = keys[begin : begin + step]
                table.push(some, np.ones(len(some), np.float32))
            if million >= args.first:
                per_key = (memory(pid, "VmHWM") - empty) / (million * 1e6)
                worst = max(worst, per_key)
                line = {"bench": "growth", "keys": million * 10**6, "bytes_per_key": per_key}
                print(json.dumps(line | {"bytes_per_key": round(per_key, 2)}), flush=True)
        orders.assign([0], [1])
        pauses = pulls.wait(60)[0]
    result = {"bench": "growth", "worst_bytes_per_key": round(worst, 2)}
    result["longest_pause_ms"] = round(pauses["worst"] * 1e3, 1)
    print(json.dumps(result | {"pulls": pauses["calls"]}))


if __name__ == "__main__":
    main()
