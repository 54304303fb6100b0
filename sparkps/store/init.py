"""What ``ps.table(init=...)`` takes: a number, :func:`Normal` or :func:`Uniform`.

What an absent row holds is a pure function of (the table's seed, key, column), computed by
:func:`sparkps.kernels.partitions.init_values`; here are its names only.
"""

from __future__ import annotations

import math
from typing import Any

from sparkps.errors import InvalidArgument
from sparkps.spec import InitSpec, plain


def Normal(std: float) -> InitSpec:
    """Return rows of normal numbers with mean 0 and standard deviation ``std``.

    Raises
    ------
    InvalidArgument
        If ``std`` is negative or not finite.

    Examples
    --------
    >>> Normal(0.01)
    InitSpec(kind='normal', a=0.0, b=0.01)
    """
    std = _finite("std", std)
    if std < 0:
        raise InvalidArgument(name="std", value=std, reason="must not be negative")
    return InitSpec("normal", 0.0, std)


def Uniform(a: float, b: float) -> InitSpec:
    """Return rows of uniform numbers from ``a`` to below ``b``.

    Raises
    ------
    InvalidArgument
        If an end is not finite or ``a > b``.

    Examples
    --------
    >>> Uniform(-0.5, 0.5)
    InitSpec(kind='uniform', a=-0.5, b=0.5)
    """
    a, b = _finite("a", a), _finite("b", b)
    if a > b:
        raise InvalidArgument(name="a", value=a, reason=f"must not be above b={b}")
    return InitSpec("uniform", a, b)


def as_init(init: float | InitSpec) -> InitSpec:
    """Return the spec of ``ps.table(init=...)``; a number is a constant.

    Raises
    ------
    InvalidArgument
        If it is neither a finite number nor one of this module's.
    """
    if isinstance(init, InitSpec):
        return init
    return InitSpec("constant", _finite("init", init), 0.0)


def _finite(name: str, number: float) -> float:
    value: Any = number
    try:
        value = plain(number)
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except (ValueError, OverflowError):  # an array of several, a whole number of 400 digits
        pass
    raise InvalidArgument(name=name, value=value, reason="must be a finite number")
