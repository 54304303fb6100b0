from typing import Any, TypeAlias

from numpy.typing import NDArray

# For type checkers only: what a kernel reads. Raw bytes are little-endian numbers of its dtype.
Source: TypeAlias = NDArray[Any] | bytes | bytearray | memoryview
