"""A way to end another thread's poll: a pipe whose one byte says "look again"."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final

#: What a pipe holds at most on Linux.
_PIPE: Final = 1 << 16


class Wakeup:
    """Ends a :func:`sparkps.net.rpc.wait` or a loop's poll from another thread.

    Setting it any number of times before it is cleared wakes once. Setting a closed one does
    nothing.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._closed = False
        self._lock = threading.Lock()  # a descriptor that was closed may be somebody else's by now

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._read

    def set(self) -> None:
        """Wake the other side; from any thread."""
        with self._lock:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):  # the pipe is full: it is set
                    os.write(self._write, b"!")

    def clear(self) -> None:
        """Forget that it was set; by the side that was woken, before it looks again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, _PIPE)

    def close(self) -> None:
        """Close both ends."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)
