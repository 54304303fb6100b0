from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Key = TypeVar("_Key", np.int32, np.int64)
_Value = TypeVar("_Value", bound=np.generic[Any])

def unique(keys: NDArray[_Key]) -> tuple[NDArray[_Key], NDArray[np.int32]]: ...
def sum_by_key(
    counts: NDArray[np.int64], keys: NDArray[_Key], values: NDArray[_Value]
) -> tuple[NDArray[np.int64], NDArray[_Key], NDArray[_Value]]: ...
