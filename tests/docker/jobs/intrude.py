"""Tries to use the servers of ``data/handle`` without the application's key; arguments are their
ports, ``host:port``. Prints one JSON object: what was tried, and how it ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import zmq

from sparkps.client.keys import remember
from sparkps.client.shell import client_for
from sparkps.errors import PSError
from sparkps.wire import messages as m
from sparkps.wire.auth import Secret
from sparkps.wire.frames import decode_from_server, encode

#: Milliseconds of silence after which no answer comes any more.
ANSWER = 3000


def mark(*_: Any) -> float:
    """What a server must not run: it would leave a file."""
    Path("/home/sparkps/data/intruded").touch()
    return 0.0


def outcome(attempt: Callable[[], Any]) -> str:
    try:
        return f"done: {attempt()!r}"
    except PSError as error:
        return ": ".join([type(error).__name__, *filter(None, [error.fields.get("status")])])


def with_a_client() -> dict[str, str]:
    """As a task would: without a key, and with one of another application."""
    found = {}
    handle = (Path("data") / "handle").read_bytes()
    info = cloudpickle.loads(handle)._access.client.info
    tries: dict[str, Callable[[Any], Any]] = {
        "pull": lambda table: table.pull([0]),
        "push": lambda table: table.push([0], [1.0]),
        "function": lambda table: table.reduce(mark, combine=float.__add__),
    }
    for key in ("no key", "another key"):
        for name, attempt in tries.items():

            def use(attempt: Callable[[Any], Any] = attempt) -> Any:
                client_for(info, role="driver")  # which may push outside a run
                return attempt(cloudpickle.loads(handle))

            found[f"{name} with {key}"] = outcome(use)
        remember(info.coordinator, Secret.new())
    return found


def with_sockets(addresses: Sequence[str]) -> dict[str, str]:
    """As somebody who knows the protocol: a connection per try, which begins with a Hello that
    nobody signed, or does not.
    """
    hello: Sequence[Any] = encode(m.Hello(m.VERSION, os.urandom(16), 0, 1, os.urandom(56)))
    nobody: dict[str, Any] = {"id": 7, "table": 1, "session": 0, "rank": 0, "token": 0}
    nobody |= {"clock": 0, "view": 1}
    keys = np.zeros(1, np.int64)
    slices = np.array([[0, 0, 1, -1, -1, -1]], np.int64)
    tries: dict[str, Sequence[Any]] = {
        "nothing": [],
        "pull": encode(m.Pull(**nobody), np.array([[0, 1]], np.int32), keys),
        "push": encode(m.Push(**nobody, seq=0), slices, keys, np.ones((1, 1), np.float32)),
        "function": encode(m.Function(**nobody, seq=0), slices, cloudpickle.dumps((mark, ()))),
    }
    open_ones: dict[zmq.Socket[bytes], str] = {}
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    for address in addresses:
        for name, request in tries.items():
            for first in ([hello], []):
                socket = context.socket(zmq.DEALER)
                socket.linger = 0
                socket.connect(f"tcp://{address}")
                for frames in filter(None, [*first, request]):
                    socket.send_multipart(frames)
                open_ones[socket] = f"{name} {'after hello' if first else 'at once'} at {address}"
    found = answers(open_ones)
    context.destroy(linger=0)
    return found


def answers(open_ones: dict[zmq.Socket[bytes], str]) -> dict[str, str]:
    """The worst that each socket is told; a refusal is no reason to stop listening."""
    found = dict.fromkeys(open_ones.values(), "silence")
    poller = zmq.Poller()
    for socket in open_ones:
        poller.register(socket, zmq.POLLIN)
    while ready := poller.poll(ANSWER):
        for socket, _ in ready:
            message, _ = decode_from_server(socket.recv_multipart())
            if found[open_ones[socket]] in ("silence", "Refused"):
                found[open_ones[socket]] = type(message).__name__
    return found


if __name__ == "__main__":
    print(json.dumps(with_a_client() | with_sockets(sys.argv[1:])))
