"""The Params that estimators here add to pyspark.ml's own, and their setters.

No Param is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasValidationIndicatorCol

from sparkps.errors import InvalidArgument
from sparkps.spec import parse_consistency, suggest


def one_of(name: str, *words: str) -> Any:
    """A type converter that takes one of ``words`` and names them when it is given another."""

    def convert(value: Any) -> str:
        if value not in words:
            raise InvalidArgument(
                name=name, value=value, reason=f"must be one of {', '.join(words)}"
            )
        return str(value)

    return convert


def at_least(name: str, least: float, kind: type, strict: bool = False) -> Any:
    """A type converter to ``kind`` that refuses numbers below ``least`` (or equal to it, when
    ``strict``).
    """

    def convert(value: Any) -> Any:
        number = TypeConverters.toInt(value) if kind is int else TypeConverters.toFloat(value)
        if not (number > least if strict else number >= least):
            raise InvalidArgument(
                name=name,
                value=value,
                reason=f"must be {'more than' if strict else 'at least'} {least:g}",
            )
        return number

    return convert


def _consistency(value: Any) -> str:
    return str(parse_consistency(value))


class HasServerParams(Params):
    """How an estimator trains on the servers."""

    numWorkers: Param[int] = Param(
        Params._dummy(),
        "numWorkers",
        "how many tasks train at once; unset: as many as the input has partitions and Spark has "
        "free slots",
        typeConverter=at_least("numWorkers", 1, int),
    )
    batchSize: Param[int] = Param(
        Params._dummy(),
        "batchSize",
        "rows of one worker's gradient (>= 1); in bsp a step takes this many rows of every worker",
        typeConverter=at_least("batchSize", 1, int),
    )
    stepSize: Param[float] = Param(
        Params._dummy(),
        "stepSize",
        "step size of the solver (> 0); unset: 0.3 for adagrad, 0.05 for adam, 1.0 for sgd, 2.0 "
        "for ftrl",
        typeConverter=at_least("stepSize", 0, float, strict=True),
    )
    consistency: Param[str] = Param(
        Params._dummy(),
        "consistency",
        'how far workers may drift apart: "bsp" (the same bits on every run), '
        '"ssp:<staleness>" or "asp"',
        typeConverter=_consistency,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(batchSize=4096, consistency="bsp")

    def getNumWorkers(self) -> int | None:
        """The number of workers, or None when it is left to the input."""
        return self.getOrDefault(self.numWorkers) if self.isDefined(self.numWorkers) else None

    def getBatchSize(self) -> int:
        """Rows of one worker's gradient."""
        return self.getOrDefault(self.batchSize)

    def getStepSize(self) -> float | None:
        """The step size, or None for the solver's own."""
        return self.getOrDefault(self.stepSize) if self.isDefined(self.stepSize) else None

    def getConsistency(self) -> str:
        """``bsp``, ``ssp:<staleness>`` or ``asp``."""
        return self.getOrDefault(self.consistency)


class HasValidation(HasValidationIndicatorCol):
    """Rows that training does not see and that say when it is enough; named and meant as in
    pyspark.ml's gradient-boosted trees."""

    validationTol: Param[float] = Param(
        Params._dummy(),
        "validationTol",
        "what the mean loss of the rows for validation must get better by in an iteration, as a "
        "share of the larger of itself and 0.01 (>= 0); ignored without validationIndicatorCol",
        typeConverter=at_least("validationTol", 0, float),
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(validationTol=0.01)

    def getValidationIndicatorCol(self) -> str | None:
        """The column that says which rows are for validation, or None."""
        if not self.isDefined(self.validationIndicatorCol):
            return None
        return self.getOrDefault(self.validationIndicatorCol) or None

    def getValidationTol(self) -> float:
        """What the loss of the rows for validation must get better by."""
        return self.getOrDefault(self.validationTol)


class HasValuesCol(Params):
    """Where the values of the features are, when the features column holds ids alone."""

    valuesCol: Param[str] = Param(
        Params._dummy(),
        "valuesCol",
        "column of feature values (array of float or double) beside a features column of ids "
        "(array<bigint>); "
        "unset: every value is 1",
        typeConverter=TypeConverters.toString,
    )

    def getValuesCol(self) -> str | None:
        """The column of values, or None."""
        return self.getOrDefault(self.valuesCol) if self.isDefined(self.valuesCol) else None


def refuse_unknown(given: Mapping[str, Any], known: set[str]) -> None:
    """Raise for the first keyword of ``given`` that is no Param."""
    for name, value in given.items():
        if name not in known:
            raise InvalidArgument(
                name=name,
                value=value,
                reason="there is no such Param" + suggest(name, sorted(known)),
            )


Kind = TypeVar("Kind", bound=type[Params])


def with_setters(kind: Kind) -> Kind:
    """Class decorator: give every Param its ``setName(value)``, which returns the instance, as
    pyspark.ml's classes have them."""
    for name in dir(kind):
        if isinstance(getattr(kind, name), Param):
            setter = f"set{name[0].upper()}{name[1:]}"
            if not hasattr(kind, setter):
                setattr(kind, setter, _setter(name, setter))
    return kind


def _setter(name: str, setter: str) -> Callable[[Params, Any], Params]:
    def set_it(self: Params, value: Any) -> Params:
        return self._set(**{name: value})

    set_it.__name__ = set_it.__qualname__ = setter
    set_it.__doc__ = f"Set the value of ``{name}``."
    return set_it
