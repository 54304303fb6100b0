from typing import Any

from numpy.typing import DTypeLike, NDArray

from sparkps.kernels.buffers import Source

def init_values(
    init: tuple[str, float, float], seed: int, keys: Source, width: int, dtype: DTypeLike
) -> NDArray[Any]: ...
