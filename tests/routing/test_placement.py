"""Placement is even, agreed upon, and moves little."""

from __future__ import annotations

from collections import Counter

import pytest

from sparkps.errors import InvalidArgument
from sparkps.routing.placement import make_view, place
from sparkps.spec import GROUPS, ServerInfo


def infos(*ids: int) -> list[ServerInfo]:
    return [ServerInfo(i, 1, f"ipc:///s{i}") for i in ids]


def moved(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("servers", [1, 2, 3, 5, 8, 63, 64, 70])
def test_load_is_even(servers: int) -> None:
    load = Counter(place(range(servers)))
    assert max(load.values()) - min(load.values()) <= 1
    assert len(load) == min(servers, GROUPS)


def test_all_who_compute_it_agree() -> None:
    assert place([4, 1, 9]) == place([9, 4, 1, 1])


@pytest.mark.parametrize("servers", [1, 2, 3, 5, 8])
def test_a_server_that_joins_takes_its_share_and_nothing_else_moves(servers: int) -> None:
    before = place(range(servers))
    after = place(range(servers + 1), before)
    assert moved(before, after) <= -(-GROUPS // (servers + 1))
    assert all(b == servers for a, b in zip(before, after, strict=True) if a != b)


@pytest.mark.parametrize("servers", [2, 3, 5, 8])
def test_a_server_that_leaves_moves_only_what_it_had(servers: int) -> None:
    before = place(range(servers))
    after = place(range(1, servers), before)
    load = Counter(after)
    assert all(a == 0 for a, b in zip(before, after, strict=True) if a != b)
    assert max(load.values()) - min(load.values()) <= 1


def test_groups_need_a_server() -> None:
    with pytest.raises(InvalidArgument, match="groups need at least one server"):
        place([])


def test_a_view_remembers_when_each_group_last_moved() -> None:
    one = make_view(1, infos(0, 1))
    two = make_view(2, infos(0, 1, 2), one)
    three = make_view(3, infos(0, 1, 2), two)
    assert set(one.changed) == {1}
    assert all(
        (stamp == 2) == (owner == 2) for stamp, owner in zip(two.changed, two.owners, strict=True)
    )
    assert three.changed == two.changed


def test_a_view_of_nobody_has_no_owners() -> None:
    assert make_view(4, [], make_view(1, infos(0))).owners == ()


@pytest.mark.parametrize("servers", [1, 2, 3, 8])
def test_what_is_kept_stays_whatever_the_balance(servers: int) -> None:
    before = place(range(servers))
    assert place(range(servers + 3), before, keep=True) == before


@pytest.mark.parametrize("servers", [2, 3, 5, 8])
def test_of_a_lost_server_the_others_take_over_and_nothing_else_moves(servers: int) -> None:
    before = place(range(servers))
    after = place(range(1, servers), before, keep=True)
    assert all(b == 0 for b, a in zip(before, after, strict=True) if a != b)
    assert 0 not in after
    load = Counter(after)
    assert max(load.values()) - min(load.values()) <= 1


def test_an_uneven_placement_is_kept_and_its_holes_are_filled_by_those_with_room() -> None:
    before = (0,) * (GROUPS - 8) + (1,) * 4 + (2,) * 4
    after = place([0, 1, 3], before, keep=True)
    assert after[: GROUPS - 4] == before[: GROUPS - 4]
    assert 0 not in after[GROUPS - 4 :]
    assert set(after[GROUPS - 4 :]) <= {1, 3}


def test_a_view_that_keeps_has_changed_only_where_a_server_was_lost() -> None:
    one = make_view(1, infos(0, 1, 2))
    two = make_view(2, infos(0, 2, 3), one, keep=True)
    changed = {owner for owner, stamp in zip(one.owners, two.changed, strict=True) if stamp == 2}
    assert changed == {1}
