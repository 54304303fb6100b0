"""What an optimizer is: the fields that it adds to a row, and one update of gathered rows in place.

An optimizer is a frozen dataclass. Its dataclass fields of type ``float``, ``int`` or ``bool`` are
its *numbers*, in order: what ``table.configure`` changes and what its fused kernel is handed.
:meth:`Optimizer.update` is plain numpy on arrays of rows; it runs a user's own class, and it is the
reference that each kernel is tested against.

Rules that :class:`sparkps.store.table.Table` relies on:

* ``update`` sees each key once per call, with the summed gradient of that call, and changes rows
  independently of each other: how rows are grouped into calls must not change a bit.
* It computes element by element in the table's dtype. Python floats keep numpy in that dtype; a
  reduction over rows (``grads.sum()``, ``np.dot``) would break both rules.
* What a row remembers, step counters included, is a field; an optimizer object has no state of its
  own.

Not here: where rows live (``sparkps.store``) and how gradients are summed by key
(``sparkps.kernels``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import InvalidArgument, MalformedRequest, WrongType
from sparkps.spec import OptimizerSpec, TableSpec, plain, suggest
from sparkps.wire import userfn

Array = NDArray[Any]
#: ``kernel(partitions, parts, rows, grads, numbers)``: the fused update of rows that live in
#: partitions.
Kernel: TypeAlias = "staticmethod[[Any, Array, Array, Array, Array], None]"
Self = TypeVar("Self", bound="Optimizer")

_NUMBER_TYPES = {"float": float, "int": int, "bool": bool, float: float, int: int, bool: bool}
_BUILT_IN: dict[str, type[Optimizer]] = {}


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """A field beyond ``value``: its name and what a new row has in it.

    ``per_row`` fields hold one int64 counter per row; others hold ``width`` numbers of the table's
    dtype.
    """

    name: str
    per_row: bool = False
    initial: float = 0.0


@dataclasses.dataclass(frozen=True)
class Range:
    """Where a number may lie, and the words for it."""

    low: float
    high: float
    low_included: bool
    words: str

    def holds(self, number: float) -> bool:
        """Whether a finite number lies inside; ``high`` itself never does."""
        return (
            self.low <= number if self.low_included else self.low < number
        ) and number < self.high


def positive(default: float) -> Any:
    """Dataclass field of a number above 0."""
    return _ranged(default, Range(0.0, math.inf, False, "must be above 0"))


def nonnegative(default: float) -> Any:
    """Dataclass field of a number of 0 or more."""
    return _ranged(default, Range(0.0, math.inf, True, "must not be negative"))


def fraction(default: float) -> Any:
    """Dataclass field of a number from 0 to below 1, as decay rates are."""
    return _ranged(default, Range(0.0, 1.0, True, "must be at least 0 and below 1"))


def _ranged(default: float, allowed: Range) -> Any:
    return dataclasses.field(default=default, metadata={"range": allowed})


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Base of all optimizers; subclass it for your own.

    A subclass is a frozen dataclass in which every field has a default. Its class is shipped to the
    servers by cloudpickle, so it may be defined in a notebook.

    Raises
    ------
    InvalidArgument
        If a number is not finite or is out of its range.

    Examples
    --------
    Gradient descent whose step shrinks with each update of a row:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from sparkps.optim import FieldSpec, Optimizer
    >>> @dataclass(frozen=True)
    ... class Harmonic(Optimizer):
    ...     lr: float = 0.5
    ...
    ...     def fields(self):
    ...         return (FieldSpec("steps", per_row=True),)
    ...
    ...     def update(self, fields, grads):
    ...         fields["steps"] += 1
    ...         rate = (self.lr / fields["steps"]).astype(grads.dtype)
    ...         fields["value"] -= per_row(rate, grads) * grads
    >>> from sparkps.optim import per_row
    >>> rows = {"value": np.zeros((2, 1), "f4"), "steps": np.array([0, 1])}
    >>> Harmonic().update(rows, np.ones((2, 1), "f4"))
    >>> rows["value"].tolist()
    [[-0.5], [-0.25]]
    """

    #: The fused kernel of a built-in class; None runs :meth:`update` on gathered rows.
    kernel: ClassVar[Kernel | None] = None
    #: Whether ``value`` is computed from the other fields, so that :meth:`replaced` must follow a
    #: changed value.
    derives_value: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A kernel computes what its own class does: not the update of a subclass that has another.
        owner = next(
            kind for kind in cls.__mro__ if issubclass(kind, Optimizer) and "kernel" in vars(kind)
        )
        if cls.update is not owner.update or cls.fields is not owner.fields:
            cls.kernel = None

    def __post_init__(self) -> None:
        for field, kind in _number_fields(type(self)):
            number = _checked(field, kind, getattr(self, field.name))
            object.__setattr__(self, field.name, number)

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return the fields beyond ``value``. They must not depend on the numbers."""
        return ()

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        """Apply one summed gradient per row, in place.

        Parameters
        ----------
        fields
            Every field by name, ``"value"`` first: ``(rows, width)``, or ``(rows,)`` in a table of
            width 1, of the table's dtype; per-row counters are ``(rows,)`` int64.
        grads
            Shaped and typed as ``fields["value"]``.
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def assigned(self, fields: dict[str, Array], values: Array) -> None:
        """Set ``value``, and the other fields to what a row has that starts there (a new one's)."""
        fields["value"][...] = values
        for spec in self.fields():
            fields[spec.name][...] = spec.initial

    def replaced(self, fields: dict[str, Array]) -> None:
        """Make the other fields agree with a ``value`` that a server function has changed."""

    def check_table(self, spec: TableSpec) -> None:
        """Raise ``InvalidArgument`` if this optimizer cannot serve such a table."""

    def numbers(self) -> dict[str, float]:
        """Return the numbers by name, in order."""
        return {
            field.name: float(getattr(self, field.name)) for field, _ in _number_fields(type(self))
        }

    def configured(self: Self, **numbers: float) -> Self:
        """Return a copy with some numbers changed.

        Raises
        ------
        InvalidArgument
            If a name is unknown, or a number is not finite or out of its range.
        """
        known = list(self.numbers())
        for name, number in numbers.items():
            if name not in known:
                what = f"{type(self).__name__} has the numbers {', '.join(known) or '(none)'}"
                raise InvalidArgument(name=name, value=number, reason=what + suggest(name, known))
        return dataclasses.replace(self, **numbers)

    def spec(self) -> OptimizerSpec:
        """Return what travels: name, numbers, and if its class is a user's own, the object."""
        name = type(self).__name__
        try:
            source = None if _BUILT_IN.get(name) is type(self) else userfn.dumps(self)
        except Exception as error:  # a user's object may raise anything when it is pickled
            got = f"an object that cannot be pickled ({error})"
            raise WrongType(
                what=f"the optimizer {name}", got=got, expected="what cloudpickle takes"
            ) from error
        return OptimizerSpec(name, tuple(self.numbers().items()), source)


