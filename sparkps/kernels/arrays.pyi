from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Value = TypeVar("_Value", bound=np.generic[Any])
_Order = NDArray[np.int32] | NDArray[np.int64]

def take(values: NDArray[_Value], order: _Order, out: NDArray[_Value]) -> None: ...
def put(values: NDArray[_Value], order: _Order, out: NDArray[_Value]) -> None: ...
def any_nonfinite(values: NDArray[Any]) -> int: ...
