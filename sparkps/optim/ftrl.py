"""FTRL-Proximal: sparse models online; a weight is computed from what it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.errors import InvalidArgument
from sparkps.kernels import updates
from sparkps.optim.base import FieldSpec, Optimizer, built_in, nonnegative, positive
from sparkps.spec import InitSpec, TableSpec

Array = NDArray[Any]


@built_in
@dataclass(frozen=True)
class FTRL(Optimizer):
    r"""Follow the regularized leader, per coordinate.

    .. math::
        \sigma &= (\sqrt{n + g^2} - \sqrt{n}) / lr \\
        z &\leftarrow z + g - \sigma w \qquad n \leftarrow n + g^2 \\
        w &= \begin{cases} 0 & |z| \le l_1 \\
        -\dfrac{z - \mathrm{sign}(z)\, l_1}{(\beta + \sqrt{n}) / lr + l_2} & \text{otherwise}
        \end{cases}

    ``value`` is a function of ``z`` and ``n``: so a table must start from 0, and ``assign`` and
    server functions that change ``value`` solve for ``z``.

    Parameters
    ----------
    lr
        The paper's :math:`\alpha`, step size.
    beta
        Keeps the first steps small; the paper advises 1.
    l1, l2
        Strengths of the penalties; with ``l1`` most weights are exactly 0.

    References
    ----------
    McMahan et al. (2013), Ad click prediction: a view from the trenches, Algorithm 1.
    """

    kernel = staticmethod(updates.ftrl)
    derives_value = True

    lr: float = positive(0.1)
    beta: float = positive(1.0)
    l1: float = nonnegative(0.0)
    l2: float = nonnegative(0.0)

    def fields(self) -> tuple[FieldSpec, ...]:
        return (FieldSpec("z"), FieldSpec("n"))

    def update(self, fields: dict[str, Array], grads: Array) -> None:
        w, z, n = fields["value"], fields["z"], fields["n"]
        seen = n + grads * grads
        sigma = (np.sqrt(seen) - np.sqrt(n)) / self.lr
        z += grads - sigma * w
        n[...] = seen
        closed = (np.copysign(self.l1, z) - z) / ((self.beta + np.sqrt(n)) / self.lr + self.l2)
        w[...] = np.where(np.abs(z) <= self.l1, 0, closed)

    def assigned(self, fields: dict[str, Array], values: Array) -> None:
        fields["value"][...] = values
        fields["n"][...] = 0
        self.replaced(fields)

    def replaced(self, fields: dict[str, Array]) -> None:
        w = fields["value"]
        rate = (self.beta + np.sqrt(fields["n"])) / self.lr + self.l2
        # The closed form solved for z; np.sign gives z = 0 for a weight of 0.
        fields["z"][...] = -w * rate - np.sign(w) * self.l1

    def check_table(self, spec: TableSpec) -> None:
        if spec.init != InitSpec():
            reason = "FTRL computes a weight from its gradients, so its tables start from 0"
            raise InvalidArgument(name="init", value=spec.init, reason=reason)
