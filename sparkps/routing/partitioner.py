"""Partitions of a table: their groups, their bounds, and the order in which a request names them.

Covers the arithmetic that all programs must agree on. Which *key* is in which partition is the
kernel's business (:func:`sparkps.kernels.keys.partition_of`); which server has which *group* is
:mod:`.placement`'s.

A table of P partitions puts partition p in group ``(p * GROUPS // P + id) % GROUPS``: neighbouring
partitions share a group when there are more partitions than groups, and tables of few partitions
do not all start on the same server. The number of partitions is fixed while a table lives, so a
partition never changes its group.

A request names partitions *server-major*: all of the first server's, ascending, then the second's.
One counting sort in that order cuts a request into one contiguous piece per server
(:class:`Routes`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparkps.errors import MalformedRequest
from sparkps.spec import GROUPS, View

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def group_of(table: int, partitions: int) -> Int64s:
    """Return the group of each partition of a table.

    Parameters
    ----------
    table
        The table's id.
    partitions
        Its number of partitions P.

    Returns
    -------
    ndarray of int64, shape (P,)

    Examples
    --------
    >>> group_of(1, 4)
    array([ 1, 17, 33, 49])
    """
    return (np.arange(partitions, dtype=np.int64) * GROUPS // partitions + table) % GROUPS


def dense_bounds(partitions: int, dim: int) -> Int64s:
    """Return the first key of each dense partition, then ``dim``: ``p * dim // P``, exactly.

    Examples
    --------
    >>> dense_bounds(3, 10)
    array([ 0,  3,  6, 10])
    """
    # Python's integers: p * dim passes 2**63 for the largest tables.
    return np.array([p * dim // partitions for p in range(partitions + 1)], dtype=np.int64)


def owners_of(table: int, partitions: int, view: View) -> Int64s:
    """Return the server id of each partition of a table in a view.

    Raises
    ------
    MalformedRequest
        The view has no owners yet.
    """
    if len(view.owners) != GROUPS:
        raise MalformedRequest(reason=f"view {view.number} has no owners yet")
    return np.array(view.owners, dtype=np.int64)[group_of(table, partitions)]


class Routes:
    """The places of one table's partitions in one view, and the order in which requests name them.

    Attributes
    ----------
    view : int
        Number of the view.
    servers : tuple of int
        Ids of the servers that have a partition, ascending.
    owners : ndarray of int64, shape (P,)
        Server id of each partition.
    partitions : ndarray of int32, shape (P,)
        Partitions in server-major order.
    slot : ndarray of int32, shape (P,)
        The position of each partition in that order: ``partitions[slot[p]] == p``.
    bounds : list of int, length len(servers) + 1
        Positions ``bounds[i]:bounds[i + 1]`` are those of ``servers[i]``.
    parts : ndarray of int32, shape (P, 2)
        The partitions in server-major order, with a count of 0 each.
    """

    __slots__ = ("bounds", "owners", "partitions", "parts", "servers", "slot", "starts", "view")

    def __init__(self, table: int, partitions: int, view: View) -> None:
        self.view = view.number
        self.owners = owners_of(table, partitions, view)
        order = np.argsort(self.owners, kind="stable")
        self.partitions: Int32s = order.astype(np.int32)
        self.slot: Int32s = np.empty(partitions, dtype=np.int32)
        self.slot[order] = np.arange(partitions, dtype=np.int32)
        self.parts: Int32s = np.stack((self.partitions, np.zeros_like(self.partitions)), axis=1)
        servers, starts = np.unique(self.owners[order], return_index=True)
        self.servers: tuple[int, ...] = tuple(servers.tolist())
        self.starts: Int64s = starts.astype(np.int64)
        self.bounds: list[int] = [*starts.tolist(), partitions]

    def per_server(self, counts: Int64s) -> list[int]:
        """Sum counts that are indexed by position into one number per server."""
        if len(self.servers) == 1:
            return [int(counts.sum())]
        return np.add.reduceat(counts, self.starts).tolist()  # type: ignore[no-any-return]
