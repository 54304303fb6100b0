"""CURVE keys: encrypted connections that only the application's processes can make.

CURVE (libzmq's use of Curve25519 and Salsa20, in pyzmq's wheels) encrypts and authenticates a
connection. Both key pairs, the listeners' and the callers', are derived from the application's key,
so nothing but that key has to be handed around. A listener by itself would let in every caller that
knows its public key; who may come in is decided by :mod:`sparkps.net.gate`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import zmq
import zmq.utils.z85

from sparkps.net.sockets import Socket
from sparkps.wire.auth import Secret

_DOMAIN: Final = b"sparkps"


class Pair(NamedTuple):
    """A CURVE key pair, in Z85."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"<Pair {self.public.decode()}>"


class Curve:
    """The two key pairs of an application.

    Parameters
    ----------
    secret
        The application's key.
    """

    def __init__(self, secret: Secret) -> None:
        self.listener = _pair(secret.derive("curve listener"))
        self.caller = _pair(secret.derive("curve caller"))

    def listen(self, socket: Socket) -> None:
        """Make a socket a listener, before it is bound; needs a :class:`Gate` in its context."""
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self.listener
        socket.zap_domain = _DOMAIN
        # Without a gate nobody comes in, instead of everybody who knows the public key.
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def call(self, socket: Socket) -> None:
        """Make a socket a caller, before it connects."""
        socket.curve_serverkey = self.listener.public
        socket.curve_publickey, socket.curve_secretkey = self.caller


def _pair(key: bytes) -> Pair:
    secret = zmq.utils.z85.encode(key)
    return Pair(zmq.curve_public(secret), secret)
