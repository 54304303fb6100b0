"""A partition as a server function sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Part:
    """The rows of one partition, in row order: ``part[field]`` is an array.

    Arrays are ``(rows,)`` in a table of width 1 and for counters, else ``(rows, width)``. A
    function given to ``table.apply`` changes them in place; in ``table.reduce`` they are read-only.
    They are the memory of the server: do not keep them after the call, and return copies.

    Attributes
    ----------
    number : int
        The partition's number.
    keys : ndarray of int64
        One per row; read-only.
    width : int
        Numbers per row of the table.
    seed : int
        The table's seed.

    Examples
    --------
    A function for ``table.apply`` that clips, and one for ``table.reduce`` that finds the largest
    key:

    >>> def clip(part, limit):
    ...     np.clip(part["value"], -limit, limit, out=part["value"])
    >>> def largest(part):
    ...     return int(part.keys.max(initial=-1))
    """

    def __init__(
        self,
        number: int,
        keys: Array,
        fields: dict[str, Array],
        *,
        seed: int,
        applied: int,
        width: int,
        writeable: bool,
    ) -> None:
        self.number = number
        self.keys = keys
        self.width = width
        self.seed = seed
        self._fields = fields
        self._applied = applied
        self._rng: np.random.Generator | None = None
        keys.flags.writeable = False
        if not writeable:
            for array in fields.values():
                array.flags.writeable = False

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, ``"value"`` first."""
        return tuple(self._fields)

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers, a function of the table's seed, the partition and how many functions were
        applied to it before."""
        if self._rng is None:
            words = (self.seed & (2**64 - 1), self.number, self._applied)
            self._rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
        return self._rng

    def __getitem__(self, field: str) -> Array:
        try:
            return self._fields[field]
        except KeyError:
            known = ", ".join(self._fields)
            raise KeyError(f"there is no field {field!r}; the fields are {known}") from None

    def __setitem__(self, field: str, numbers: Any) -> None:
        """Write into the field, so that ``part["value"] *= 2`` and ``part["value"] = x`` work."""
        target = self[field]
        if numbers is not target:
            target[...] = numbers

    def __contains__(self, field: object) -> bool:
        return field in self._fields

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<Part {self.number}: {len(self)} rows of {', '.join(self._fields)}>"
