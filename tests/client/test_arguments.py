"""What callers may give as keys and values, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sparkps.client.arguments import as_keys, as_ordinals, as_values, refuse_keys, refuse_ordinals
from sparkps.errors import InvalidArgument, InvalidKey, WrongType
from sparkps.spec import TableSpec


@pytest.mark.parametrize(
    "keys",
    [
        [3, -1],
        (3, -1),
        np.array([3, -1], np.int8),
        np.array([3, 9, -1, 9])[::2],
        pd.Series([3, -1]),
        pa.array([3, -1]),
    ],
)
def test_whole_numbers_of_any_kind_are_keys(keys: Any) -> None:
    got = as_keys(keys, "t")
    assert got.tolist() == [3, -1]
    assert got.dtype == np.int64
    assert got.flags.c_contiguous


def test_a_good_array_is_not_copied() -> None:
    keys = np.arange(3)
    assert as_keys(keys, "t") is keys


def test_no_keys_are_keys() -> None:
    assert as_keys([], "t").dtype == np.int64


@pytest.mark.parametrize(
    "keys", [[1.0], np.array([1.5]), ["a"], np.array([1], object), np.empty(0)]
)
def test_what_is_no_whole_number_is_no_key(keys: Any) -> None:
    with pytest.raises(WrongType, match="an integer dtype is needed"):
        as_keys(keys, "t")


def test_keys_have_one_dimension() -> None:
    with pytest.raises(WrongType, match=r"of shape \(1, 1\); one dimension is needed"):
        as_keys([[1]], "t")


def test_unsigned_keys_are_refused_from_two_to_the_63rd() -> None:
    assert as_keys(np.array([2**63 - 1], np.uint64), "t").tolist() == [2**63 - 1]
    with pytest.raises(
        InvalidKey, match=f"table 't': key {2**63} at position 1 is 2\\*\\*63 or more"
    ):
        as_keys(np.array([1, 2**63], np.uint64), "t")


def test_a_key_outside_a_dense_table_is_named() -> None:
    spec = TableSpec("t", dim=10)
    assert refuse_keys(np.array([0, 9]), spec) is None
    assert refuse_keys(np.array([-5]), TableSpec("t")) is None
    assert "key -1 at position 1 is outside 0..9" in str(refuse_keys(np.array([3, -1, 10]), spec))


def test_values_are_cast_to_the_table_s_dtype() -> None:
    spec = TableSpec("t")
    assert as_values([1, 2], 2, spec).dtype == np.float32
    assert as_values(np.array([True, False]), 2, TableSpec("t", dtype="int64")).tolist() == [1, 0]
    assert as_values(np.array([1, 2], np.int32), 2, TableSpec("t", dtype="int64")).dtype == np.int64


def test_one_number_stands_for_all() -> None:
    assert as_values(2, 3, TableSpec("t", width=2)).tolist() == [[2, 2]] * 3


def test_floats_are_never_made_whole() -> None:
    with pytest.raises(WrongType, match="whole numbers"):
        as_values([1.0], 1, TableSpec("t", dtype="int64"))


@pytest.mark.parametrize("values", [["a"], [1j], [None]])
def test_what_is_no_number_is_no_value(values: Any) -> None:
    with pytest.raises(WrongType, match="numbers is needed"):
        as_values(values, 1, TableSpec("t"))


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"takes shape \(2, 3\) for 2 keys"):
        as_values(np.zeros((2, 2)), 2, TableSpec("t", width=3))
    with pytest.raises(InvalidArgument, match=r"takes shape \(2,\) for 2 keys"):
        as_values(np.zeros(3), 2, TableSpec("t"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_finite_are_refused_by_row(bad: float) -> None:
    values = np.zeros((3, 2))
    values[1, 1] = bad
    with pytest.raises(InvalidArgument, match=r"values\[1\].*finite numbers only"):
        as_values(values, 3, TableSpec("t", width=2))
    assert not np.isfinite(
        as_values(values, 3, TableSpec("t", width=2, allow_nonfinite=True))
    ).all()


def test_ordinals_are_those_of_the_vocabulary() -> None:
    assert as_ordinals(np.array([1, 0]), 2, "t").dtype == np.int32
    assert as_ordinals([], 2, "t").dtype == np.int32
    with pytest.raises(
        InvalidArgument, match=r"ordinals\[1\]=2: the vocabulary of table 't' has 2 keys"
    ):
        as_ordinals(np.array([1, 2]), 2, "t")
    with pytest.raises(WrongType, match=r"as vocabulary\.add"):
        as_ordinals([0.5], 2, "t")
    assert refuse_ordinals(np.array([0, 1], np.int32), 2, "t") is None
    assert "ordinals[0]=-1" in str(refuse_ordinals(np.array([-1], np.int32), 2, "t"))


def test_lists_of_several_lengths_are_no_arrays() -> None:
    ragged = [[1], [2, 3]]
    with pytest.raises(WrongType, match="keys of table 't' is no array"):
        as_keys(ragged, "t")
    with pytest.raises(WrongType, match="ordinals of table 't' is no array"):
        as_ordinals(ragged, 3, "t")
    with pytest.raises(WrongType, match="values for table 't' is no array"):
        as_values(ragged, 2, TableSpec("t"))
