"""The application's key, and the tickets that admit data connections.

Rules (SEMANTICS §3):

* Whoever starts the coordinator makes one random key per application. Everything else is derived
  from it: the key of tickets here, the CURVE keys in :mod:`sparkps.net.curve`. Who holds it belongs
  to the application.
* A ticket is made by the client itself: it names the client, the server and its incarnation, a
  random nonce and an expiry, and bears an HMAC over them. So a server verifies it without being
  told of it, a ticket for one server is of no use at another, and one that was seen on the way
  cannot be used again: servers remember the nonces of tickets until they expire.
* Expiries are in the *coordinator's* time, which every process learns when it joins: the clocks of
  the hosts are not compared.

Not here: how the key reaches a process (a child by the first line of its stdin, a task by a file
of its executor).
"""

from __future__ import annotations

import hmac
import re
import secrets
import struct
from typing import Final

from sparkps.errors import InvalidArgument, NotAdmitted

#: Bytes of a key: as many as SHA-256 and CURVE have.
KEY_BYTES: Final = 32
#: Seconds that a ticket is good for: longer than any connection takes to be made.
TICKET_SECONDS: Final = 60.0
#: Most nonces that a server remembers; beyond, connections are refused until some expire. Clients
#: connect once, so that is a thousand new ones per second.
MOST_NONCES: Final = 60_000

_NONCE: Final = 16
_MAC: Final = 32
_EXPIRY: Final = struct.Struct("<d")
_LENGTH: Final = _NONCE + _EXPIRY.size + _MAC
_NAMES: Final = struct.Struct("<qq")


class Secret:
    """The application's key.

    Parameters
    ----------
    text
        64 hexadecimal digits.

    Raises
    ------
    InvalidArgument
        Something else, which is not shown.

    Examples
    --------
    >>> Secret.new()
    <Secret>
    """

    __slots__ = ("_bytes",)

    def __init__(self, text: str) -> None:
        if not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", text):
            raise InvalidArgument(
                name="key", value="(not shown)", reason=f"must be {2 * KEY_BYTES} hex digits"
            )
        self._bytes = bytes.fromhex(text)

    @classmethod
    def new(cls) -> Secret:
        """Make a random one."""
        return cls(secrets.token_hex(KEY_BYTES))

    @property
    def hex(self) -> str:
        """Its text."""
        return self._bytes.hex()

    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes for one purpose; from them the key cannot be found."""
        return hmac.digest(self._bytes, purpose.encode(), "sha256")

    def __repr__(self) -> str:
        return "<Secret>"


def new_ticket(key: bytes, client: bytes, server: int, incarnation: int, now: float) -> bytes:
    """Make a ticket.

    Parameters
    ----------
    key
        ``secret.derive("ticket")``.
    client
        The client's name, as in its Hello.
    server, incarnation
        Where it is good.
    now
        Seconds, in the coordinator's time.
    """
    body = secrets.token_bytes(_NONCE) + _EXPIRY.pack(now + TICKET_SECONDS)
    return body + _mac(key, client, server, incarnation, body)


class Admission:
    """A server's book of tickets.

    Parameters
    ----------
    key
        ``secret.derive("ticket")``.
    server, incarnation
        Who admits.
    """

    def __init__(self, key: bytes, server: int, incarnation: int) -> None:
        self._key = key
        self._server, self._incarnation = server, incarnation
        self._seen: dict[bytes, float] = {}

    def check(self, ticket: bytes, client: bytes, now: float) -> None:
        """Admit the bearer of a ticket, once.

        Parameters
        ----------
        now
            Seconds, in the coordinator's time.

        Raises
        ------
        NotAdmitted
            It is no ticket of this application for this server, is too old, or was used before.
        """
        body, mac = ticket[:-_MAC], ticket[-_MAC:]
        if len(ticket) != _LENGTH or not hmac.compare_digest(
            mac, _mac(self._key, client, self._server, self._incarnation, body)
        ):
            self._refuse("the ticket was not made with this application's key for this server")
        nonce = body[:_NONCE]
        (expiry,) = _EXPIRY.unpack(body[_NONCE:])
        if not now <= expiry <= now + 2 * TICKET_SECONDS:
            self._refuse("the ticket has expired")
        if nonce in self._seen:
            self._refuse("the ticket was used before")
        if len(self._seen) >= MOST_NONCES:
            self._seen = {seen: until for seen, until in self._seen.items() if until >= now}
            if len(self._seen) >= MOST_NONCES:
                self._refuse("too many connections were made within a minute")
        self._seen[nonce] = expiry

    def _refuse(self, reason: str) -> None:
        raise NotAdmitted(peer=f"server {self._server}", reason=reason)


def _mac(key: bytes, client: bytes, server: int, incarnation: int, body: bytes) -> bytes:
    # The client's name comes last: all else has a fixed length.
    return hmac.digest(key, _NAMES.pack(server, incarnation) + body + client, "sha256")
