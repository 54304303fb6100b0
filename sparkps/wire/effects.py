"""What a core asks its shell to do: the only way in which a decision reaches the world.

The cores of the server, the client and the coordinator are pure: a message or the time goes in, a
list of these comes out, in the order in which they must be carried out. An effect holds no socket
and no callback, so that a test (or the in-memory network) can read it, delay it or lose it. The
shells interpret them; nothing here acts.

A *peer* is whatever the shell handed in with the message that is being answered: opaque and
hashable, meaningful for that connection only. The buffers of a message are not copied on their
way: a core that hands a buffer to an effect may not change it afterwards.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import numpy as np

from sparkps.wire.messages import Message

#: One frame of a message: its memory is sent as it is. Arrays are C-contiguous and little-endian.
Buffer: TypeAlias = bytes | memoryview | np.ndarray[Any, Any]


class Effect(msgspec.Struct, gc=False):
    """Base of all effects."""


class Send(Effect):
    """Answer a peer of a data connection with ``frames`` (``[header, buffer...]``, of
    ``frames.encode``)."""

    peer: Any
    frames: list[Buffer]


class Tell(Effect):
    """The coordinator's core: send a control message to a peer."""

    peer: Any
    message: Message


class Cut(Effect):
    """End a peer's connection, a moment after what it was sent, and hear it no more."""

    peer: Any


class ToCoordinator(Effect):
    """A server's or a client's core: send a control message to the coordinator."""

    message: Message


class SendTo(Effect):
    """The client's core: send ``frames`` on the connection to a server."""

    server: int
    frames: list[Buffer]


class Connect(Effect):
    """The client's core: open a new connection to a server (replies to an older one are
    dropped)."""

    server: int


class Disconnect(Effect):
    """The client's core: close the connection to a server."""

    server: int


class TakeSnapshot(Effect):
    """A server's core: fork the child that writes the local partitions of ``table`` under ``path``.

    The shell reports back with ``ServerCore.snapshot_done(op, ...)``. The fork happens before the
    next message.
    """

    op: int
    table: int
    path: str


class Log(Effect):
    """Write ``text`` to the process's log at ``level`` (a number of :mod:`logging`)."""

    level: int
    text: str


class Exit(Effect):
    """Leave the process with ``status``, once the effects before this one are carried out."""

    status: int
    reason: str
