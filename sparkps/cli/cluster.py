"""``python -m sparkps cluster``: a coordinator and servers on this host, for ``PSContext.connect``.

It prints one line of JSON when all are up, ``{"coordinator": address, "key_file": path}``, and
stays until Ctrl-C or SIGTERM. Its children end with it. Where a server or the coordinator ends by
itself, it ends too, with status 1: what was in it is lost, and clients say so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from sparkps.client.keys import read_key
from sparkps.config import PREFIX, Settings
from sparkps.coordinator.launch import LocalLauncher
from sparkps.errors import InvalidSetting
from sparkps.net.endpoint import parse
from sparkps.net.hosts import is_loopback, resolve
from sparkps.wire.auth import Secret

#: Seconds between two looks at the children.
_LOOK: Final = 0.5


def run(parsed: argparse.Namespace) -> int:
    """Run the cluster."""
    conf = dict(_pair(text) for text in parsed.conf)
    settings = Settings.load(conf, servers=parsed.servers)
    if not parsed.host:
        raise InvalidSetting(name="host", value=parsed.host, reason="must be an address or a name")
    key_file, secret = None, None
    if settings.security != "none":
        key_file = Path(parsed.key_file or settings.key_file or "sparkps.key").absolute()
        secret = _key(key_file)
    elif not is_loopback(resolve(parsed.host)):
        print(
            "warning: spark.sparkps.security is none: whoever reaches these ports can read and "
            "write all tables, and run functions on this host",
            file=sys.stderr,
        )
    launcher = LocalLauncher(settings, settings.servers or 1, parsed.host, secret)
    over = threading.Event()

    def end(*_: Any) -> None:
        over.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    with launcher:
        far = [a for a in launcher.endpoint.split(",") if parse(a).scheme == "tcp"]
        told = {"coordinator": far[0], "key_file": None if key_file is None else str(key_file)}
        print(json.dumps(told), flush=True)
        alive = len(launcher.pids())
        while not over.wait(_LOOK):
            lost = launcher.why_lost()
            if lost is not None or len(launcher.pids()) < alive:
                why = lost or "a server has ended; its log is gone with it unless log.dir is set"
                print(f"error: {why}", file=sys.stderr)
                return 1
    return 0


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.startswith(PREFIX):
        raise InvalidSetting(name=key, value=value, reason=f"--conf takes {PREFIX}KEY=VALUE")
    return key, value


def _key(path: Path) -> Secret:
    """The key of a file; a new one, open to this user only, if there is none."""
    if path.exists():
        return read_key(str(path))
    secret = Secret.new()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidSetting(
            name="key.file", value=str(path), reason=f"cannot be made: {error.strerror}"
        ) from None
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(secret.hex + "\n")
    return secret
