"""AdamW: Adam whose weight decay does not pass through the moving averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels import updates
from sparkps.optim.adam import averaged
from sparkps.optim.base import FieldSpec, Optimizer, built_in, fraction, nonnegative, positive

Array = NDArray[Any]


@built_in
@dataclass(frozen=True)
class AdamW(Optimizer):
    r"""Adam with decoupled weight decay, on touched rows.

    .. math::
        w &\leftarrow w - lr\, \lambda w \\
        w &\leftarrow w - lr\, \hat m / (\sqrt{\hat v} + \epsilon)

    with :math:`\hat m, \hat v` as in :class:`~sparkps.optim.Adam`.

    Parameters
    ----------
    lr
        Step size.
    beta1, beta2
        Decays of the two moving averages.
    eps
        Keeps the division finite.
    weight_decay
        The decay :math:`\lambda` per step, times ``lr``.

    References
    ----------
    Loshchilov and Hutter (2019), Decoupled weight decay regularization.
    """

    kernel = staticmethod(updates.adamw)

    lr: float = positive(0.001)
    beta1: float = fraction(0.9)
    beta2: float = fraction(0.999)
    eps: float = positive(1e-8)
    weight_decay: float = nonnegative(0.01)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (FieldSpec("m"), FieldSpec("v"), FieldSpec("t", per_row=True))

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        w = fields["value"]
        m, v = averaged(fields, grads, self.beta1, self.beta2)
        w -= self.lr * self.weight_decay * w
        w -= self.lr * m / (np.sqrt(v) + self.eps)