def from_spec(spec: OptimizerSpec, loads: Callable[[bytes], Any]) -> Optimizer:
    """Make the optimizer again on the server's side.

    Parameters
    ----------
    spec
        As :meth:`Optimizer.spec` gave it.
    loads
        Unpickles a user's class, or raises where that is refused.

    Raises
    ------
    MalformedRequest
        If a built-in's name is unknown or the pickle holds something else.
    InvalidArgument
        If a number is wrong.
    """
    if spec.source is None:
        kind = _BUILT_IN.get(spec.name)
        if kind is None:
            known = sorted(_BUILT_IN)
            reason = f"there is no optimizer {spec.name!r}{suggest(spec.name, known)}"
            raise MalformedRequest(reason=reason)
        return kind().configured(**dict(spec.numbers))
    optimizer = loads(spec.source)
    if not isinstance(optimizer, Optimizer):
        raise MalformedRequest(
            reason=f"the optimizer {spec.name!r} is a {type(optimizer).__name__}"
        )
    return optimizer.configured(**dict(spec.numbers))


def built_in(kind: type[Self]) -> type[Self]:
    """Class decorator of the optimizers that every server knows by name."""
    _BUILT_IN[kind.__name__] = kind
    return kind


def per_row(numbers: Array, like: Array) -> Array:
    """Shape one number per row so that it broadcasts over ``like``, which may have columns."""
    return numbers.reshape(numbers.shape + (1,) * (like.ndim - numbers.ndim))


def shrink(value: Array, threshold: Array | float) -> None:
    """Soft-threshold in place, ``sign(w) max(|w| - threshold, 0)``, L1's proximal step."""
    left = np.abs(value) - threshold
    value[...] = np.where(left <= 0, 0, np.copysign(left, value))


def _number_fields(kind: type[Optimizer]) -> Iterator[tuple[dataclasses.Field[Any], type]]:
    for field in dataclasses.fields(kind):
        number_type = _NUMBER_TYPES.get(field.type)
        if number_type is not None:
            yield field, number_type


def _checked(field: dataclasses.Field[Any], kind: type, number: Any) -> float:
    try:
        number = plain(number)
        finite = math.isfinite(number)
    except (TypeError, ValueError):
        raise InvalidArgument(name=field.name, value=number, reason="must be a number") from None
    except OverflowError:  # of a whole number
        finite = False
    if not finite:
        raise InvalidArgument(name=field.name, value=number, reason="must be finite")
    if kind(number) != number:
        words = "must be true or false" if kind is bool else "must be a whole number"
        raise InvalidArgument(name=field.name, value=number, reason=words)
    allowed: Range | None = field.metadata.get("range")
    if allowed is not None and not allowed.holds(number):
        raise InvalidArgument(name=field.name, value=number, reason=allowed.words)
    checked: float = kind(number)
    return checked
