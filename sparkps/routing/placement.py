"""Placement: which server has which group of partitions.

Rendezvous hashing: each (server, group) has a score that depends on nothing else, and a group goes
to the server that scores highest. A cap keeps the load even: with G groups and N servers each
server has ``G // N`` of them and ``G % N`` servers have one more. A view made from the one before
keeps every group where it is unless its server has left or has more than its share, so that a
server that joins or leaves moves about 1/N of the groups and no others. Everything is a pure
function of the ids, so that all who compute it agree.

Does not decide *when* a view changes; that is the coordinator's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sparkps.errors import InvalidArgument
from sparkps.spec import GROUPS, ServerInfo, View

_MASK = 2**64 - 1


def _mix(x: int) -> int:
    """Mix one 64-bit number (splitmix64, Steele et al. 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def score(server: int, group: int) -> int:
    """Return the rendezvous score of a group on a server."""
    return _mix(_mix(server) ^ group)


def place(
    servers: Iterable[int], previous: Sequence[int] = (), *, keep: bool = False
) -> tuple[int, ...]:
    """Give each group a server.

    Parameters
    ----------
    servers
        Ids of the servers that may hold groups; at least one.
    previous
        Owners before, one per group; empty for a first placement.
    keep
        Leave every group where it is, as long as its server lives, whatever the balance: nothing
        carries rows over.

    Returns
    -------
    tuple of int, length GROUPS
        The id of each group's server.

    Raises
    ------
    InvalidArgument
        There is no server.
    """
    ids = sorted(set(servers))
    if not ids:
        raise InvalidArgument(name="servers", value=[], reason="groups need at least one server")
    share, extra = divmod(GROUPS, len(ids))
    held = Counter(owner for owner in previous if owner in set(ids))
    # Who may have one group more: those that have the most now, then those of the lowest ids.
    larger = set(sorted(ids, key=lambda s: (-held[s], s))[:extra])
    room = {s: share + (s in larger) for s in ids}
    if keep:
        room = {s: max(size, held[s]) for s, size in room.items()}
    owners: dict[int, int] = {}

    def fill(pairs: Iterable[tuple[int, int]]) -> None:
        for group, server in sorted(pairs, key=lambda pair: (-score(pair[1], pair[0]), pair)):
            if group not in owners and room[server] > 0:
                owners[group] = server
                room[server] -= 1

    fill((group, owner) for group, owner in enumerate(previous) if owner in room)
    fill((group, server) for group in range(GROUPS) if group not in owners for server in ids)
    return tuple(owners[group] for group in range(GROUPS))


def make_view(
    number: int,
    servers: Sequence[ServerInfo],
    previous: View | None = None,
    *,
    keep: bool = False,
) -> View:
    """Make the view of these servers.

    Parameters
    ----------
    number
        Its number, above that of ``previous``.
    servers
        The servers that live. None at all gives a view without owners.
    previous
        The view before: its placement is kept as far as it goes.
    keep
        Move no group of a server that lives.

    Returns
    -------
    View
        ``changed[g]`` is ``number`` where the owner of group g is not the one before.

    Examples
    --------
    >>> one = make_view(1, [ServerInfo(id=0, incarnation=1, data="ipc:///tmp/s0")])
    >>> set(one.owners), set(one.changed)
    ({0}, {1})
    """
    ordered = tuple(sorted(servers, key=lambda server: server.id))
    if not ordered:
        return View(number=number)
    before = previous.owners if previous is not None else ()
    stamps = previous.changed if previous is not None else ()
    owners = place((server.id for server in ordered), before, keep=keep)
    changed = tuple(
        stamps[group] if group < len(before) and before[group] == owner else number
        for group, owner in enumerate(owners)
    )
    return View(number=number, servers=ordered, owners=owners, changed=changed)
