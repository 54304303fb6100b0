"""Tables of any int64 key: a row exists from its first applied write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels import index
from sparkps.store.table import Table

Array = NDArray[Any]

#: The coarse bound of growth. Rows get room for at most 1/8 more and are copied only while a view
#: of them lives; an index that doubles is new memory of at most 23 bytes per key (4 bytes, a load
#: of 0.35, and doubled).
_MEMORY_FACTOR = 3
_INDEX_BYTES_PER_KEY = 64
#: Each area of memory is rounded up to pages.
_ROUNDING = 8192


class HashedTable(Table):
    """A table without ``dim``."""

    def resolve(self, parts: Array, keys: Array, create: bool) -> Array:
        out = np.empty(len(keys), np.int32)
        if create:
            index.find_or_insert(self.array, parts, keys, out)
        else:
            index.find(self.array, parts, keys, out)
        return out

    def missing(self, parts: Array, keys: Array) -> int:
        return len(keys) - int(np.count_nonzero(self.resolve(parts, keys, create=False) >= 0))

    def growth(self, parts: Array, spare: int = 0) -> int:
        keys = int(parts[:, 1].sum())
        if keys == 0:
            return 0
        per_key = 2 * self.row_bytes + _INDEX_BYTES_PER_KEY
        areas = len(parts) * (len(self.field_names) + 2)
        coarse = _MEMORY_FACTOR * self.nbytes + keys * per_key + areas * _ROUNDING
        if coarse <= spare:
            return coarse
        return sum(self.array.growth_bytes(p, n) for p, n in parts.tolist())
