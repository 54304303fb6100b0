"""What a built-in server function is, and how the partials of partitions are combined.

A built-in travels as its name and its arguments as plain numbers and strings, never as a pickle, so
a server takes it from any client. A :class:`Reducer` makes one partial per partition, a list of
small arrays; the client combines them by :func:`combine_tree` and finishes the result. An
:class:`Applier` changes a partition in place.

**Same bits.** A partial depends on the rows of its partition and their order; :func:`combine_tree`
on the number of partitions. Neither depends on servers or timing.

Not here: the functions themselves (``reducers``, ``appliers``) and their public names
(``functions``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import InvalidArgument
from sparkps.kernels.partitions import PartitionArray
from sparkps.spec import plain, suggest
from sparkps.store.partition import Part

Array = NDArray[Any]
Partial = TypeVar("Partial")
#: Names a vector of a table: a field (all its numbers), or a column of ``value`` by its number.
Vector = str | int


@dataclasses.dataclass(frozen=True)
class Builtin:
    """Base of all built-ins; their dataclass fields are their arguments."""

    name: ClassVar[str]

    def numbers(self) -> dict[str, Any]:
        """Return the arguments by name, as plain Python values that MessagePack holds."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


@dataclasses.dataclass(frozen=True)
class Reducer(Builtin):
    """Base of the built-ins for ``table.reduce``."""

    def partial(self, part: Part) -> list[Array]:
        """Return what one partition contributes; the arrays own their memory."""
        raise NotImplementedError

    def combine(self, left: list[Array], right: list[Array]) -> list[Array]:
        """Combine two partials, the one of lower partitions on the left; the default adds them."""
        return [a + b for a, b in zip(left, right, strict=True)]

    def finish(self, partial: list[Array]) -> Any:
        """Return the result from the one partial that is left."""
        raise NotImplementedError

    def result(self, partials: Sequence[list[Array]]) -> Any:
        """Return the result from one partial per partition, in ascending order of partitions."""
        return self.finish(combine_tree(partials, self.combine))


@dataclasses.dataclass(frozen=True)
class Applier(Builtin):
    """Base of the built-ins for ``table.apply``."""

    def __call__(self, part: Part) -> None:
        """Change the partition in place, number by number."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class TableReducer(Reducer):
    """Base of the reducers whose kernel takes many partitions in one call, and none alone."""

    def partials(self, table: PartitionArray, partitions: Sequence[int]) -> list[list[Array]]:
        """Return the partial of each partition."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class TableApplier(Applier):
    """Base of the appliers whose kernel takes many partitions in one call, and none alone."""

    def change(self, table: PartitionArray, partitions: Sequence[int]) -> None:
        """Change the partitions in place."""
        raise NotImplementedError


def combine_tree(
    partials: Sequence[Partial], combine: Callable[[Partial, Partial], Partial]
) -> Partial:
    """Combine one partial per partition in a fixed binary tree.

    Neighbours are combined, then neighbours among the results, until one is left; an odd one at the
    end waits. The tree depends on ``len(partials)`` only.

    Parameters
    ----------
    partials
        In ascending order of partitions; at least one.
    combine
        ``combine(left, right)``.

    Examples
    --------
    >>> combine_tree(["a", "b", "c", "d", "e"], lambda x, y: f"({x}{y})")
    '(((ab)(cd))e)'
    """
    level = list(partials)
    if not level:
        raise InvalidArgument(name="partials", value=[], reason="there is nothing to combine")
    while len(level) > 1:
        paired = [combine(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    return level[0]


def vector(part: Part, name: Vector) -> Array:
    """Return a view: a field, ``(rows,)`` or ``(rows, width)``, or a column of ``value``.

    Raises
    ------
    InvalidArgument
        If the table has no such field or column.
    """
    if isinstance(name, int):
        if not 0 <= name < part.width:
            reason = f"the table has {part.width} columns"
            raise InvalidArgument(name="column", value=name, reason=reason)
        value = part["value"]
        return value if value.ndim == 1 else value[:, name]
    if name not in part.fields:
        reason = f"the table has the fields {', '.join(part.fields)}"
        reason += suggest(name, list(part.fields))
        raise InvalidArgument(name="field", value=name, reason=reason)
    return part[name]


def flat(part: Part, name: Vector) -> Array:
    """Return a vector's numbers as one dimension, in row order: a view."""
    array = vector(part, name)
    return array if array.ndim == 1 else array.reshape(-1)


def fitting(array: Array, name: str, number: float) -> float | int:
    """Return a number that may be written to ``array``: whole if that holds integers.

    Raises
    ------
    InvalidArgument
        If a fraction would go into integers.
    """
    if array.dtype.kind != "i":
        return number
    if number != int(number) or not -(2**63) <= number < 2**63:
        reason = "an int64 field takes whole numbers of 64 bits"
        raise InvalidArgument(name=name, value=number, reason=reason)
    return int(number)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    return plain(value)
