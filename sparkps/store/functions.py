"""``sparkps.functions``: the built-in functions of ``table.reduce`` and ``table.apply``.

::

    from sparkps import functions

    table.reduce(functions.norm2)                      # of "value"
    table.reduce(functions.dot, "m", "v")              # or functions.dot("m", "v")
    table.apply(functions.axpy, -0.1, 1, 0)            # column 0 of value -= 0.1 * column 1

A *vector* argument names a field (``"value"``, ``"m"``), or a column of ``value`` by its number.
Your own functions need none of this: ``table.reduce(fn, *args, combine=...)`` with ``fn(part,
*args)``, shipped by cloudpickle.

Not here: what they do (``reducers``, ``appliers``) and running them (``Table.reduce``,
``Table.apply``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sparkps.errors import InvalidArgument, MalformedRequest
from sparkps.spec import InitSpec, suggest
from sparkps.store import appliers, quasi_newton, reducers
from sparkps.store.builtin import Applier, Builtin, Reducer, combine_tree
from sparkps.store.init import as_init

sum = reducers.Sum
asum = norm1 = reducers.ASum
norm2 = reducers.Norm2
norminf = reducers.NormInf
min = reducers.Min
max = reducers.Max
nnz = reducers.Nnz
count = reducers.Count
dot = reducers.Dot
dots = reducers.Dots
top_k = reducers.TopK

fill = appliers.Fill
scale = appliers.Scale
axpy = appliers.Axpy
combine = appliers.Combine
threshold = appliers.Threshold

__all__ = [
    "BUILT_IN",
    "Applier",
    "Builtin",
    "Reducer",
    "asum",
    "axpy",
    "builtin",
    "called",
    "combine",
    "combine_tree",
    "count",
    "dot",
    "dots",
    "fill",
    "max",
    "min",
    "nnz",
    "norm1",
    "norm2",
    "norminf",
    "randomize",
    "scale",
    "sum",
    "threshold",
    "top_k",
]

BUILT_IN: dict[str, type[Builtin]] = {
    kind.name: kind
    for kind in (
        *(sum, asum, norm2, norminf, min, max, nnz, count, dot, dots, top_k),
        *(fill, scale, axpy, combine, threshold, appliers.Randomize),
        *(quasi_newton.Moments, quasi_newton.Begin, quasi_newton.Products, quasi_newton.Move),
    )
}


def randomize(init: float | InitSpec, seed: int = 0) -> Applier:
    """Set ``value`` of all rows to what ``init`` gives for (seed, key, column).

    Parameters
    ----------
    init
        A number, ``init.Normal(std)`` or ``init.Uniform(a, b)``.
    seed
        Any 64 bits.
    """
    spec = as_init(init)
    return appliers.Randomize(spec.kind, spec.a, spec.b, seed)


def builtin(name: str, numbers: dict[str, Any]) -> Builtin:
    """Return the built-in that a request names.

    Raises
    ------
    MalformedRequest
        If there is none of that name, or its arguments are wrong.
    """
    kind = BUILT_IN.get(name)
    if kind is None:
        reason = f"there is no built-in function {name!r}{suggest(name, sorted(BUILT_IN))}"
        raise MalformedRequest(reason=reason)
    unknown = numbers.keys() - kind.__dataclass_fields__.keys()
    if unknown:
        raise MalformedRequest(reason=f"{name} takes no argument {', '.join(sorted(unknown))}")
    try:
        made: Builtin = msgspec.convert(numbers, kind)
    except msgspec.ValidationError as error:
        raise MalformedRequest(reason=f"{name}: {error}") from None
    return made


def called(function: Any, args: Sequence[Any]) -> Builtin | None:
    """Return the built-in that ``table.reduce(function, *args)`` means, or None for a user's own.

    Raises
    ------
    InvalidArgument
        If a built-in gets wrong arguments.
    """
    if function is randomize or (isinstance(function, type) and issubclass(function, Builtin)):
        made = _made(function, args)
    elif isinstance(function, Builtin):
        made = _made(lambda: function, args)
    else:
        return None
    try:
        msgspec.msgpack.encode(made.numbers())  # whole numbers of more than 64 bits do not travel
        return builtin(made.name, made.numbers())
    except (MalformedRequest, TypeError, OverflowError) as error:
        raise InvalidArgument(name=made.name, value=made.numbers(), reason=str(error)) from None


def _made(function: Any, args: Sequence[Any]) -> Builtin:
    try:
        made: Builtin = function(*args)
    except TypeError as error:
        name = getattr(function, "name", getattr(function, "__name__", "function"))
        raise InvalidArgument(name=name, value=tuple(args), reason=str(error)) from None
    return made
