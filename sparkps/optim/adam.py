"""Adam: momentum and a step size per number, both corrected for their start at zero."""

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
    per_row,
    positive,
    shrink,
)

Array = NDArray[Any]


@built_in
@dataclass(frozen=True)
class Adam(Optimizer):
    r"""Adam with a step counter per row: a row touched seldom is corrected by its own count.

    .. math::
        g &\leftarrow g + l_2 w \qquad t \leftarrow t + 1 \\
        m &\leftarrow \beta_1 m + (1 - \beta_1) g \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \\
        r &= lr / (\sqrt{v / (1 - \beta_2^t)} + \epsilon) \\
        w &\leftarrow S(w - r\, m / (1 - \beta_1^t),\ r\, l_1)

    Parameters
    ----------
    lr
        Step size.
    beta1, beta2
        Decays of the two moving averages.
    eps
        Keeps the division finite.
    l1, l2
        Strengths of the penalties, on touched keys.

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization.
    """

    kernel = staticmethod(updates.adam)

    lr: float = positive(0.001)
    beta1: float = fraction(0.9)
    beta2: float = fraction(0.999)
    eps: float = positive(1e-8)
    l1: float = nonnegative(0.0)
    l2: float = nonnegative(0.0)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (FieldSpec("m"), FieldSpec("v"), FieldSpec("t", per_row=True))

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        w = fields["value"]
        g = grads + self.l2 * w
        m, v = averaged(fields, g, self.beta1, self.beta2)
        scale = np.sqrt(v) + self.eps
        w -= self.lr * m / scale
        shrink(w, self.lr * self.l1 / scale)


def averaged(fields: dict[str, Array], g: Array, beta1: float, beta2: float) -> tuple[Array, Array]:
    """Take ``g`` into the fields m, v and t, and return m and v corrected for their start at 0."""
    m, v, t = fields["m"], fields["v"], fields["t"]
    t += 1
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * g * g
    # float64, because 1 - beta**t cancels; then the table's dtype.
    steps = t.astype(np.float64)
    correction1 = per_row((1 - beta1**steps).astype(g.dtype), g)
    correction2 = per_row((1 - beta2**steps).astype(g.dtype), g)
    return m / correction1, v / correction2
