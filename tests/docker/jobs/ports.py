"""Prints the tcp ports that this container's servers listen on."""

from __future__ import annotations

import os
from pathlib import Path

LISTEN = "0A"


def inodes(process: Path) -> set[str]:
    """Of the sockets of a process."""
    links = [os.readlink(fd) for fd in (process / "fd").iterdir()]
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


servers = [
    path
    for path in Path("/proc").glob("[0-9]*")
    if b"sparkps.server" in (path / "cmdline").read_bytes().split(b"\0")
]
for server in servers:
    own = inodes(server)
    for table in ("tcp", "tcp6"):
        for line in (server / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in own:
                print(int(fields[1].rpartition(":")[2], 16))
