"""Pieces and slices cover every row once, in order, within their sizes."""

from __future__ import annotations

import numpy as np
import pytest

from sparkps.client.split import HOLD, cut_slices, pieces, sizes_of, whole_parts
from sparkps.routing.partitioner import Routes
from sparkps.routing.placement import make_view
from sparkps.spec import ServerInfo, TableSpec


def routes_of(servers: int, partitions: int = 64) -> Routes:
    view = make_view(1, [ServerInfo(i, 1, f"ipc:///s{i}") for i in range(servers)])
    return Routes(1, partitions, view)


def random_counts(total: int, partitions: int = 64) -> np.ndarray:
    at = np.random.default_rng(total).integers(0, partitions, total)
    return np.bincount(at, minlength=partitions)


@pytest.mark.parametrize("servers", [1, 2, 5])
@pytest.mark.parametrize("total", [1, 10, 1000])
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_pieces_cover_all_rows_in_grouped_order(servers: int, total: int, rows: int) -> None:
    routes, counts = routes_of(servers), random_counts(total)
    cuts = pieces(routes, counts, total, rows)
    assert [piece.begin for piece in cuts] == [0, *(piece.end for piece in cuts[:-1])]
    assert cuts[-1].end == total
    named = np.zeros(64, np.int64)
    for piece in cuts:
        assert 0 < piece.end - piece.begin <= rows
        assert piece.parts.dtype == np.int32
        assert piece.parts[:, 1].sum() == piece.end - piece.begin
        assert (routes.owners[piece.parts[:, 0]] == piece.server).all()
        np.add.at(named, routes.slot[piece.parts[:, 0]], piece.parts[:, 1])
    assert (named == counts).all()


def test_the_rows_of_a_server_begin_where_its_first_piece_does() -> None:
    cuts = pieces(routes_of(2), random_counts(1000), 1000, 100)
    for server in (0, 1):
        mine = [piece for piece in cuts if piece.server == server]
        assert {piece.first for piece in mine} == {mine[0].begin}


@pytest.mark.parametrize("servers", [1, 2, 5])
@pytest.mark.parametrize("rows", [5, 40, 10_000])
def test_slices_cover_all_rows_and_never_straddle_messages(servers: int, rows: int) -> None:
    routes, counts = routes_of(servers), random_counts(1000)
    slices, messages = cut_slices(routes, counts, 1000, 5, rows)
    ends = np.cumsum(slices[:, 2])
    assert ends[-1] == 1000
    assert slices[:, 2].max() <= 5
    assert [message[1] for message in messages] == [0, *(message[2] for message in messages[:-1])]
    for server, low, high, begin, end in messages:
        assert (routes.owners[slices[low:high, 0]] == server).all()
        assert end == ends[high - 1]
        assert end - begin == slices[low:high, 2].sum() <= max(min(rows, 5 * HOLD), 5)


def test_a_long_write_holds_a_server_for_a_few_slices_at_a_time() -> None:
    routes, counts = routes_of(1), random_counts(100_000)
    _, messages = cut_slices(routes, counts, 100_000, 16_384, 1_000_000)
    sizes = [end - begin for _, _, _, begin, end in messages]
    assert max(sizes) <= HOLD * 16_384
    assert len(sizes) == 4


def test_slices_do_not_depend_on_servers_or_message_sizes() -> None:
    counts = np.bincount(np.random.default_rng(1).integers(0, 64, 1000), minlength=64)
    found = set()
    for servers, rows in ((1, 10_000), (3, 50), (5, 7)):
        routes = routes_of(servers)
        slices, _ = cut_slices(routes, counts[routes.partitions], 1000, 6, rows)
        found.add(tuple(sorted(map(tuple, slices[:, :3].tolist()))))
    assert len(found) == 1


def test_a_wide_row_has_a_slice_of_its_own() -> None:
    assert sizes_of(TableSpec("t", width=65_536, dtype="float64"), 2**16).rows_per_slice == 1
    assert sizes_of(TableSpec("t", width=65_536, dtype="float64"), 2**16).rows(8) == 1
    assert sizes_of(TableSpec("t"), 2**22).rows_per_slice == 16_384


def test_whole_parts_name_every_partition_once() -> None:
    parts = whole_parts(routes_of(3))
    assert sorted(p for _, mine in parts for p in mine.tolist()) == list(range(64))
