"""When a worker may start a clock, and when an old copy of a row is still good enough.

The rules (SEMANTICS §5). A rank's *acknowledged clock* ``a`` means that all writes of its clocks
``0..a-1`` are acknowledged. With ``slowest`` the smallest acknowledged clock of all ranks:

* ``bsp``: clock c starts when every rank has acknowledged all clocks below c, that is when
  ``slowest >= c``.
* ``ssp:s``: clock c starts when ``c - slowest <= s``. Pushes apply on arrival, so a worker at clock
  c sees all updates of clocks ``<= c - s - 1``.
* ``asp``: clock c starts at once.

A copy of a row that was pulled when ``slowest`` was m (as known *before* the pull was sent) holds
all updates of clocks below m. Under ssp:s it may stand in for a new pull at clock c while ``m >= c
- s``. Under bsp the values of two clocks differ by definition, and under asp nothing bounds the age
of a copy: neither uses one.

Not here: whose clock is where (:mod:`sparkps.consistency.clocks`), and the staging of bsp writes
(the server's).
"""

from __future__ import annotations


def may_go(mode: str, staleness: int, clock: int, slowest: int) -> bool:
    """Whether a worker may start ``clock``.

    Parameters
    ----------
    mode
        ``"bsp"``, ``"ssp"`` or ``"asp"``.
    staleness
        The bound s of ssp; ignored by the others.
    clock
        The clock that the worker wants to start.
    slowest
        The smallest acknowledged clock of all ranks, as far as it is known.

    Examples
    --------
    >>> may_go("bsp", 0, clock=3, slowest=2), may_go("ssp", 1, clock=3, slowest=2)
    (False, True)
    """
    return slowest >= must_reach(mode, staleness, clock)


def must_reach(mode: str, staleness: int, clock: int) -> int:
    """The acknowledged clock that every rank must have reached before a worker may start ``clock``.

    Examples
    --------
    >>> must_reach("bsp", 0, 5), must_reach("ssp", 3, 5), must_reach("asp", 0, 5)
    (5, 2, 0)
    """
    if mode == "asp":
        return 0
    return clock if mode == "bsp" else clock - staleness


def may_use_copy(mode: str, staleness: int, clock: int, stamp: int) -> bool:
    """Whether a row pulled when the slowest acknowledged clock was ``stamp`` may be used again at
    ``clock``.

    Examples
    --------
    >>> may_use_copy("ssp", 2, clock=5, stamp=3), may_use_copy("ssp", 2, clock=6, stamp=3)
    (True, False)
    """
    return mode == "ssp" and stamp >= clock - staleness
