"""Table handles against real servers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sparkps.client.shell import ClientInfo, client_for
from sparkps.client.table import WHOLE, Table
from sparkps.errors import (
    FunctionFailed,
    InvalidArgument,
    InvalidKey,
    NotInRun,
    TableDropped,
    TableNotFound,
    WrongType,
)
from sparkps.kernels.partitions import init_values
from sparkps.optim import SGD, AdaGrad, Adam
from sparkps.spec import InitSpec
from sparkps.store import functions
from sparkps.testing.cluster import LocalCluster

Create = Callable[..., Table]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("dim", [None, 1000])
def test_pushes_add_and_pulls_give_each_position_its_row(
    create: Create, dtype: str, width: int, dim: int | None
) -> None:
    table = create(dtype=dtype, width=width, dim=dim)
    random = np.random.default_rng(0)
    keys = random.integers(0, 1000, 500)
    shape = (500,) if width == 1 else (500, width)
    values = random.integers(-9, 9, shape)
    table.push(keys, values)
    expected = np.zeros((1000, *shape[1:]), dtype)
    np.add.at(expected, keys, values)
    asked = random.integers(0, 1000, 700)
    pulled = table.pull(asked)
    assert pulled.dtype == dtype
    assert (pulled == expected[asked]).all()


@pytest.mark.parametrize("key", [2**63 - 1, -(2**63), -1, 0])
def test_any_int64_is_a_key_of_a_hashed_table(create: Create, key: int) -> None:
    table = create()
    table.push([key, key], [1.5, 2])
    assert table.pull([key]).tolist() == [3.5]
    assert table.count() == 1


def test_a_pull_of_an_absent_key_gives_init_and_creates_nothing(create: Create) -> None:
    spec = InitSpec("normal", 0, 0.1)
    table = create(width=4, init=spec, seed=3)
    keys = np.array([5, -7])
    assert (
        table.pull(keys) == init_values((spec.kind, spec.a, spec.b), 3, keys, 4, "float32")
    ).all()
    assert table.count() == 0


def test_no_keys_are_no_operation(create: Create) -> None:
    table = create(width=2)
    table.push([], np.zeros((0, 2)))
    table.assign([], np.zeros((0, 2)))
    assert table.pull([]).shape == (0, 2)


def test_of_a_key_assigned_twice_the_last_counts(create: Create) -> None:
    table = create()
    table.push([1, 2], [10, 20])
    table.assign([2, 1, 2], [5, 6, 7])
    assert table.pull([1, 2]).tolist() == [6, 7]


def test_repeated_keys_are_summed_before_the_optimizer_sees_them(create: Create) -> None:
    table = create(optimizer=AdaGrad(lr=1.0, eps=1e-12))
    table.push([1, 1], [1, 3])
    assert table.pull([1]).tolist() == [-1.0]


@pytest.mark.parametrize("dim", [1000, WHOLE + 1000])
def test_a_whole_dense_table_is_pulled_without_keys(create: Create, dim: int) -> None:
    table = create(dim=dim)
    table.push(np.arange(dim), np.arange(dim))
    assert (table.pull() == np.arange(dim)).all()


def test_a_hashed_table_has_no_whole(create: Create) -> None:
    with pytest.raises(InvalidArgument, match="is hashed; name the keys"):
        create().pull()


def test_a_key_outside_a_dense_table_is_refused_by_all(create: Create) -> None:
    table = create(dim=10)
    for call in (
        lambda: table.pull([3, 10]),
        lambda: table.push([3, 10], 1),
        lambda: table.assign([3, 10], 1),
        lambda: table.keyset([3, 10]),
        lambda: table.vocabulary().add([3, 10]),
    ):
        with pytest.raises(InvalidKey, match=r"key 10 at position 1 is outside 0\.\.9"):
            call()


def test_collect_gives_all_rows_by_ascending_key(create: Create) -> None:
    table = create(width=2)
    keys = np.random.default_rng(1).integers(-(2**62), 2**62, 5000)
    table.push(keys, np.stack([keys % 7, keys % 5], 1))
    got, values = table.collect()
    assert (np.diff(got) > 0).all()
    assert (got == np.unique(keys)).all()
    assert (values == np.stack([got % 7, got % 5], 1)).all()
    assert table.count() == len(got)


def test_a_scan_gives_the_optimizer_s_fields(create: Create) -> None:
    table = create(optimizer=Adam(lr=0.1), width=2, dim=4, partitions=2)
    table.push([1], [[1, -1]])
    keys, (value, steps), rows = table.scan((0, 3))
    assert keys.tolist() == [0, 1, 2, 3]
    assert steps.tolist() == [0, 1, 0, 0]
    assert value.shape == (4, 2)
    assert rows.tolist() == [2, 2]
    with pytest.raises(InvalidArgument, match="there are 4 fields"):
        table.scan((9,))


def test_saved_rows_are_restored_with_all_fields(create: Create) -> None:
    old, new = create(optimizer=Adam(lr=0.1)), create(optimizer=Adam(lr=0.1))
    for gradient in (1.0, -2.0):
        old.push([1, 2, 3], gradient)
    keys, fields, _ = old.scan((0, 1, 2, 3))
    new.restore(keys, fields)
    for table in (old, new):
        table.push([2, 3, 4], 0.5)
    assert (old.pull([1, 2, 3, 4]) == new.pull([1, 2, 3, 4])).all()


def test_functions_run_on_every_partition(create: Create) -> None:
    table = create(dim=100)
    table.apply(functions.fill, 2.0)
    assert table.reduce(functions.sum) == 200
    assert table.reduce(functions.norm2) == 20
    table.apply(functions.scale(0.5))

    def times(part: Any, number: float) -> None:
        part["value"][:] *= number

    table.apply(times, 3)
    assert table.pull([0, 99]).tolist() == [3, 3]
    assert table.reduce(lambda part: len(part), combine=lambda a, b: a + b) == 100
    assert len(table.reduce(lambda part: len(part))) == table.spec.partitions


def test_what_a_function_of_the_user_raises_comes_with_its_traceback(create: Create) -> None:
    table = create(dim=100)
    with pytest.raises(FunctionFailed, match="ZeroDivisionError"):
        table.reduce(lambda part: 1 / 0)
    with pytest.raises(FunctionFailed, match="ZeroDivisionError"):
        table.apply(lambda part: 1 / 0)
    table.push([1], [1])
    assert table.pull([1]).tolist() == [1]


def test_readers_do_not_apply_and_writers_do_not_reduce(create: Create) -> None:
    table = create()
    with pytest.raises(WrongType, match="one that writes, for apply"):
        table.apply(functions.norm2)
    with pytest.raises(WrongType, match="one that reads, for reduce"):
        table.reduce(functions.fill, 1.0)
    with pytest.raises(WrongType, match="a function of a partition is needed"):
        table.apply(3)
    with pytest.raises(InvalidArgument, match=r"x=nan: table 't\d+' takes finite numbers only"):
        table.apply(functions.fill, float("nan"))


def test_numbers_of_the_optimizer_change_in_order_with_the_writes(create: Create) -> None:
    table = create(optimizer=SGD(lr=1.0))
    table.push([1], [1])
    table.configure(lr=0.5)
    table.push([1], [1])
    assert table.pull([1]).tolist() == [-1.5]
    with pytest.raises(InvalidArgument, match="has no optimizer"):
        create().configure(lr=1)


def test_a_dropped_table_is_not_found_and_its_handles_say_why(cluster: LocalCluster) -> None:
    table = cluster.table("gone")
    table.drop()
    with pytest.raises(TableDropped, match="table 'gone' was dropped, or replaced"):
        table.pull([1])
    with pytest.raises(TableNotFound):
        cluster.client().find_table("gone")


def test_a_pull_can_be_waited_for_later(create: Create) -> None:
    table = create()
    table.push([1, 2], [1, 2])
    pending = [
        table.pull([1], wait=False),
        table.pull([], wait=False),
        table.pull([2, 1], wait=False),
    ]
    assert [handle.wait().tolist() for handle in pending] == [[1], [], [2, 1]]
    assert all(handle.done() for handle in pending)


def test_a_handle_travels_and_says_what_it_is(create: Create) -> None:
    table = create(dim=10, width=2, optimizer=SGD(lr=0.1))
    copy = pickle.loads(pickle.dumps(table))
    assert copy.info == table.info
    assert repr(copy) == f"<Table {table.name!r} dim=10, width=2, float32, SGD>"
    assert (copy.width, copy.dim, copy.dtype) == (2, 10, np.float32)


def test_outside_a_run_and_the_driver_a_handle_only_reads(
    create: Create, cluster: LocalCluster
) -> None:
    table = create(dim=10, optimizer=SGD(lr=0.1))
    info = ClientInfo(cluster.info.coordinator, cluster.info.settings, tcp=True)
    reader = Table(client_for(info), table.info)
    try:
        assert reader.pull([1]).tolist() == [0]
        assert reader.reduce(functions.count) == 10
        assert reader.keyset([1, 2]).pull().tolist() == [0, 0]
        vocabulary = reader.vocabulary()
        assert vocabulary.pull(vocabulary.add([1, 2])).tolist() == [0, 0]
        for what, call in (
            ("push", lambda: reader.push([1], [1])),
            ("assign", lambda: reader.assign([1], [1])),
            ("push", lambda: vocabulary.push([0], [1])),
            ("push", lambda: reader.keyset([1]).push([1])),
            ("apply", lambda: reader.apply(functions.fill, 1.0)),
            ("configure", lambda: reader.configure(lr=1)),
            ("drop", reader.drop),
        ):
            with pytest.raises(NotInRun, match=f"{what} was called in a Spark task outside ps.run"):
                call()
    finally:
        reader._access.client.close()
