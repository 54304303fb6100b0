"""Public reports of saving, re-tried without Spark: B38; and of keys outside of a table: B03."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sparkps.client.table import Table
from sparkps.errors import InvalidKey, PathExists, PSError, SnapshotFailed
from sparkps.spark.frames import DriverTable
from sparkps.spec import TableInfo
from sparkps.store.manifest import read_manifest
from sparkps.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(servers=2) as running:
        yield running


@pytest.fixture
def table(cluster: LocalCluster) -> DriverTable:
    home: Any = SimpleNamespace(client=cluster.client())
    return DriverTable(home, cluster.table("b38", dim=1, replace=True).info)


def test_b38_an_existing_path_is_refused_before_any_server_works(
    table: DriverTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.save(tmp_path / "model")
    monkeypatch.setattr(DriverTable, "_write_to", lambda *_: pytest.fail("a server has worked"))
    with pytest.raises(PathExists):
        table.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_b38_what_comes_to_the_path_meanwhile_is_not_replaced(
    table: DriverTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    write_to = DriverTable._write_to

    def slowly(self: DriverTable, directory: Path) -> Any:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "thesis.tex").write_text("years of work")
        return write_to(self, directory)

    monkeypatch.setattr(DriverTable, "_write_to", slowly)
    with pytest.raises(PathExists):
        table.save(tmp_path / "model", overwrite=overwrite)
    assert (tmp_path / "model" / "thesis.tex").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_b38_the_old_model_goes_only_when_the_new_one_is_in_its_place(
    table: DriverTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    table.save(target)
    before = read_manifest(str(target))
    table.push([0], [1.0])
    rename = Path.rename

    moves: list[Path] = []

    def second_fails(self: Path, to: Path) -> Path:
        moves.append(to)
        if len(moves) == 2:
            raise OSError(5, "Input/output error")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(SnapshotFailed):
        table.save(target, overwrite=True)
    assert list(tmp_path.iterdir()) == [target]
    assert read_manifest(str(target)) == before


def test_b03_a_key_beyond_a_dense_table_is_refused_in_every_way_of_writing(
    cluster: LocalCluster,
) -> None:
    table = cluster.table("b03", dim=100, partitions=1)
    for write in (
        lambda keys: table.push(keys, 1.0),
        lambda keys: table.assign(keys, 1.0),
        lambda keys: table.keyset(keys).push(1.0),
        lambda keys: table.vocabulary().add(keys),
    ):
        with pytest.raises(InvalidKey, match="'b03': key 100 at position 1"):
            write([99, 100])
    # A client that believes the table to be larger: the server refuses it, too.
    spec = msgspec.structs.replace(table.spec, dim=101)
    wrong = Table(cluster.client(), TableInfo(table.info.id, spec))
    with pytest.raises(PSError, match=r"keys\[1\] is 100"):
        wrong.push([99, 100], 1.0)
    with pytest.raises(PSError, match=r"keys\[1\] is 100"):
        wrong.pull([99, 100])
    assert not table.pull().any()
    assert len(cluster.pids()) == 3
