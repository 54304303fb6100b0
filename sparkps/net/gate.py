"""The gate of CURVE listeners: libzmq asks, for each new connection, whether it may come in.

The question comes to a socket at a fixed inproc address (ZeroMQ RFC 27, ZAP) and is answered in the
loop of the process, without a thread: those that hold the application's key may.
"""

from __future__ import annotations

from typing import Final

import zmq
import zmq.utils.z85

from sparkps.net.curve import Curve
from sparkps.net.loop import Loop
from sparkps.net.sockets import Context

#: Where libzmq asks, and the version of its question.
_ZAP: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"


class Gate:
    """See the module.

    Parameters
    ----------
    context
        Of the listeners; made before they are bound.
    loop
        Where the questions are answered.
    curve
        The keys.

    Attributes
    ----------
    refused : int
        How many were not let in.
    """

    def __init__(self, context: Context, loop: Loop, curve: Curve) -> None:
        self.refused = 0
        self._loop = loop
        self._allowed = zmq.utils.z85.decode(curve.caller.public)
        self._socket = context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(_ZAP)
        self._fd = int(self._socket.getsockopt(zmq.FD))
        loop.watch(self._fd, self._answer)
        self._answer()  # a socket that was never found empty does not make its descriptor readable

    def close(self) -> None:
        """Stop answering, after the listeners are closed."""
        self._loop.unwatch(self._fd)
        self._socket.close()

    def _answer(self) -> None:
        while int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            frames: list[bytes] = self._socket.recv_multipart(zmq.NOBLOCK)
            split = frames.index(b"") + 1
            route, question = frames[:split], frames[split:]
            # version, request, domain, address, identity, mechanism, credentials
            good = question[5:] == [b"CURVE", self._allowed]
            self.refused += not good
            status = [b"200", b"OK"] if good else [b"400", b"not this application's key"]
            self._socket.send_multipart([*route, _VERSION, question[1], *status, b"", b""])
