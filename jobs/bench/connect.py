"""What a worker waits for before its first rows come, and what a server's own host is worth.

* *connect*: one client joins the coordinator, connects to every server by tcp and pulls one key
  from each, in one call; with each of the securities. The servers are processes on this machine and
  are up before. Compared with a second client that does the same after the first, since the first
  pays for imports and page faults too.
* *local*: pulls of a keyset, by ipc and by tcp in interleaved pairs, from the same server.

Prints one JSON object per measurement.

    python jobs/bench/connect.py --servers 64
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

import numpy as np
from push_pull import in_pairs

from sparkps.client.keys import remember
from sparkps.client.shell import Client, ClientInfo
from sparkps.client.table import Table
from sparkps.routing.partitioner import owners_of
from sparkps.testing import LocalCluster


def connect(servers: int, security: str, clients: int) -> None:
    """Connect fresh clients, one after the other."""
    with LocalCluster(
        servers=servers,
        bind_host="127.0.0.1",
        security=security,
        start_timeout="300s",
    ) as cluster:
        info = cluster.table("bench", dim=64 * servers, partitions=4 * servers).info
        view = cluster.client().gather(servers, 60.0)
        owners = owners_of(info.id, info.spec.partitions, view)
        # One key of each server: partitions of a dense table are ranges of keys.
        size = info.spec.dim // info.spec.partitions
        keys = np.array([np.flatnonzero(owners == s)[0] * size for s in range(servers)])
        address = cluster.info.coordinator.split(",")[-1]
        if cluster.launcher.secret is not None:
            remember(address, cluster.launcher.secret)
        where = dataclasses.replace(cluster.info, coordinator=address, tcp=True)
        for number in range(clients):
            seconds, connections = first_pull(where, info, keys)
            print(
                json.dumps(
                    {
                        "bench": "connect", "security": security, "servers": servers,
                        "client": number + 1, "connections": connections,
                        "seconds": round(seconds, 4),
                    }
                ),
                flush=True,
            )  # fmt: skip


def first_pull(where: ClientInfo, info: object, keys: np.ndarray) -> tuple[float, int]:
    """Seconds from nothing to the rows, and how many servers they came from."""
    began = time.perf_counter()
    client = Client(where, "reader")
    Table(client, info).pull(keys)  # type: ignore[arg-type]
    seconds = time.perf_counter() - began
    connections = len(client._connections)
    client.close()
    return seconds, connections


def local(keys: int, pairs: int, calls: int) -> None:
    """Pull a keyset by ipc and by tcp."""
    with LocalCluster(servers=1, bind_host="127.0.0.1") as cluster:
        chosen = np.random.default_rng(0).choice(2**40, keys, replace=False)
        pulls = []
        for tcp in (False, True):
            client = Client(dataclasses.replace(cluster.info, tcp=tcp), "driver")
            table = Table(client, cluster.table("bench").info)
            table.push(chosen, np.ones(keys, np.float32))
            vocabulary = table.vocabulary()
            pulls.append(vocabulary.keyset(vocabulary.add(chosen)).pull)
        ratios = in_pairs(pulls[0], pulls[1], calls, pairs)
        for pull in pulls:
            pull.__self__._access.client.close()  # type: ignore[attr-defined]
    print(
        json.dumps(
            {
                "bench": "connect", "op": "pull", "mode": "keyset", "keys": keys, "pairs": pairs,
                "ipc_over_tcp": round(float(np.median(ratios)), 3),
                "lowest": round(min(ratios), 3), "highest": round(max(ratios), 3),
            }
        ),
        flush=True,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", type=int, default=64, help="server processes (default 64)")
    parser.add_argument(
        "--securities", nargs="+", choices=("auth", "encrypt", "none"), default=["auth", "encrypt"]
    )
    parser.add_argument("--clients", type=int, default=3, help="one after the other (default 3)")
    parser.add_argument("--keys", type=int, default=100_000, help="of the keyset (default 100,000)")
    parser.add_argument("--pairs", type=int, default=10, help="of ipc and tcp (default 10)")
    parser.add_argument("--calls", type=int, default=200, help="per half of a pair (default 200)")
    args = parser.parse_args()
    local(args.keys, args.pairs, args.calls)
    for security in args.securities:
        connect(args.servers, security, args.clients)


if __name__ == "__main__":
    main()
