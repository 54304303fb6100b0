"""Open sessions and the tokens of their ranks: who may still say something.

The rules (SEMANTICS §4). A server holds the open sessions and, for each rank, the one token that it
accepts; the coordinator sets both. A request of any other session or token is refused. A new token
is given to a worker only after every server has acknowledged that it refuses the old one, so no
write of a zombie is accepted after a new holder has learnt where to resume; a session is closed
here before anything of it is dropped.

Rank ``size`` of a run is its driver, which writes in ``on_epoch``, while all workers wait. A driver
session has one rank, 0.

Not here: why a token is passed on (the coordinator).
"""

from __future__ import annotations

from sparkps.errors import SessionEnded, TokenLost
from sparkps.spec import SessionSpec, parse_consistency


class OpenSession:
    """One session that is open here.

    Attributes
    ----------
    bsp
        Whether writes of its workers are staged.
    tokens
        The accepted token of each rank.
    """

    __slots__ = ("bsp", "id", "size", "spec", "tokens")

    def __init__(self, spec: SessionSpec) -> None:
        self.spec = spec
        self.id = spec.id
        self.size = spec.size
        self.bsp = not spec.driver and parse_consistency(spec.consistency).mode == "bsp"
        self.tokens: dict[int, int] = {}

    def stages(self, rank: int) -> bool:
        """Whether writes of this rank wait for the end of their clock."""
        return self.bsp and rank < self.size


class Sessions:
    """All open sessions."""

    def __init__(self) -> None:
        self._open: dict[int, OpenSession] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, spec: SessionSpec) -> None:
        """Open a session; one that is open stays as it is."""
        if spec.id not in self._open:
            self._open[spec.id] = OpenSession(spec)

    def close(self, session: int) -> None:
        """Refuse a session from now on."""
        self._open.pop(session, None)

    def set_token(self, session: int, rank: int, token: int) -> None:
        """Accept only ``token`` for the rank from now on.

        Raises
        ------
        SessionEnded
            If the session is not open.
        """
        self.find(session).tokens[rank] = token

    def find(self, session: int) -> OpenSession:
        """The open session.

        Raises
        ------
        SessionEnded
            If it is not open.
        """
        found = self._open.get(session)
        if found is None:
            raise SessionEnded(session=session, reason="it is not open on this server")
        return found

    def check(self, session: int, rank: int, token: int) -> OpenSession:
        """The session of a request, whose token must be the accepted one.

        Raises
        ------
        SessionEnded, TokenLost
            If it is not.
        """
        found = self._open.get(session)
        if found is None or found.tokens.get(rank) != token:
            self.find(session)
            raise TokenLost(token=token, rank=rank, session=session)
        return found
