"""Tables of the keys ``0 .. dim-1``: every row exists from the start, no key is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels import index
from sparkps.store.table import Table

Array = NDArray[Any]


class DenseTable(Table):
    """A table with ``dim``."""

    def resolve(self, parts: Array, keys: Array, create: bool) -> Array:
        out = np.empty(len(keys), np.int32)
        index.find(self.array, parts, keys, out)
        return out

    def missing(self, parts: Array, keys: Array) -> int:
        self.resolve(parts, keys, create=False)
        return 0

    def growth(self, parts: Array, spare: int = 0) -> int:
        return 0
