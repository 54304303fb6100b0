"""The coordinator's stdin: its first line, and the events that only its parent knows.

How lines travel stands in :mod:`sparkps._parent`. Events:

* ``{"exited": [server, incarnation, status, tail]}``: ``waitpid`` has certified the exit of a
  server.
* ``{"failed": [what, reason, log, tail]}``: a server did not start.
* ``{"shutdown": true}``: stop the servers, then leave.
"""

from __future__ import annotations

import msgspec


class FirstLine(msgspec.Struct, forbid_unknown_fields=True):
    """What the coordinator is started with.

    Attributes
    ----------
    conf
        The settings, as keys of a Spark configuration.
    servers
        How many servers make the first view; 0: a driver says how many (Gather).
    host
        Listen there too, by tcp; empty: on a local socket only.
    bind
        The address to bind, where it is not ``host``, which others reach it by.
    secret
        The application's key; empty where there is no tcp.
    directory
        Of the local sockets; empty makes one. It is removed at the end.
    log
        Path of the log; empty for stderr.
    figures
        Tell the parent once a second how things stand.
    """

    conf: dict[str, str] = {}
    servers: int = 0
    host: str = ""
    bind: str = ""
    secret: str = ""
    directory: str = ""
    log: str = ""
    figures: bool = False


class Line(msgspec.Struct):
    """A later line."""

    exited: tuple[int, int, str, str] | None = None
    failed: tuple[str, str, str, str] | None = None
    shutdown: bool = False
