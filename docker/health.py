#!/usr/bin/python3 -IS
"""Ask Spark's own pages how a container is: ``health.py master | worker | workers``.

``master`` and ``worker`` are the health checks of these containers. ``workers`` waits until every
worker container that runs is known to the master, so that an application starts on all of them.
"""

import json
import socket
import sys
import threading
import time
import urllib.request
from typing import Any

#: Seconds that worker containers may take to register: a JVM's start on a busy machine.
PATIENCE = 60.0

Page = dict[str, Any]


def page(address: str) -> Page:
    with urllib.request.urlopen(f"http://{address}/json/", timeout=5) as answer:
        found: Page = json.load(answer)
    return found


def unknown(containers: str) -> set[str]:
    """Addresses of running worker containers that are not yet among the master's workers."""
    running = {str(found[4][0]) for found in socket.getaddrinfo(containers, None)}
    workers = page("master:8080")["workers"]
    return running - {worker["host"] for worker in workers if worker["state"] == "ALIVE"}


def wait(containers: str) -> str | None:
    """Return what is wrong after all the patience, or None."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            missing = unknown(containers)
        except socket.gaierror:
            return "no worker runs: start some with 'up -d --scale worker=2'"
        if not missing:
            return None
        if time.monotonic() > deadline:
            return f"workers {sorted(missing)} did not register with the master in {PATIENCE:.0f} s"
        threading.Event().wait(0.2)


def health(role: str) -> str | None:
    if role == "master":
        status = page("localhost:8080")["status"]
        return None if status == "ALIVE" else f"the master is {status}"
    if role == "worker":
        return None if page("localhost:8081")["masterwebuiurl"] else "not registered with a master"
    return wait("worker")


if __name__ == "__main__":
    try:
        sys.exit(health(sys.argv[1]))
    except OSError as error:
        sys.exit(f"no answer: {error}")
