"""User code on the wire: the only place that pickles and unpickles.

Unpickling runs whatever the bytes say. So it is done for server functions that came over a trusted
listener and for results and errors of one's own workers, and never on the path of pulls and
pushes. Whether a peer is trusted is for the caller to know; nothing here checks it.
"""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import msgspec

from sparkps.errors import PSError


def dumps(value: Any) -> bytes:
    """Pickle anything, functions and classes of the user's session included (by value)."""
    import cloudpickle  # noqa: PLC0415 - few workers send code, and loading it is a tenth of a start

    data: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return data


def loads(data: bytes | memoryview) -> Any:
    """Unpickle what :func:`dumps` gave; raises whatever the bytes make it raise."""
    return pickle.loads(data)


def dump_error(error: BaseException) -> bytes:
    """Pickle an exception, or its words alone if it does not come back from a pickle.

    Examples
    --------
    >>> load_error(dump_error(ZeroDivisionError("no rows")))
    ZeroDivisionError('no rows')
    """
    text = words(error)
    try:
        pickled = dumps(error)
        good = type(loads(pickled)) is type(error)
    except Exception:  # noqa: BLE001 - a user's exception may raise anything when it is pickled
        good = False
    return msgspec.msgpack.encode((text, pickled if good else b""))


def load_error(data: bytes) -> BaseException:
    """The exception that :func:`dump_error` was given; a :class:`~sparkps.errors.PSError` with its
    words if it cannot be made here (its class is not importable, say)."""
    text = "an error that cannot be read"
    try:
        text, pickled = msgspec.msgpack.decode(data, type=tuple[str, bytes])
        error = loads(pickled) if pickled else None
    except Exception:  # noqa: BLE001 - a user's exception may raise anything when it is unpickled
        error = None
    return error if isinstance(error, BaseException) else PSError(reason=text)


def words(error: BaseException) -> str:
    """``ValueError: why``, for messages to people; a user's exception may not have a ``str``.

    Examples
    --------
    >>> words(ZeroDivisionError("no rows"))
    'ZeroDivisionError: no rows'
    """
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - whatever it is, it must not hide the error itself
        said = "(its str() fails)"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def describe(error: BaseException) -> str:
    """The traceback in words, for messages to people."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
