"""The memory limit of a server: who may still grow, and by how much.

What counts: the memory of every table, and what is *taken* for staged writes, vocabularies and
keysets. The sum never passes the limit.

Asking on every push whether it still fits would cost more than small pushes do. So free memory is
*allotted*: each table gets a limit of its own (which its kernels check before they grow anything),
and a part stays in a pool for the rest. Only a table that reaches its limit, or a pool that is
empty, makes everything be counted and allotted anew. The allotments and the pool together never
exceed what is free, so neither can pass the server's limit behind the other's back.

Not here: what to do with a write that does not fit (:mod:`sparkps.server.writes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from sparkps._machine import machine_memory
from sparkps.config import Settings, counts_memory, spark_memory
from sparkps.errors import MemoryLimit
from sparkps.store import Table

Result = TypeVar("Result")

_LEAST: Final = 64 * 2**20


class Budget:
    """The bytes of one server.

    Parameters
    ----------
    server
        The server's id, for errors.
    limit
        Bytes that may be used in all.

    Attributes
    ----------
    taken
        Bytes of staged writes, vocabularies and keysets.
    """

    def __init__(self, server: int, limit: int) -> None:
        self.server = server
        self.limit = limit
        self.taken = 0
        self._pool = limit
        self._tables: dict[int, Table] = {}

    @property
    def used(self) -> int:
        """Bytes that are used now."""
        return self.taken + sum(table.nbytes for table in self._tables.values())

    @property
    def free(self) -> int:
        """Bytes that are not used; never negative."""
        return max(0, self.limit - self.used)

    def add(self, table: Table) -> None:
        """Count a new table from now on."""
        self._tables[table.info.id] = table
        self._allot()

    def remove(self, table: Table) -> None:
        """Count a table no more."""
        self._tables.pop(table.info.id, None)
        self._allot()

    def growing(self, table: Table, grow: Callable[[], Result]) -> Result:
        """Call ``grow``, and once more with all free memory if the table's allotment was too small.

        Raises
        ------
        MemoryLimit
            If all free memory is too little; nothing has changed then.
        """
        try:
            return grow()
        except MemoryLimit:
            self._allot(needy=table)
        try:
            return grow()
        except MemoryLimit as error:
            raise self.exceeded(table, int(error.fields.get("needed", 0))) from None
        finally:
            self._allot()

    def take(self, table: Table, count: int) -> None:
        """Take bytes for something that is kept for a table.

        Raises
        ------
        MemoryLimit
            If they are not free.
        """
        if count > self._pool:
            if count > self.free:
                raise self.exceeded(table, count)
            self.taken += count
            self._allot()
        else:
            self._pool -= count
            self.taken += count

    def give_back(self, count: int) -> None:
        """Give back what :meth:`take` took."""
        self.taken -= count
        self._pool += count

    def exceeded(self, table: Table, needed: int) -> MemoryLimit:
        """The error that says what was needed and what is used."""
        return MemoryLimit(
            server=self.server,
            table=table.spec.name,
            needed=needed,
            used=self.used,
            limit=self.limit,
        )

    def _allot(self, needy: Table | None = None) -> None:
        free = self.free
        if needy is not None:
            for table in self._tables.values():
                table.array.limit = table.nbytes + (free if table is needy else 0)
            self._pool = 0
            return
        # Half for the pool: staged writes come and go with every clock, tables only grow.
        share = free // 2 // max(1, len(self._tables))
        for table in self._tables.values():
            table.array.limit = table.nbytes + share
        self._pool = free - share * len(self._tables)


def beside_executor(settings: Settings, servers: int, spark: Mapping[str, str]) -> int:
    """Return the limit of a server that stands beside an executor, in bytes.

    What ``server.memory`` says; else, where a container is killed for using too much, half of the
    executor's ``memoryOverhead`` (the JVM and the Python workers need the rest); else half of what
    the executor's heap leaves of the machine. All over the servers of the executor.

    Examples
    --------
    >>> conf = {"spark.master": "yarn", "spark.executor.memoryOverhead": "4g"}
    >>> beside_executor(Settings(), 2, conf) / 2**30
    1.0
    """
    if settings.server_memory is not None:
        return settings.server_memory
    heap, overhead = spark_memory(spark)
    if counts_memory(spark.get("spark.master", "")):
        room = overhead
    else:
        memory = machine_memory()
        room = max(memory - heap, memory // 4)
    return max(_LEAST, room // 2 // max(1, servers))
