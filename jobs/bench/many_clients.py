"""Whether one server shares itself fairly: clients in a closed loop of keyset pulls, for a while.

First one client alone, then all of them. Prints one JSON object: the latency of all calls, the
slowest client's rate against the mean, and the total rate against that of the one alone.

    python jobs/bench/many_clients.py --clients 10 --seconds 30
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from sparkps.optim import AdaGrad
from sparkps.testing import LocalCluster


class PullForAWhile:
    """Each worker pulls its keyset again and again, and tells its calls' times in a table."""

    def __init__(self, table: str, keys: int, seconds: float) -> None:
        self.table, self.keys, self.seconds = table, keys, seconds

    def __call__(self, worker: Any, present: np.ndarray) -> dict[str, list[float]]:
        keyset = worker.table(self.table).keyset(present)
        for _ in range(10):
            keyset.pull()
        times = []
        end = time.perf_counter() + self.seconds
        while (began := time.perf_counter()) < end:
            keyset.pull()
            times.append(time.perf_counter() - began)
        calls = np.array(times)
        counts = np.zeros(BUCKETS.size + 1)
        np.add.at(counts, np.searchsorted(BUCKETS, calls), 1)
        mine = np.zeros(worker.size)
        mine[worker.rank] = len(calls)
        return {"counts": counts.tolist(), "calls": mine.tolist()}


#: Upper bounds of the latencies that are told apart, in seconds: 2 % steps from 50 µs to a minute.
BUCKETS = 50e-6 * 1.02 ** np.arange(710)


def quantile(counts: np.ndarray, q: float) -> float:
    at = int(np.searchsorted(np.cumsum(counts), q * counts.sum()))
    return float(BUCKETS[min(at, BUCKETS.size - 1)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--keys", type=int, default=100_000, help="keys per call")
    parser.add_argument("--table-keys", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    present = rng.integers(-(2**62), 2**62, args.table_keys)
    with LocalCluster(servers=1) as cluster:
        table = cluster.table("bench", optimizer=AdaGrad())
        for some in np.array_split(present, -(-args.table_keys // 100_000)):
            table.push(some, np.ones(len(some), np.float32))

        def run(clients: int, seconds: float) -> dict[str, Any]:
            batches = [[rng.choice(present, args.keys, replace=False)] for _ in range(clients)]
            step = PullForAWhile("bench", args.keys, seconds)
            patience = seconds + 120
            return cluster.run_workers(step, batches, consistency="asp", timeout=patience)[0]

        alone = run(1, args.seconds / 5)
        together = run(args.clients, args.seconds)
    counts, calls = np.array(together["counts"]), np.array(together["calls"])
    one = alone["calls"][0] / (args.seconds / 5)
    total = calls.sum() / args.seconds
    p50, p99 = quantile(counts, 0.5), quantile(counts, 0.99)
    print(
        json.dumps(
            {
                "bench": "many_clients",
                "clients": args.clients,
                "keys": args.keys,
                "keys_per_s": round(total * args.keys),
                "one_client_keys_per_s": round(one * args.keys),
                "total_to_one": round(total / one, 3),
                "slowest_to_mean": round(float(calls.min() / calls.mean()), 3),
                "p50_us": round(p50 * 1e6, 1),
                "p99_us": round(p99 * 1e6, 1),
                "p99_to_p50": round(p99 / p50, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
