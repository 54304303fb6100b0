from sparkps.kernels.buffers import Source
from sparkps.kernels.partitions import PartitionArray

def sgd(
    pa: PartitionArray, parts: Source, rows: Source, grads: Source, numbers: Source
) -> None: ...
def momentum(
    pa: PartitionArray, parts: Source, rows: Source, grads: Source, numbers: Source
) -> None: ...
def adagrad(
    pa: PartitionArray, parts: Source, rows: Source, grads: Source, numbers: Source
) -> None: ...
def rmsprop(
    pa: PartitionArray, parts: Source, rows: Source, grads: Source, numbers: Source
) -> None: ...
def adam(
    pa: PartitionArray, parts: Source, rows: Source, grads: Source, numbers: Source
) -> None: ...
def adamw(
    pa: PartitionArray, parts: Source, rows: Source, grads: Source, numbers: Source
) -> None: ...
def ftrl(
    pa: PartitionArray, parts: Source, rows: Source, grads: Source, numbers: Source
) -> None: ...
