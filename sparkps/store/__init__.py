"""Where rows live: tables, their partitions and initial values, server functions, saved files."""

from sparkps.store.dense import DenseTable
from sparkps.store.hashed import HashedTable
from sparkps.store.make import make_table
from sparkps.store.partition import Part
from sparkps.store.table import Table

__all__ = ["DenseTable", "HashedTable", "Part", "Table", "make_table"]
