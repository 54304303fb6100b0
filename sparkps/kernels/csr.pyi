from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)
_Indptr = NDArray[np.int32] | NDArray[np.int64]
_Values = NDArray[np.float32] | NDArray[np.float64] | None

def dot(
    indptr: _Indptr, columns: NDArray[np.int32], values: _Values, w: NDArray[_Real]
) -> NDArray[_Real]: ...
def matmul(
    indptr: _Indptr, columns: NDArray[np.int32], values: _Values, w: NDArray[_Real]
) -> NDArray[_Real]: ...
def dot_t(
    indptr: _Indptr,
    columns: NDArray[np.int32],
    values: _Values,
    coeff: NDArray[_Real],
    out: NDArray[_Real],
) -> None: ...
def matmul_t(
    indptr: _Indptr,
    columns: NDArray[np.int32],
    values: _Values,
    coeff: NDArray[_Real],
    out: NDArray[_Real],
) -> None: ...
def moments_t(
    indptr: _Indptr,
    columns: NDArray[np.int32],
    values: _Values,
    coeff: NDArray[np.float64],
    power: int,
    out: NDArray[np.float64],
    low: NDArray[np.float64],
) -> None: ...
def logistic(
    margins: NDArray[_Real], labels: NDArray[Any], weights: NDArray[Any] | None = None
) -> tuple[float, NDArray[_Real]]: ...
