"""The numbers that come with ticks: sums per clock (bsp's all-reduce) and rows of the history per
epoch.

The rules:

* A rank reports the numbers of a clock once; a report that comes again (from a new holder of the
  rank that repeats clocks) changes nothing. Reports of one rank come in order of clock.
* A row of the history is summed by batch within each rank, then by rank, so that it has the same
  bits whatever the timing.
* In bsp the numbers of a clock are also summed over the ranks, in order of rank, and kept until
  every rank has passed that clock: a rank that is taken over gets the sums again.
* A number is an int, a float, a bool (counted) or a list of numbers (added element by element).
  Within an epoch all numbers of one name have one shape, over clocks and ranks; that is looked at
  when they come, since sums are made when nobody is left who could be told.
"""

from __future__ import annotations

from typing import Any, Final

from sparkps.errors import InvalidArgument

_INT64: Final = 2**63


def add(total: Any, number: Any, name: str = "") -> Any:
    """Return ``total + number``, of numbers or of lists of numbers of the same length.

    Raises
    ------
    InvalidArgument
        They cannot be added; the argument named is ``name``.
    """
    if isinstance(total, list) and isinstance(number, list) and len(total) == len(number):
        return [add(a, b, name) for a, b in zip(total, number, strict=True)]
    if isinstance(total, (int, float)) and isinstance(number, (int, float)):
        result = total + number
        # What crosses the wire has 64 bits; a count beyond goes on as a float.
        return result if isinstance(result, float) or abs(result) < _INT64 else float(result)
    raise InvalidArgument(
        name=name,
        value=number,
        reason=f"cannot be added to {total!r}; ticks carry numbers or lists of one length",
    )


def shape(number: Any, name: str = "") -> tuple[int, ...]:
    """The lengths of a list of lists, ``()`` of a number.

    Raises
    ------
    InvalidArgument
        It is neither, or its lists have several lengths.
    """
    if isinstance(number, (int, float)):
        return ()
    if isinstance(number, list):
        inner = {shape(item, name) for item in number}
        if len(inner) < 2:
            return (len(number), *next(iter(inner), ()))
    raise InvalidArgument(
        name=name, value=number, reason="ticks carry numbers, and lists of them of one length"
    )


def sum_up(total: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Add ``numbers`` to ``total``, name by name, in place."""
    for name, number in numbers.items():
        total[name] = (
            add(total[name], number, name) if name in total else add(_zero(number), number, name)
        )


def _zero(number: Any) -> Any:
    if isinstance(number, list):
        return [_zero(item) for item in number]
    # -0.0 is the number that changes nothing when it is added, not even the sign of a zero.
    return -0.0 if isinstance(number, float) else 0


class History:
    """The numbers of one session.

    Parameters
    ----------
    size
        The number of ranks.
    keep_clocks
        Whether sums per clock are made (bsp).
    """

    def __init__(self, size: int, keep_clocks: bool) -> None:
        self._size = size
        self._keep = keep_clocks
        self._next = [0] * size
        self._epochs: dict[int, dict[int, dict[str, Any]]] = {}
        self._shapes: dict[int, dict[str, tuple[int, ...]]] = {}
        self._clocks: dict[int, dict[int, dict[str, Any]]] = {}
        self._sums: dict[int, dict[str, Any]] = {}

    def note(self, rank: int, clock: int, epoch: int, numbers: dict[str, Any]) -> None:
        """The numbers that a rank reports of a clock.

        Raises
        ------
        InvalidArgument
            They cannot be added to those that came before; nothing has changed then.
        """
        if clock < self._next[rank]:
            return
        shapes = self._shapes.setdefault(epoch, {})
        for name, number in numbers.items():
            now = shape(number, name)
            before = shapes.setdefault(name, now)
            if now != before:
                reason = f"has the shape {now}, and {before} before; ticks carry one shape per name"
                raise InvalidArgument(name=name, value=number, reason=reason)
        total = self._epochs.setdefault(epoch, {}).setdefault(rank, {})
        sum_up(total, numbers)
        self._next[rank] = clock + 1
        if self._keep:
            self._clocks.setdefault(clock, {})[rank] = numbers

    def row(self, epoch: int) -> dict[str, Any]:
        """The sums of an epoch that every rank has ended; its numbers are forgotten."""
        self._shapes.pop(epoch, None)
        return _over_ranks(self._epochs.pop(epoch, {}))

    def close_clocks(self, below: int) -> None:
        """Every rank has acknowledged the clocks below: make their sums."""
        for clock in sorted(clock for clock in self._clocks if clock < below):
            self._sums[clock] = _over_ranks(self._clocks.pop(clock))

    def sums(self, clock: int) -> dict[str, Any]:
        """The sums of a clock that was closed and not yet forgotten; empty otherwise."""
        return self._sums.get(clock, {})

    def forget_clocks(self, below: int) -> None:
        """Every rank has passed the clocks below."""
        for clock in [clock for clock in self._sums if clock < below]:
            del self._sums[clock]


def _over_ranks(by_rank: dict[int, dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for rank in sorted(by_rank):
        sum_up(total, by_rank[rank])
    return total
