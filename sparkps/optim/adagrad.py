"""AdaGrad: a step size per number that shrinks with the squares it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels import updates
from sparkps.optim.base import FieldSpec, Optimizer, built_in, nonnegative, positive, shrink

Array = NDArray[Any]


@built_in
@dataclass(frozen=True)
class AdaGrad(Optimizer):
    r"""Frequent features take small steps, rare ones large.

    .. math::
        g &\leftarrow g + l_2 w \\
        n &\leftarrow n + g^2 \\
        r &= lr / (\sqrt{n} + \epsilon) \\
        w &\leftarrow S(w - r g,\ r\, l_1)

    Parameters
    ----------
    lr
        Step size before any gradient was seen.
    eps
        Keeps the division finite.
    l1, l2
        Strengths of the penalties, on touched keys.

    References
    ----------
    Duchi, Hazan and Singer (2011), Adaptive subgradient methods for online learning and stochastic
    optimization.
    """

    kernel = staticmethod(updates.adagrad)

    lr: float = positive(0.1)
    eps: float = positive(1e-8)
    l1: float = nonnegative(0.0)
    l2: float = nonnegative(0.0)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (FieldSpec("n"),)

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        w, n = fields["value"], fields["n"]
        g = grads + self.l2 * w
        n += g * g
        scale = np.sqrt(n) + self.eps
        w -= self.lr * g / scale
        shrink(w, self.lr * self.l1 / scale)
