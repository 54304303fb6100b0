"""One example of every message, made from its annotations, and the bytes that it must have.

Run this file (``python -m tests.wire.golden``) to write ``golden.json`` anew, after a message was
added, or a field at its end. A line that *changes* otherwise is a break of the protocol: it needs
another ``messages.VERSION``.
"""

from __future__ import annotations

import itertools
import json
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from sparkps.wire import messages
from sparkps.wire.messages import Message

PATH = Path(__file__).with_name("golden.json")
MESSAGES: list[type[Message]] = [
    kind
    for union in (messages.ToServer, messages.FromServer, messages.Control)
    for kind in typing.get_args(union)
]


def example(kind: type[Message]) -> Message:
    """A message whose fields all differ from each other and from their defaults."""
    made = _make(kind, itertools.count(1))
    assert isinstance(made, Message)
    return made


def _make(kind: Any, numbers: itertools.count[int]) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _make(hints[name], numbers) for name in kind.__struct_fields__})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return arguments[-1]
    if origin in (typing.Union, types.UnionType):
        return _make(arguments[0], numbers)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(_make(each, numbers) for each in arguments)
    if origin in (list, tuple):
        return origin([_make(arguments[0], numbers)])
    if origin is dict:
        return {f"k{next(numbers)}": _make(arguments[1], numbers)}
    number = next(numbers)
    values: dict[Any, Any] = {
        bool: True,
        int: number,
        float: number + 0.5,
        str: f"t{number}",
        bytes: bytes([number]),
        Any: number,
    }
    return values[kind]


if __name__ == "__main__":
    encode = msgspec.msgpack.encode
    lines = {kind.__name__: encode(example(kind)).hex() for kind in MESSAGES}
    PATH.write_text(json.dumps(lines, indent=0) + "\n")
