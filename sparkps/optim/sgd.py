"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sparkps.kernels import updates
from sparkps.optim.base import Optimizer, built_in, nonnegative, positive, shrink

Array = NDArray[Any]


@built_in
@dataclass(frozen=True)
class SGD(Optimizer):
    r"""Plain gradient steps, with an L2 term in the gradient and a proximal L1 step.

    .. math::
        g &\leftarrow g + l_2 w \\
        w &\leftarrow S(w - lr\, g,\ lr\, l_1)
        \qquad S(w, \tau) = \mathrm{sign}(w) \max(|w| - \tau, 0)

    Parameters
    ----------
    lr
        Step size.
    l1, l2
        Strengths of the penalties, on touched keys.

    References
    ----------
    Robbins and Monro (1951), A stochastic approximation method; Duchi and Singer (2009), Efficient
    online and batch learning using forward backward splitting, for the L1 step.
    """

    kernel = staticmethod(updates.sgd)

    lr: float = positive(0.01)
    l1: float = nonnegative(0.0)
    l2: float = nonnegative(0.0)

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        w = fields["value"]
        g = grads + self.l2 * w
        w -= self.lr * g
        shrink(w, self.lr * self.l1)
