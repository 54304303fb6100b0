"""What every optimizer of sparkps.optim must be; a new one is tested by existing."""

import dataclasses
import inspect

import numpy as np
import pytest

import sparkps.optim
from sparkps.errors import InvalidArgument, from_wire
from sparkps.kernels.partitions import PartitionArray
from sparkps.optim import Optimizer, from_spec
from sparkps.spec import TableInfo, TableSpec
from sparkps.store import make_table

OPTIMIZERS = [
    kind
    for kind in vars(sparkps.optim).values()
    if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind is not Optimizer
]
ROWS = 40
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def no_pickles(data):
    raise AssertionError("a built-in optimizer travels by name")


@pytest.fixture(params=OPTIMIZERS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=[1, 3])
def width(request):
    return request.param


def variants(kind):
    """The defaults, and every penalty and switch on."""
    names = kind().numbers()
    on = {"l1": 0.01, "l2": 0.1, "weight_decay": 0.1, "nesterov": True, "lr": 0.05}
    yield kind()
    yield kind().configured(**{name: number for name, number in on.items() if name in names})


def table_of(optimizer, dtype, width, dim=ROWS):
    spec = TableSpec(
        "t", width=width, dim=dim, dtype=dtype, optimizer=optimizer.spec(), partitions=1
    )
    return make_table(TableInfo(1, spec), [0], no_pickles)


def everything(table):
    return {name: table.field(0, i).copy() for i, name in enumerate(table.field_names)}


def shape(width, rows=ROWS):
    return (rows,) if width == 1 else (rows, width)


def test_kernel_and_numpy_agree_step_after_step(kind, dtype, width):
    rng = np.random.default_rng(1)
    rows, parts = np.arange(ROWS, dtype=np.int32), np.array([[0, ROWS]], np.int32)
    for optimizer in variants(kind):
        table = table_of(optimizer, dtype, width)
        expected = everything(table)
        for _ in range(5):
            grads = rng.normal(size=shape(width)).astype(dtype)
            optimizer.update(expected, grads)
            table.push(parts, rows, grads)
            for name, numbers in everything(table).items():
                assert expected[name].dtype == numbers.dtype
                # atol for numbers that cancel: they carry the error of what they came from.
                np.testing.assert_allclose(
                    numbers, expected[name], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
                )
        assert np.any(everything(table)["value"] != 0)


def test_the_kernel_takes_the_numbers_in_the_optimizers_order(kind):
    """Each number matters, and in its own place: both sides react alike to a change of it alone."""
    rng = np.random.default_rng(2)
    rows, parts = np.arange(ROWS, dtype=np.int32), np.array([[0, ROWS]], np.int32)
    for name, number in kind().numbers().items():
        changed = kind().configured(**{name: True if name == "nesterov" else number * 0.7 + 0.01})
        table = table_of(changed, "float64", 1)
        expected = everything(table)
        for _ in range(3):
            grads = rng.normal(size=ROWS)
            changed.update(expected, grads)
            table.push(parts, rows, grads)
        np.testing.assert_allclose(table.field(0, 0), expected["value"], rtol=1e-11, err_msg=name)


def test_rows_do_not_influence_each_other(kind, dtype, width):
    optimizer = list(variants(kind))[1]
    rng = np.random.default_rng(3)
    whole, alone = (everything(table_of(optimizer, dtype, width)) for _ in range(2))
    for _ in range(3):
        grads = rng.normal(size=shape(width)).astype(dtype)
        optimizer.update(whole, grads)
        for i in range(ROWS):
            row = {name: numbers[i : i + 1] for name, numbers in alone.items()}
            optimizer.update(row, grads[i : i + 1])
    for name in whole:
        assert whole[name].tobytes() == alone[name].tobytes(), name


def test_an_assigned_row_has_the_value_and_goes_on_as_from_there(kind, dtype, width):
    optimizer = list(variants(kind))[1]
    rng = np.random.default_rng(4)
    rows, parts = np.arange(ROWS, dtype=np.int32), np.array([[0, ROWS]], np.int32)
    used, fresh = (table_of(optimizer, dtype, width) for _ in range(2))
    used.push(parts, rows, rng.normal(size=shape(width)).astype(dtype))
    values = rng.normal(size=shape(width)).astype(dtype)
    for table in (used, fresh):
        table.assign(parts, rows, values)
        assert table.field(0, 0).tobytes() == values.tobytes()
    for name, numbers in everything(used).items():
        assert numbers.tobytes() == everything(fresh)[name].tobytes(), name
    table = table_of(kind(), dtype, width)
    table.assign(parts, rows, values)
    table.push(parts, rows, np.zeros(shape(width), dtype))
    # AdamW's default decay is a hundred-thousandth of the value per step.
    np.testing.assert_allclose(table.field(0, 0), values, rtol=2e-5)


def test_numbers_travel_and_come_back(kind):
    optimizer = list(variants(kind))[1]
    assert from_spec(optimizer.spec(), no_pickles) == optimizer
    assert list(optimizer.numbers()) == [field.name for field in dataclasses.fields(kind)]


def test_wrong_numbers_are_refused_by_name(kind):
    optimizer = kind()
    for name in optimizer.numbers():
        for number in (np.nan, np.inf, "fast", None):
            with pytest.raises(InvalidArgument, match=f"^{name}="):
                optimizer.configured(**{name: number})
    with pytest.raises(InvalidArgument, match="did you mean 'lr'"):
        optimizer.configured(lrr=1.0)
    with pytest.raises(InvalidArgument, match="lr=0: must be above 0"):
        optimizer.configured(lr=0)


def test_errors_survive_the_wire(kind):
    with pytest.raises(InvalidArgument) as caught:
        kind(lr=-1)
    assert str(from_wire(*caught.value.to_wire())) == str(caught.value)


def test_fields_do_not_depend_on_the_numbers(kind):
    fields = {optimizer.fields() for optimizer in variants(kind)}
    assert len(fields) == 1


def test_it_has_a_kernel_and_a_documented_equation(kind):
    assert kind.kernel is not None
    assert ".. math::" in kind.__doc__
    assert "References" in kind.__doc__


def test_the_kernel_refuses_another_tables_fields(kind):
    optimizer = kind()
    array = PartitionArray(1, 1, "float32", [("float32", False, 0.0)] * 7, dim=4)
    array.open(0)
    numbers = np.array(list(optimizer.numbers().values()))
    with pytest.raises(ValueError, match="fields"):
        optimizer.kernel(
            array, np.array([[0, 1]], np.int32), np.zeros(1, np.int32), np.zeros(1, "f4"), numbers
        )
