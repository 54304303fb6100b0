"""How fast rows move between one client and one server, against a bare echo of the same bytes.

One hashed AdaGrad table (float32, width 1), keys drawn at random from those that exist, one call in
flight, TCP loopback. Each call is followed by an echo call that moves frames of exactly the sizes
that the call moved; a push counts until it is acknowledged. Prints one JSON object per measurement;
rates come from the median call.

    python jobs/bench/push_pull.py --keys 100 1000 100000
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from echo import Echo

from sparkps.client.shell import client_for
from sparkps.client.table import Table
from sparkps.net.rpc import Connection
from sparkps.optim import AdaGrad
from sparkps.testing import LocalCluster

MODES = ("plain", "ordinals", "keyset")


@contextmanager
def recorded() -> Iterator[tuple[list[int], list[int]]]:
    """The sizes of the frames that are sent and received meanwhile."""
    sent: list[int] = []
    received: list[int] = []
    send, receive = Connection.send, Connection.receive

    def sizes(frames: Any) -> list[int]:
        return [memoryview(frame).nbytes for frame in frames]

    def sending(self: Connection, frames: Any) -> None:
        sent.extend(sizes(frames))
        send(self, frames)

    def receiving(self: Connection, timeout_ms: float = 0) -> Any:
        frames = receive(self, timeout_ms)
        received.extend(sizes(frames) if frames is not None else [])
        return frames

    Connection.send, Connection.receive = sending, receiving  # type: ignore[method-assign]
    try:
        yield sent, received
    finally:
        Connection.send, Connection.receive = send, receive  # type: ignore[method-assign]


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(call: Callable[[], object], echo: Echo, calls: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each call, and of the echo call after it."""
    for _ in range(5):
        call()
    with recorded() as (sent, received):
        call()
    frames = echo.prepare(sent, received)
    for _ in range(5):
        echo.call(frames)
    times = np.array([(timed(call), timed(lambda: echo.call(frames))) for _ in range(calls)])
    return times[:, 0], times[:, 1]


def operations(
    table: Table, keys: np.ndarray, values: np.ndarray
) -> dict[tuple[str, str], Callable[[], object]]:
    """Every operation and mode on the same rows."""
    vocabulary = table.vocabulary()
    ordinals = vocabulary.add(keys)
    keyset = vocabulary.keyset(ordinals)
    return {
        ("pull", "plain"): lambda: table.pull(keys),
        ("push", "plain"): lambda: table.push(keys, values),
        ("pull", "ordinals"): lambda: vocabulary.pull(ordinals),
        ("push", "ordinals"): lambda: vocabulary.push(ordinals, values),
        ("pull", "keyset"): keyset.pull,
        ("push", "keyset"): lambda: keyset.push(values),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[100, 1_000, 100_000], help="keys per call"
    )
    parser.add_argument(
        "--table-keys", type=int, default=2_000_000, help="rows of the table (default 2,000,000)"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="seconds per measurement, about (default 3)"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    present = rng.integers(-(2**62), 2**62, args.table_keys)
    with LocalCluster(servers=1, tcp=True) as cluster, Echo() as echo:
        client = client_for(dataclasses.replace(cluster.info, tcp=True), "driver")
        table = Table(client, cluster.table("bench", optimizer=AdaGrad()).info)
        for some in np.array_split(present, -(-args.table_keys // 100_000)):
            table.push(some, np.ones(len(some), np.float32))
        for count in args.keys:
            keys = rng.choice(present, count, replace=False)
            values = rng.random(count, np.float32)
            for (op, mode), call in operations(table, keys, values).items():
                if mode not in args.modes:
                    continue
                calls = int(np.clip(args.seconds / (timed(call) + timed(call)), 50, 2000))
                ours, bare = measure(call, echo, calls)
                rate, echo_rate = count / np.median(ours), count / np.median(bare)
                print(
                    json.dumps(
                        {
                            "bench": "push_pull", "op": op, "mode": mode, "keys": count,
                            "keys_per_s": round(rate), "echo_keys_per_s": round(echo_rate),
                            "ratio": round(rate / echo_rate, 3),
                            "p50_us": round(float(np.median(ours)) * 1e6, 1),
                            "p99_us": round(float(np.percentile(ours, 99)) * 1e6, 1),
                        }
                    ),
                    flush=True,
                )  # fmt: skip
        client.close()


if __name__ == "__main__":
    main()
