"""Somebody on the way between two processes, who reads what passes."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from types import TracebackType

from sparkps.net.endpoint import parse, tcp


class Relay:
    """Takes one connection and passes it on to an endpoint.

    Attributes
    ----------
    endpoint : str
        Connect here.
    there, back : bytearray
        What has passed to the endpoint, and what came back.
    """

    def __init__(self, target: str) -> None:
        where = parse(target)
        self._target = (where.host, where.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = tcp("127.0.0.1", self._listener.getsockname()[1])
        self.there, self.back = bytearray(), bytearray()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # closed before anybody came, or an end that is gone
            near, _ = self._listener.accept()
            with near, socket.create_connection(self._target) as far:
                pairs = {near: (far, self.there), far: (near, self.back)}
                while True:
                    for source in select.select(list(pairs), [], [])[0]:
                        data = source.recv(65_536)
                        if not data:
                            return
                        other, seen = pairs[source]
                        seen += data
                        other.sendall(data)
