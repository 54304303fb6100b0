"""RMSProp: AdaGrad that forgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels import updates
from sparkps.optim.base import (
    FieldSpec,
    Optimizer,
    built_in,
    fraction,
    nonnegative,
    positive,
    shrink,
)

Array = NDArray[Any]


@built_in
@dataclass(frozen=True)
class RMSProp(Optimizer):
    r"""Steps scaled by a moving average of squared gradients.

    .. math::
        g &\leftarrow g + l_2 w \\
        v &\leftarrow \rho v + (1 - \rho) g^2 \\
        r &= lr / (\sqrt{v} + \epsilon) \\
        w &\leftarrow S(w - r g,\ r\, l_1)

    Parameters
    ----------
    lr
        Step size.
    rho
        Decay of the average.
    eps
        Keeps the division finite.
    l1, l2
        Strengths of the penalties, on touched keys.

    References
    ----------
    Tieleman and Hinton (2012), Lecture 6.5 of Neural networks for machine learning.
    """

    kernel = staticmethod(updates.rmsprop)

    lr: float = positive(0.01)
    rho: float = fraction(0.9)
    eps: float = positive(1e-8)
    l1: float = nonnegative(0.0)
    l2: float = nonnegative(0.0)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (FieldSpec("v"),)

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        w, v = fields["value"], fields["v"]
        g = grads + self.l2 * w
        v *= self.rho
        v += (1 - self.rho) * g * g
        scale = np.sqrt(v) + self.eps
        w -= self.lr * g / scale
        shrink(w, self.lr * self.l1 / scale)
