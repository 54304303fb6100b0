"""Messages to frames and back: ``[header][buffer...]``.

Covers the encoding of headers, the number of buffers that each message may have, and checked views
of buffers as arrays. It does not know what a message means, and copies no buffer that it can view.

Rules:

* The first frame is the header, a MessagePack array ``[tag, field, ...]``; all others are raw
  little-endian arrays.
* A decoder either returns a message of its own union with an allowed number of buffers, or raises
  :class:`~sparkps.errors.MalformedRequest` with a reason. Nothing else escapes, whatever the bytes.
* What is *in* a buffer is checked where it is used, by :func:`as_array` and by the doors of the
  kernels. Numbers in a header are integers of 64 bits, negative ones included: their ranges are
  checked by the core that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from sparkps.errors import MalformedRequest
from sparkps.wire import messages
from sparkps.wire.effects import Buffer
from sparkps.wire.messages import Message

#: Largest header of a data message. A header is some hundred bytes; the shapes of a reduction over
#: 4,096 partitions
#: and a traceback fit many times. The limit keeps a stranger's bytes from being parsed for seconds.
MAX_HEADER: Final = 1 << 20

#: Largest control message: a worker's result, its state and the parameters of an epoch travel in
#: these.
MAX_CONTROL: Final = 64 << 20

#: Fields of an optimizer beyond the value.
MAX_FIELDS: Final = 64

M = TypeVar("M")
#: Smallest and largest number of buffers.
Counts = tuple[int, int]
Allowed = Counts | Callable[[Any], Counts]

_NONE: Final[Counts] = (0, 0)
_MANY: Final = 1 << 16


def _of_pull(message: messages.Pull) -> Counts:
    _known("mode", message.mode, messages.KEYSET)
    return _NONE if message.mode == messages.KEYSET else (2, 2)


def _of_push(message: messages.Push) -> Counts:
    _known("mode", message.mode, messages.KEYSET)
    _known("kind of Push", message.kind, messages.RESTORE)
    least = 2 if message.mode == messages.KEYSET else 3
    return least, least + (MAX_FIELDS if message.kind == messages.RESTORE else 0)


def _known(what: str, number: int, most: int) -> None:
    if not 0 <= number <= most:
        raise MalformedRequest(reason=f"there is no {what} {number}")


def _of_function(message: messages.Function) -> Counts:
    _known("kind of Function", message.kind, messages.CONFIGURE)
    pickled = not message.name and message.kind != messages.CONFIGURE
    return (2, 2) if pickled else (1, 1)


def _of_results(message: messages.Results) -> Counts:
    if not message.shapes:
        return 1, 2
    count = 1 + sum(len(arrays) for _, arrays in message.shapes)
    return count, count


#: How many buffers each message of a data connection has; the table of PROTOCOL.md.
BUFFERS: Final[dict[type[Message], Allowed]] = {
    messages.Hello: _NONE,
    messages.Pull: _of_pull,
    messages.Push: _of_push,
    messages.Function: _of_function,
    messages.Register: (2, 2),
    messages.MakeKeyset: (2, 2),
    messages.Scan: (1, 1),
    messages.Ping: _NONE,
    messages.Welcome: _NONE,
    messages.Rows: (1, 1),
    messages.Acked: (0, 1),
    messages.Results: _of_results,
    messages.Chunk: (0, _MANY),
    messages.Refused: _NONE,
    messages.UnknownRef: _NONE,
    messages.NotMine: _NONE,
}

# What msgspec raises on bytes of a stranger: its own errors; the rest comes from what the types
# themselves refuse (a map with an unhashable key, text that is no UTF-8, nesting without end, a
# length that no memory holds).
_BROKEN: Final = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    RecursionError,
    OverflowError,
    MemoryError,
)

_encode = msgspec.msgpack.Encoder().encode
_to_server: msgspec.msgpack.Decoder[messages.ToServer] = msgspec.msgpack.Decoder(messages.ToServer)
_from_server: msgspec.msgpack.Decoder[messages.FromServer] = msgspec.msgpack.Decoder(
    messages.FromServer
)
_control: msgspec.msgpack.Decoder[messages.Control] = msgspec.msgpack.Decoder(messages.Control)


def encode(message: Message, *buffers: Buffer) -> list[Buffer]:
    """Return the frames of a message: its header, then its buffers as they are.

    Examples
    --------
    >>> from sparkps.wire.messages import Ping
    >>> encode(Ping(id=7))
    [b'\\x92\\x08\\x07']
    """
    return [_encode(message), *buffers]


def decode_to_server(frames: Sequence[Buffer]) -> tuple[messages.ToServer, Sequence[Buffer]]:
    """Decode what a server received on a data connection; return the message and its buffers.

    Raises
    ------
    MalformedRequest
        If the header is broken, unknown or too long, or the number of buffers is wrong.
    """
    return _decode(_to_server, frames)


def decode_from_server(frames: Sequence[Buffer]) -> tuple[messages.FromServer, Sequence[Buffer]]:
    """Decode what a client received on a data connection; raises as :func:`decode_to_server`
    does."""
    return _decode(_from_server, frames)


def _decode(
    decoder: msgspec.msgpack.Decoder[M], frames: Sequence[Buffer]
) -> tuple[M, Sequence[Buffer]]:
    if not frames:
        raise MalformedRequest(reason="a message has no header")
    header = frames[0]
    if size(header) > MAX_HEADER:
        raise MalformedRequest(
            reason=f"a header of {size(header)} bytes; the limit is {MAX_HEADER}"
        )
    try:
        message = decoder.decode(header)  # type: ignore[arg-type]
    except _BROKEN as error:
        raise MalformedRequest(reason=f"broken header: {_reason(error)}") from error
    allowed = BUFFERS[type(message)]  # type: ignore[index]
    least, most = allowed if type(allowed) is tuple else allowed(message)  # type: ignore[operator]
    if not least <= len(frames) - 1 <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        raise MalformedRequest(
            reason=f"{type(message).__name__} with {len(frames) - 1} buffers instead of {expected}"
        )
    return message, frames[1:]


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def encode_control(message: Message) -> bytes:
    """Encode a control message, which is one frame."""
    return _encode(message)


def decode_control(frame: Buffer) -> messages.Control:
    """Decode a control message; raise :class:`~sparkps.errors.MalformedRequest` if it is broken."""
    if size(frame) > MAX_CONTROL:
        raise MalformedRequest(
            reason=f"a control message of {size(frame)} bytes; the limit is {MAX_CONTROL}"
        )
    try:
        return _control.decode(frame)  # type: ignore[arg-type]
    except _BROKEN as error:
        raise MalformedRequest(reason=f"broken control message: {_reason(error)}") from error


def size(buffer: Buffer) -> int:
    """The number of bytes of a buffer."""
    return len(buffer) if type(buffer) is bytes else buffer.nbytes  # type: ignore[union-attr]


def as_array(buffer: Buffer, dtype: Any, columns: int | None = None) -> np.ndarray[Any, Any]:
    """View a buffer as an array of ``dtype``.

    Parameters
    ----------
    buffer
        What a decoder returned. The view is writable only if the buffer is.
    dtype
        A numpy dtype or its name; numbers are little-endian.
    columns
        The second dimension, or None for one dimension.

    Returns
    -------
    ndarray
        Shape ``(n,)``, or ``(n, columns)``; C-contiguous and aligned. It is a view, but an
        unaligned buffer is copied (a frame under 8 KiB that was received without copying usually
        is unaligned).

    Raises
    ------
    MalformedRequest
        If the length of the buffer is no multiple of a row.

    Examples
    --------
    >>> as_array(bytes(16), "int32", columns=2)
    array([[0, 0],
           [0, 0]], dtype=int32)
    """
    try:
        array = np.frombuffer(buffer, dtype)
        if not array.flags.aligned:
            array = array.copy()
        return array if columns is None else array.reshape(-1, columns)
    except ValueError:
        row = f"({columns}, {np.dtype(dtype)})" if columns is not None else str(np.dtype(dtype))
        raise MalformedRequest(
            reason=f"a buffer of {size(buffer)} bytes is no whole number of rows of {row}"
        ) from None
