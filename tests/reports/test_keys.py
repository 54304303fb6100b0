"""Public reports of wrong keys, re-tried: B02, B04, B07, B33, B36. Each test is named after its
report.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from sparkps.errors import InvalidKey, TableNotFound, WrongType
from sparkps.optim import AdaGrad
from sparkps.testing import LocalCluster

BIG = [2, 2**32 + 2, 2**40 + 7, 2**63 - 1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(servers=2) as running:
        yield running


def test_b02_a_key_outside_a_dense_table_is_named_and_nobody_else_notices(
    cluster: LocalCluster,
) -> None:
    table = cluster.table("b02", dim=100)
    table.assign(np.arange(100), np.arange(100.0))
    wrong: list[object] = []
    stop = threading.Event()

    def keep_pulling() -> None:
        while not stop.is_set():
            if not np.array_equal(table.pull([5, 99]), [5, 99]):
                wrong.append(table.pull([5, 99]))

    other = threading.Thread(target=keep_pulling)
    other.start()
    try:
        for key in (-1, 100, 2**62):
            with pytest.raises(ValueError, match=f"'b02': key {key} at position 1"):
                table.pull([0, key])
            with pytest.raises(InvalidKey, match=f"key {key} "):
                table.push([key], [1.0])
    finally:
        stop.set()
        other.join(10)
    assert wrong == []
    assert table.pull([99])[0] == 99
    assert len(cluster.pids()) == 3


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_b04_keys_beyond_32_bits_stay_apart(cluster: LocalCluster, kind: type) -> None:
    table = cluster.table(f"b04 {kind.__name__}")
    keys = np.array(BIG, kind)
    table.push(keys, np.array([1.0, 2.0, 3.0, 4.0]))
    assert table.pull(keys).tolist() == [1, 2, 3, 4]
    assert table.pull(np.array([2], np.int32)).tolist() == [1]
    assert table.count() == 4


def test_b04_a_key_of_64_unsigned_bits_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match=str(2**63)):
        cluster.table("b04").pull(np.array([2**63], np.uint64))


def test_b04_float_keys_are_refused(cluster: LocalCluster) -> None:
    with pytest.raises(WrongType, match="float64"):
        cluster.table("b04").pull(np.array([1.0]))


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_b07_a_repeated_key_gains_all_its_values(cluster: LocalCluster, order: list[int]) -> None:
    table = cluster.table("b07", replace=True)
    keys, values = np.array([5, 3, 5])[order], np.array([1.0, 2.0, 4.0])[order]
    table.push(keys, values)
    assert table.pull([5, 3, 5]).tolist() == [5, 2, 5]


def test_b07_an_optimizer_sees_a_repeated_key_once_with_the_sum(cluster: LocalCluster) -> None:
    twice = cluster.table("b07 twice", optimizer=AdaGrad(lr=1.0))
    once = cluster.table("b07 once", optimizer=AdaGrad(lr=1.0))
    twice.push([5, 3, 5], [1.0, 2.0, 4.0])
    once.push([5, 3], [5.0, 2.0])
    assert twice.pull([5, 3]).tolist() == once.pull([5, 3]).tolist()


@pytest.mark.parametrize("width", [1, 16])
def test_b33_every_row_of_a_message_arrives(cluster: LocalCluster, width: int) -> None:
    table = cluster.table(f"b33 {width}", width=width)
    rng = np.random.default_rng(0)
    keys = rng.choice(2**60, 100, replace=False)
    values = rng.random((100, width), np.float32)
    table.push(keys, values[:, 0] if width == 1 else values)
    assert np.array_equal(table.pull(keys).reshape(100, width), values)


def test_b33_no_keys_are_an_empty_answer_at_once(cluster: LocalCluster) -> None:
    table = cluster.table("b33 none", width=16)
    table.push([], np.zeros((0, 16)))
    assert table.pull([]).shape == (0, 16)
    assert table.count() == 0


def test_b36_a_key_never_pushed_has_the_initial_value_and_is_not_created(
    cluster: LocalCluster,
) -> None:
    table = cluster.table("b36", init=0.5)
    assert table.pull([1, 2**50]).tolist() == [0.5, 0.5]
    assert table.count() == 0


def test_b36_a_table_never_created_is_named_with_those_there_are(cluster: LocalCluster) -> None:
    cluster.table("b36 here")
    with pytest.raises(TableNotFound, match=r"no table 'b36 not here'.*b36 here"):
        cluster.client().find_table("b36 not here")
