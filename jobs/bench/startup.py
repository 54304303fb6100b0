"""What it costs to start: CPU seconds of a server until it is ready, and of a client's import.

Prints one JSON object; ``heavy`` names modules that neither should load. The client is imported as
in a task of Spark, which sets ``OMP_NUM_THREADS`` to the cores of a task; of its seconds, numpy,
pyzmq and msgspec alone take ``libraries_cpu_s``.

    python jobs/bench/startup.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from sparkps.testing import LocalCluster

HEAVY = ("pyspark", "pandas", "scipy", "pyarrow")
CLIENT = """
import json, resource, sys

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

began = cpu()
import numpy, zmq, msgspec
libraries = cpu()
import sparkps.client.training
print(json.dumps([cpu() - began, libraries - began, sorted(set(sys.modules) & set(%r))]))
"""


def server_seconds() -> tuple[float, list[str]]:
    """CPU of a server process from its start until the cluster is up, and heavy files it maps."""
    with LocalCluster(servers=1) as cluster:
        pid = cluster.pids()["server 0"]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        maps = Path(f"/proc/{pid}/maps").read_text()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), [name for name in HEAVY if f"/{name}/" in maps]


def client_seconds() -> tuple[float, float, list[str]]:
    """CPU of a client's import, what of it the libraries take, and heavy modules."""
    script = CLIENT % (HEAVY,)
    command = ["env", "OMP_NUM_THREADS=1", sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cpu, libraries, heavy = json.loads(done.stdout)
    return float(cpu), float(libraries), list(heavy)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    servers = [server_seconds() for _ in range(5)]
    clients = [client_seconds() for _ in range(9)]
    found = [heavy for *_, heavy in (*servers, *clients)]
    print(
        json.dumps(
            {
                "bench": "startup",
                "server_cpu_s": round(statistics.median(cpu for cpu, _ in servers), 3),
                "client_import_cpu_s": round(statistics.median(cpu for cpu, *_ in clients), 3),
                "libraries_cpu_s": round(statistics.median(cpu for _, cpu, _ in clients), 3),
                "heavy": sorted({name for heavy in found for name in heavy}),
            }
        )
    )


if __name__ == "__main__":
    main()
