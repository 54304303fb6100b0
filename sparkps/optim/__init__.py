"""Optimizers: the base class for your own, and one file for each that comes with sparkps.

Not public: the fields of L-BFGS (:mod:`.lbfgs`), which no push moves.
"""

from sparkps.optim import lbfgs as _lbfgs  # noqa: F401 - servers know it by name
from sparkps.optim.adagrad import AdaGrad
from sparkps.optim.adam import Adam
from sparkps.optim.adamw import AdamW
from sparkps.optim.base import FieldSpec, Optimizer, from_spec, per_row, shrink
from sparkps.optim.ftrl import FTRL
from sparkps.optim.momentum import Momentum
from sparkps.optim.rmsprop import RMSProp
from sparkps.optim.sgd import SGD

__all__ = [
    "FTRL",
    "SGD",
    "AdaGrad",
    "Adam",
    "AdamW",
    "FieldSpec",
    "Momentum",
    "Optimizer",
    "RMSProp",
    "from_spec",
    "per_row",
    "shrink",
]
