from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkps.kernels.buffers import Source
from sparkps.kernels.partitions import PartitionArray

ACCEPTED: Final = 0
DUPLICATE: Final = 1
GAP: Final = 2
LATE: Final = 3
NOT_MINE: Final = 4

def groups(slices: Source) -> tuple[NDArray[np.int32], int]: ...
def check(
    pa: PartitionArray,
    ledger: NDArray[np.int64],
    slices: Source,
    clock: int,
    seq: int,
    sealed: Source | None,
    staged: bool,
    status: NDArray[np.uint8],
) -> int: ...
def applied_up_to(ledger: NDArray[np.int64], parts: Source, clock: int) -> None: ...
