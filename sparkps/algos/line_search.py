"""Line searches as state machines: told the objective and its slope at one step length, they accept
it or name the next.

They are those under pyspark.ml, so that both find the same iterates: for a smooth objective the one
of Nocedal and Wright, "Numerical Optimization" (2nd ed.), algorithms 3.5 and 3.6 with the cubic of
equation 3.59; with a 1-norm, backtracking with the same conditions.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Protocol

#: Constants of the sufficient decrease and of the curvature condition (Nocedal and Wright, 3.1).
DECREASE: Final = 1e-4
CURVATURE: Final = 0.9
#: Steps while a bracket is looked for, and within one.
TRIES: Final = 10
#: Share of the objective that is lost when a million losses are added.
ROUNDING: Final = 1e-13


class Point(NamedTuple):
    """A step length, with the objective and its slope there."""

    alpha: float
    value: float
    slope: float


class LineSearch(Protocol):
    """A search in one direction; ``failed`` says that it has given up."""

    alpha: float
    failed: bool

    def accepts(self, value: float, slope: float) -> bool:
        """Take in the objective and its slope at ``alpha``; if they are not good enough, ``alpha``
        is the next length to try."""


class StrongWolfe:
    """A step that decreases a smooth objective enough and at which it is flat enough.

    Parameters
    ----------
    value, slope
        At 0; the slope is negative.
    alpha
        The first length to try.
    """

    def __init__(self, value: float, slope: float, alpha: float) -> None:
        self.alpha = alpha
        self.failed = not slope < 0
        self._start = self._low = Point(0.0, value, slope)
        self._high: Point | None = None
        self._tries = 0

    def accepts(self, value: float, slope: float) -> bool:
        """See :class:`LineSearch`."""
        point = Point(self.alpha, value, slope)
        self._tries += 1
        if not math.isfinite(value):
            self._end_of_range(point)
        elif self._bracketed:
            if self._zoom(point):
                return True
        elif self._high_enough(point) or (self._tries > 1 and value >= self._low.value):
            self._begin_zoom(self._low, point)
        elif self._flat(point):
            return True
        elif slope >= 0:
            self._begin_zoom(point, self._low)
        else:
            self._low = point
            self.alpha *= 1.5
        self.failed = self.failed or self._tries >= TRIES
        return False

    @property
    def _bracketed(self) -> bool:
        return self._high is not None

    def _end_of_range(self, point: Point) -> None:
        """The objective is not finite so far away."""
        if self._high is None:
            self.alpha /= 2
        else:
            self._high = point
            self.alpha = (self._low.alpha + point.alpha) / 2

    def _high_enough(self, point: Point) -> bool:
        """Whether the objective is too high at a point."""
        start = self._start
        bound = start.value + DECREASE * point.alpha * start.slope
        return point.value > bound + ROUNDING * abs(start.value)

    def _flat(self, point: Point) -> bool:
        return abs(point.slope) <= CURVATURE * abs(self._start.slope)

    def _begin_zoom(self, low: Point, high: Point) -> None:
        self._low, self._high, self._tries = low, high, 0
        self.alpha = cubic(low, high)

    def _zoom(self, point: Point) -> bool:
        """Narrow the bracket; whether the point is good."""
        low, high = self._low, self._high
        if high is None:
            return False
        if self._high_enough(point) or point.value >= low.value:
            self._high = high = point
        else:
            if self._flat(point):
                return True
            if point.slope * (high.alpha - low.alpha) >= 0:
                self._high = high = low
            self._low = low = point
        self.alpha = cubic(low, high)
        return False


class Backtracking:
    """A step that decreases an objective with a 1-norm enough, by halving and doubling.

    The decrease of the first length is judged, as it is under pyspark.ml, by the smooth part at 0
    in place of the objective there: where x is 0 it is always too large, elsewhere mostly good.

    Parameters
    ----------
    value, slope, alpha
        As of :class:`StrongWolfe`; the slope is that of the pseudo-gradient.
    smooth
        The smooth part of the objective at 0.
    shrink
        What a length that is too large is multiplied by.
    """

    GROW: Final = 2.1
    MOST: Final = 20

    def __init__(
        self, value: float, slope: float, alpha: float, smooth: float, shrink: float
    ) -> None:
        self.alpha = alpha
        self.failed = not slope < 0
        self._value, self._slope, self._smooth, self._shrink = value, slope, smooth, shrink
        self._tries = 0

    def accepts(self, value: float, slope: float) -> bool:
        """See :class:`LineSearch`."""
        bound = self._value + DECREASE * self.alpha * self._slope
        if not self._tries and math.isfinite(value):
            value = self._smooth
        if not value <= bound + ROUNDING * abs(self._value):  # a NaN is no decrease
            factor = self._shrink
        elif slope < CURVATURE * self._slope:
            factor = self.GROW
        elif slope > -CURVATURE * self._slope:
            factor = self._shrink
        else:
            return True
        self._tries += 1
        self.alpha *= factor
        self.failed = self.failed or self._tries >= self.MOST
        return False


def cubic(one: Point, other: Point) -> float:
    """Where the cubic through two points with their slopes is least; a tenth of the way from
    either end at least.

    Examples
    --------
    >>> cubic(Point(0.0, 1.0, -2.0), Point(2.0, 1.0, 2.0))
    1.0
    """
    left, right = (one, other) if one.alpha <= other.alpha else (other, one)
    width = right.alpha - left.alpha
    mean = left.slope + right.slope + 3 * (right.value - left.value) / -width
    square = mean * mean - left.slope * right.slope
    if not square >= 0:
        return left.alpha + width / 2
    root = math.sqrt(square)
    bottom = right.slope - left.slope + 2 * root
    if bottom == 0:
        return left.alpha + width / 2
    least = right.alpha - width * (right.slope + root - mean) / bottom
    if not math.isfinite(least):
        return left.alpha + width / 2
    return min(max(least, left.alpha + 0.1 * width), left.alpha + 0.9 * width)
