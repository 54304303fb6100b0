from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels.buffers import Source
from sparkps.kernels.partitions import PartitionArray

def gather(
    pa: PartitionArray,
    field: int,
    parts: Source,
    rows: Source,
    out: NDArray[Any],
    keys: Source | None = None,
) -> None: ...
def gather_field(
    pa: PartitionArray, field: int, parts: Source, rows: Source, keys: Source | None = None
) -> NDArray[Any]: ...
def scatter_set(
    pa: PartitionArray, field: int, parts: Source, rows: Source, values: Source
) -> None: ...
def scatter_add(
    pa: PartitionArray, field: int, parts: Source, rows: Source, values: Source
) -> None: ...
def sum_rows(
    pa: PartitionArray, parts: Source, rows: Source, values: Source
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]: ...
