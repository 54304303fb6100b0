"""``python -m sparkps.testing.task``: a training task of :class:`~sparkps.testing.workers.Workers`,
as a Spark task is one.

Its stdin brings what to do and is its leash: when it ends, so does the task.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from sparkps.client.keys import remember
from sparkps.client.training import join_run
from sparkps.wire import userfn
from sparkps.wire.auth import Secret


def _watch(stdin: int) -> None:
    while os.read(stdin, 4096):
        pass
    os._exit(1)


def main() -> int:
    """Train one rank to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin = sys.stdin.buffer
    size = int.from_bytes(stdin.read(8), "little")
    payload = stdin.read(size)
    if len(payload) < size or not payload:
        return 1
    threading.Thread(target=_watch, args=(stdin.fileno(),), daemon=True).start()
    info, key, spec, rank, attempt, step, batches, rows = userfn.loads(payload)
    if key:
        remember(info.coordinator, Secret(key))
    with join_run(info, spec, rank, task=attempt) as run:
        if not run.finished:
            run.wait_for_gang()
            run.train(batches, step, rows=rows, fingerprint=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
