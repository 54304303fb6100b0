"""Make the kind of table that a spec asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparkps.spec import TableInfo
from sparkps.store.dense import DenseTable
from sparkps.store.hashed import HashedTable
from sparkps.store.table import Table


def make_table(
    info: TableInfo,
    partitions: Sequence[int],
    loads: Callable[[bytes], Any],
    *,
    limit: int | None = None,
) -> Table:
    """Return a table with the given partitions open; see :class:`~sparkps.store.table.Table`."""
    kind = HashedTable if info.spec.dim is None else DenseTable
    return kind(info, partitions, loads, limit=limit)
