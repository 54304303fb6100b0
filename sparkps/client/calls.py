"""Requests under way, and what becomes of their replies.

A *call* is what a caller waits for; a *request* is one message of it to one server. A call takes
the replies of its requests in any order and is done when it has had them all, or failed. Whether a
request is sent, held back or sent again is the core's business; here is only what its reply means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkps.client.seat import Chain, Seat
from sparkps.errors import MalformedRequest, PSError, WrongType
from sparkps.kernels.arrays import put
from sparkps.wire import userfn
from sparkps.wire.arrays import unpack
from sparkps.wire.effects import Buffer
from sparkps.wire.frames import as_array
from sparkps.wire.messages import Acked, Chunk, FromServer, Message, Results, Rows

Array = npt.NDArray[Any]
#: Which slices of a write; None stands for all.
Mask = npt.NDArray[np.bool_] | None


class Request:
    """One message to one server.

    Attributes
    ----------
    cost : int
        Bytes that it and its reply keep in flight.
    begin, end : int
        Its rows in the call's grouped order.
    number : int
        Its place in the order of this client's requests, whatever is sent again.
    resent : bool
        Whether it was sent more than once, so that an answer may have been lost.
    plain : callable or None
        Gives the buffers that name the same rows by their keys, for when the server does not know
        ``ref``.
    """

    __slots__ = (
        "begin",
        "buffers",
        "call",
        "cost",
        "end",
        "message",
        "number",
        "plain",
        "resent",
        "server",
    )

    def __init__(
        self,
        call: Call,
        server: int,
        message: Message,
        buffers: Sequence[Buffer],
        cost: int,
        begin: int = 0,
        end: int = 0,
        plain: Callable[[], Sequence[Buffer]] | None = None,
    ) -> None:
        self.call, self.server, self.buffers = call, server, buffers
        self.message: Any = message
        self.cost, self.begin, self.end, self.plain = cost, begin, end, plain
        self.number, self.resent = 0, False


class Call:
    """Base of all calls.

    Attributes
    ----------
    left : int
        Requests that are not answered yet; 0 when the call is done.
    error : PSError or None
        Why it failed.
    applied : bool
        Whether a part of a write was applied.
    what : str
        The table, for errors.
    """

    __slots__ = ("applied", "error", "left", "servers", "what")

    #: The call in a word, for errors.
    verb = "call"

    #: Whether its requests change something, so that they must not be forgotten before they are
    #: acknowledged.
    write = False

    def __init__(self, what: str = "") -> None:
        self.left = 0
        self.error: PSError | None = None
        self.applied = False
        self.what = what
        self.servers: list[int] = []

    @property
    def done(self) -> bool:
        return self.left == 0

    def answered(self, request: Request, message: FromServer, buffers: Sequence[Buffer]) -> bool:
        """Take a reply; return whether it is the last one of its request."""
        raise NotImplementedError

    def submitted(self, request: Request) -> None:
        """A request of this call was made."""
        self.left += 1
        self.servers.append(request.server)

    def settled(self) -> None:
        """A request is answered, or given up."""

    def give_up(
        self, requests: Sequence[Request], slices: Mask, others: Iterable[Request]
    ) -> list[Request]:
        """Some slices of requests of this call, oldest first, are not to be sent again; return
        which others had to be changed."""
        return []

    def restart(self, request: Request) -> None:
        """Forget what came of a request that is about to be sent again."""

    def fail(self, error: PSError) -> None:
        """End the call with its first error."""
        if self.error is None:
            self.error = error.because(self.words()) if self.what else error
        self.left = 0

    def words(self) -> str:
        """What was called, for errors."""
        return f"in a {self.verb} of table {self.what!r}"

    def result(self) -> Any:
        """Return what the caller gets, or raise why not."""
        if self.error is not None:
            raise self.error
        return None


def unexpected(message: object, wanted: str) -> MalformedRequest:
    """The error of a reply of the wrong type."""
    return MalformedRequest(
        reason=f"a server answered {type(message).__name__} where {wanted} was due"
    )


class PullCall(Call):
    """Rows, put in the caller's order as they come."""

    __slots__ = ("columns", "dtype", "order", "out")

    verb = "pull"

    def __init__(self, out: Array, order: Array, what: str = "") -> None:
        super().__init__(what)
        self.out, self.order = out, order
        self.dtype = out.dtype
        self.columns = None if out.ndim == 1 else out.shape[1]

    def answered(self, request: Request, message: FromServer, buffers: Sequence[Buffer]) -> bool:
        if type(message) is not Rows:
            raise unexpected(message, "Rows")
        order = self.order
        if request.end - request.begin != len(order):
            order = order[request.begin : request.end]
        put(as_array(buffers[0], self.dtype, self.columns), order, self.out)
        return True

    def words(self) -> str:
        return f"in a pull of {len(self.order)} keys of table {self.what!r}"

    def result(self) -> Array:
        if self.error is not None:
            raise self.error
        return self.out


