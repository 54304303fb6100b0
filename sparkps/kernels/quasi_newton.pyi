from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sparkps.kernels.partitions import PartitionArray

def products(
    pa: PartitionArray,
    partitions: Sequence[int],
    slots: Sequence[int],
    scale: float,
    slope: float,
    l1: float,
    l2: float,
    unscaled: bool,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]: ...
def move(
    pa: PartitionArray,
    partitions: Sequence[int],
    slots: Sequence[int],
    scale: float,
    slope: float,
    l1: float,
    l2: float,
    unscaled: bool,
    accept: bool,
    slot: int,
    coefficients: Sequence[float],
    alpha: float,
) -> None: ...
