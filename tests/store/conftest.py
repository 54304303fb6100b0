import numpy as np
import pytest

from sparkps.kernels.keys import partition_of
from sparkps.spec import TableInfo, TableSpec
from sparkps.store import make_table
from sparkps.wire import userfn


@pytest.fixture
def make():
    """Make a table whose partitions are all here."""

    def build(optimizer=None, *, limit=None, here=None, **spec):
        spec = {"name": "t", "partitions": 4, **spec}
        if optimizer is not None:
            spec["optimizer"] = optimizer.spec()
        partitions = range(spec["partitions"]) if here is None else here
        info = TableInfo(1, TableSpec(**spec))
        return make_table(info, partitions, userfn.loads, limit=limit)

    return build


@pytest.fixture
def message():
    """Group keys (and values) by partition, as a client does: parts, keys, values, order."""

    def group(table, keys, values=None):
        keys = np.array(keys, np.int64)
        part_of = partition_of(keys, table.spec.partitions, table.spec.dim)
        order = np.argsort(part_of, kind="stable")
        numbers, counts = np.unique(part_of, return_counts=True)
        parts = np.stack([numbers, counts], axis=1).astype(np.int32)
        return parts, keys[order], None if values is None else values[order], order

    return group


@pytest.fixture
def push(message):
    def run(table, keys, values):
        parts, grouped, values, _ = message(table, keys, np.asarray(values, table.dtype))
        table.push(parts, table.resolve(parts, grouped, create=True), values)

    return run


@pytest.fixture
def pull(message):
    def run(table, keys, field=0):
        parts, grouped, _, order = message(table, keys)
        rows = table.resolve(parts, grouped, create=False)
        values = table.read(parts, rows, grouped, field)
        out = np.empty_like(values)
        out[order] = values
        return out

    return run
