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
from sparkps.errors import PSError
from sparkps.wire import messages as m
from sparkps.wire.auth import Secret
from sparkps.wire.frames import decode_from_server, encode

#: Milliseconds that a server has for an answer.
ANSWER = 3000


def mark(*_: Any) -> float:
    """What a server must not run: it would leave a file."""
    Path("/home/sparkps/data/intruded").touch()
    return 0.0


def outcome(attempt: Callable[[], Any]) -> str:
    try:
        return f"done: {attempt()!r}"
    except PSError as error:
        return type(error).__name__


def with_a_client() -> dict[str, str]:
    """As a task would: without a key, and with one of another application."""
    found = {}
    handle = (Path("data") / "handle").read_bytes()
    for key in ("no key", "another key"):
        tries: dict[str, Callable[[], Any]] = {
            "pull": lambda: cloudpickle.loads(handle).pull([0]),
            "push": lambda: cloudpickle.loads(handle).push([0], [1.0]),
            "function": lambda: cloudpickle.loads(handle).reduce(mark, combine=float.__add__),
        }
        for name, attempt in tries.items():
            found[f"{name} with {key}"] = outcome(attempt)
        remember(cloudpickle.loads(handle)._access.client.info.coordinator, Secret.new())
    return found


def with_a_socket(address: str) -> dict[str, str]:
    """As somebody who knows the protocol: one connection per try, with and without a Hello."""
    hello: Sequence[Any] = encode(m.Hello(m.VERSION, os.urandom(16), 0, 1, os.urandom(56)))
    nobody: dict[str, Any] = {
        "id": 7,
        "table": 1,
        "session": 0,
        "rank": 0,
        "token": 0,
        "clock": 0,
        "view": 1,
    }
    keys = np.zeros(1, np.int64)
    slices = np.array([[0, 0, 1, -1, -1, -1]], np.int64)
    tries: dict[str, Sequence[Any]] = {
        "hello": [],
        "pull": encode(m.Pull(**nobody), np.array([[0, 1]], np.int32), keys),
        "push": encode(m.Push(**nobody, seq=0), slices, keys, np.ones((1, 1), np.float32)),
        "function": encode(m.Function(**nobody, seq=0), slices, cloudpickle.dumps((mark, ()))),
    }
    found = {}
    for name, request in tries.items():
        for first in ([hello], []):
            with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
                socket.linger = 0
                socket.connect(f"tcp://{address}")
                for frames in filter(None, [*first, request]):
                    socket.send_multipart(frames)
                told = "after hello" if first else "at once"
                found[f"{name} {told} at {address}"] = answer(socket)
    return found


def answer(socket: zmq.Socket[bytes]) -> str:
    if not socket.poll(ANSWER):
        return "silence"
    message, _ = decode_from_server(socket.recv_multipart())
    return type(message).__name__


if __name__ == "__main__":
    results = with_a_client()
    for port in sys.argv[1:]:
        results |= with_a_socket(port)
    print(json.dumps(results))
