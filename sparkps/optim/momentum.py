"""Gradient descent with (Nesterov's) momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
class Momentum(Optimizer):
    r"""Heavy-ball steps, or with ``nesterov`` his; a row moves only when it is touched.

    .. math::
        g &\leftarrow g + l_2 w \\
        m &\leftarrow \mu m + g \\
        w &\leftarrow S(w - lr\,(g + \mu m \text{ if nesterov, else } m),\ lr\, l_1)

    Parameters
    ----------
    lr
        Step size.
    momentum
        The decay :math:`\mu` of the velocity ``m``.
    nesterov
        Use Nesterov's form, as Sutskever et al. write it.
    l1, l2
        Strengths of the penalties, on touched keys.

    References
    ----------
    Sutskever, Martens, Dahl and Hinton (2013), On the importance of initialization and momentum in
    deep learning.
    """

    kernel = staticmethod(updates.momentum)

    lr: float = positive(0.01)
    momentum: float = fraction(0.9)
    nesterov: bool = False
    l1: float = nonnegative(0.0)
    l2: float = nonnegative(0.0)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (FieldSpec("m"),)

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        w, m = fields["value"], fields["m"]
        g = grads + self.l2 * w
        m *= self.momentum
        m += g
        w -= self.lr * (g + self.momentum * m if self.nesterov else m)
        shrink(w, self.lr * self.l1)
