"""When training ends because rows that it does not see are predicted no better any more.

The rule is that of pyspark.ml's gradient-boosted trees fitted with validation
(``GradientBoostedTrees.boost``): the loss of the validation rows has to get better by ``tol`` times
itself, or times 0.01 if it is smaller than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparkps.errors import InvalidInput

#: Numbers that a pass sums over the rows for validation: their losses and their weights.
LOSS: Final = "validation_loss"
WEIGHT: Final = "validation_weight"

_LEAST: Final = 0.01


class EarlyStopping:
    """Watches the mean loss of the validation rows.

    Parameters
    ----------
    column
        The column that says which rows these are.
    tol
        What it has to get better by, as a share of itself.

    Attributes
    ----------
    history : list of float
        The losses so far.

    Examples
    --------
    >>> stopping = EarlyStopping("held_out", 0.1)
    >>> [stopping.take(loss) for loss in (0.7, 0.5, 0.46)]
    [False, False, True]
    """

    def __init__(self, column: str, tol: float) -> None:
        self.column, self.tol = column, tol
        self.history: list[float] = []

    def take(self, loss: float) -> bool:
        """Take in the next loss, and return whether it is not better enough than the best one."""
        best = min(self.history, default=float("inf"))
        self.history.append(loss)
        return not best - loss >= self.tol * max(loss, _LEAST)

    def mean(self, sums: Mapping[str, float]) -> float:
        """The mean loss of the validation rows of a pass.

        Raises
        ------
        InvalidInput
            If there are none.
        """
        weight = sums.get(WEIGHT, 0.0)
        if not weight > 0:
            reason = "it is true in no row of any weight, so there is nothing to validate with"
            raise InvalidInput(where=f"column {self.column!r}", reason=reason)
        return sums[LOSS] / weight
