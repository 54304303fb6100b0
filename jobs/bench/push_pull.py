"""How fast rows move between one client and one server, against a bare echo of the same bytes.

One hashed AdaGrad table (float32, width 1), keys drawn at random from those that exist, one call in
flight, TCP loopback. Each call is followed by an echo call that moves frames of exactly the sizes
that the call moved; a push counts until it is acknowledged. Prints one JSON object per measurement;
rates come from the median call.

With ``--compare`` the same calls go to clusters of two securities instead, one call here, one
there, in pairs of series (every second pair the other way round): the ratio of a pair is that of
its median calls, and the median over the pairs is printed.

    python jobs/bench/push_pull.py --keys 100 1000 100000
    python jobs/bench/push_pull.py --compare auth encrypt
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

from sparkps.client.shell import Client, client_for
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


def filled(client: Client, cluster: LocalCluster, present: np.ndarray) -> Table:
    """The table, with a row of each of these keys."""
    table = Table(client, cluster.table("bench", optimizer=AdaGrad()).info)
    for some in np.array_split(present, -(-len(present) // 100_000)):
        table.push(some, np.ones(len(some), np.float32))
    return table


@contextmanager
def cluster_of(security: str, present: np.ndarray) -> Iterator[Table]:
    """A cluster of one server that is reached by tcp, and its table."""
    with LocalCluster(servers=1, bind_host="127.0.0.1", security=security) as cluster:
        client = client_for(dataclasses.replace(cluster.info, tcp=True), "driver")
        yield filled(client, cluster, present)
        client.close()


def in_pairs(
    one: Callable[[], object], other: Callable[[], object], calls: int, pairs: int
) -> list[float]:
    """By pair, the rate of ``one`` over that of ``other``."""
    ratios = []
    for number in range(pairs):
        both = [one, other] if number % 2 else [other, one]
        for call in both:
            call()
        times = np.median([[timed(call) for call in both] for _ in range(calls)], axis=0)
        ratios.append(float(times[1] / times[0] if number % 2 else times[0] / times[1]))
    return ratios


def compare(securities: list[str], args: argparse.Namespace) -> None:
    """Each security against ``none``."""
    rng = np.random.default_rng(0)
    present = rng.integers(-(2**62), 2**62, args.table_keys)
    for security in securities:
        all_ratios: list[float] = []
        with cluster_of("none", present) as plain, cluster_of(security, present) as secured:
            for count in args.keys:
                keys = rng.choice(present, count, replace=False)
                values = rng.random(count, np.float32)
                theirs = operations(plain, keys, values)
                for (op, mode), call in operations(secured, keys, values).items():
                    if mode not in args.modes:
                        continue
                    other = theirs[op, mode]
                    each = args.seconds / args.pairs / 2
                    calls = int(np.clip(each / (timed(call) + timed(other)) * 2, 10, 2000))
                    ratios = in_pairs(call, other, calls, args.pairs)
                    all_ratios += ratios
                    told(
                        op=op, mode=mode, keys=count, security=security, pairs=args.pairs,
                        rate_over_none=round(float(np.median(ratios)), 3),
                        lowest=round(min(ratios), 3), highest=round(max(ratios), 3),
                    )  # fmt: skip
        told(security=security, rate_over_none=round(float(np.median(all_ratios)), 3))


def told(**figures: Any) -> None:
    print(json.dumps({"bench": "push_pull", **figures}), flush=True)


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
    parser.add_argument(
        "--compare", nargs="+", choices=("auth", "encrypt"), help="securities to compare with none"
    )
    parser.add_argument("--pairs", type=int, default=10, help="pairs of --compare (default 10)")
    args = parser.parse_args()
    if args.compare:
        compare(args.compare, args)
        return
    rng = np.random.default_rng(0)
    present = rng.integers(-(2**62), 2**62, args.table_keys)
    with cluster_of("auth", present) as table, Echo() as echo:
        for count in args.keys:
            keys = rng.choice(present, count, replace=False)
            values = rng.random(count, np.float32)
            for (op, mode), call in operations(table, keys, values).items():
                if mode not in args.modes:
                    continue
                calls = int(np.clip(args.seconds / (timed(call) + timed(call)), 50, 2000))
                ours, bare = measure(call, echo, calls)
                rate, echo_rate = count / np.median(ours), count / np.median(bare)
                told(
                    op=op, mode=mode, keys=count,
                    keys_per_s=round(rate), echo_keys_per_s=round(echo_rate),
                    ratio=round(rate / echo_rate, 3),
                    p50_us=round(float(np.median(ours)) * 1e6, 1),
                    p99_us=round(float(np.percentile(ours, 99)) * 1e6, 1),
                )  # fmt: skip


if __name__ == "__main__":
    main()