class WriteCall(Call):
    """Slices, acknowledged one message at a time."""

    __slots__ = ("chain", "clock", "seat", "token")

    verb = "write"
    write = True

    def __init__(self, seat: Seat, chain: Chain, what: str = "") -> None:
        super().__init__(what)
        self.seat, self.chain, self.clock, self.token = seat, chain, seat.clock, seat.token

    def submitted(self, request: Request) -> None:
        super().submitted(request)
        self.seat.sent(self.clock)

    def settled(self) -> None:
        if self.token == self.seat.token:
            self.seat.settled(self.clock)

    def answered(self, request: Request, message: FromServer, buffers: Sequence[Buffer]) -> bool:
        # What the statuses of the slices mean has been seen to by the core.
        return True

    def give_up(
        self, requests: Sequence[Request], slices: Mask, others: Iterable[Request]
    ) -> list[Request]:
        mine: Any = np.concatenate([r.buffers[0] for r in requests])
        later = [r for r in others if isinstance(r.call, WriteCall) and r.call.chain is self.chain]
        for r in later:
            # A copy: the memory may be on its way out.
            r.buffers = [np.array(r.buffers[0]), *r.buffers[1:]]
        followers: list[Any] = [r.buffers[0] for r in later]
        refused = mine if slices is None else mine[slices]
        self.chain.give_up(self.clock, requests[0].message.seq, refused, followers)
        return later

    def fail(self, error: PSError) -> None:
        super().fail(error)
        if self.seat.error is None and not self.seat.synchronous and self.token == self.seat.token:
            self.seat.error = self.error


class SetUpCall(Call):
    """A registration of keys or a keyset: nobody waits, a refusal is told to its maker."""

    __slots__ = ("refused",)

    verb = "registration"

    def __init__(self, refused: Callable[[], None], what: str = "") -> None:
        super().__init__(what)
        self.refused = refused

    def answered(self, request: Request, message: FromServer, buffers: Sequence[Buffer]) -> bool:
        if type(message) is not Acked:
            self.refused()
        return True

    def fail(self, error: PSError) -> None:
        super().fail(error)
        self.refused()


class ReduceCall(Call):
    """Results of a function, one per partition; ``pickled`` if it is a user's own."""

    __slots__ = ("pickled", "results")

    verb = "reduce"

    def __init__(self, what: str, *, pickled: bool = False) -> None:
        super().__init__(what)
        self.pickled = pickled
        self.results: list[tuple[int, Any]] = []

    def answered(self, request: Request, message: FromServer, buffers: Sequence[Buffer]) -> bool:
        if type(message) is not Results:
            raise unexpected(message, "Results")
        if message.shapes:
            self.results += unpack(message.shapes, buffers[1:])
        elif len(buffers) > 1 and len(buffers[1]):
            if not self.pickled:  # it came by a connection that anybody on the way could write to
                raise unexpected(message, "Results without a pickle")
            self.results += _unpickled(bytes(buffers[1]))
        return True

    def result(self) -> list[Any]:
        """The results by partition number."""
        super().result()
        return [result for _, result in sorted(self.results, key=lambda pair: pair[0])]


def _unpickled(data: bytes) -> list[tuple[int, Any]]:
    """What a user's function returned on each partition."""
    try:
        found: list[tuple[int, Any]] = userfn.loads(data)
    except Exception as error:
        got = f"an object that cannot be unpickled here ({type(error).__name__}: {error})"
        expected = "numbers, arrays, or objects whose class the driver can import"
        what = "the result of the function"
        raise WrongType(what=what, got=got, expected=expected) from error
    return found


class ScanCall(Call):
    """Whole partitions, in pieces."""

    __slots__ = ("dtypes", "pieces")

    verb = "scan"

    def __init__(self, dtypes: Sequence[tuple[np.dtype[Any], int | None]], what: str) -> None:
        super().__init__(what)
        self.dtypes = dtypes
        self.pieces: dict[int, list[tuple[list[tuple[int, int]], list[Array]]]] = {}

    def answered(self, request: Request, message: FromServer, buffers: Sequence[Buffer]) -> bool:
        if type(message) is not Chunk:
            raise unexpected(message, "Chunk")
        arrays = [
            as_array(buffer, dtype, columns)
            for buffer, (dtype, columns) in zip(buffers, self.dtypes, strict=False)
        ]
        self.pieces.setdefault(request.server, []).append((message.rows, arrays))
        return not message.more

    def restart(self, request: Request) -> None:
        self.pieces.pop(request.server, None)

    def result(self) -> list[tuple[list[tuple[int, int]], list[Array]]]:
        """The pieces, those of a server together."""
        super().result()
        return [piece for server in sorted(self.pieces) for piece in self.pieces[server]]
