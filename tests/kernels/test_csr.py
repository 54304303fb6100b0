"""Sparse products and the logistic loss against plain loops in Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkps.kernels import csr

Array = NDArray[Any]

LENGTHS = [3, 0, 1, 40, 0, 0, 7, 100, 0]
COLUMNS = 50
INDPTR = np.concatenate([[0], np.cumsum(LENGTHS)])
INDICES = np.random.default_rng(0).integers(0, COLUMNS, sum(LENGTHS)).astype(np.int32)

float_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
value_dtypes = pytest.mark.parametrize("value_dtype", [np.float32, np.float64, None])


def numbers(dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def nonzeros(values: Array | None) -> list[tuple[int, int, Any]]:
    rows = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    ones = np.ones(len(rows), np.float32)
    return list(zip(rows, INDICES, ones if values is None else values, strict=True))


@float_dtypes
@value_dtypes
@pytest.mark.parametrize("indptr_dtype", [np.int32, np.int64])
def test_dot_adds_in_float64_and_rounds_once(
    dtype: Any, value_dtype: Any, indptr_dtype: Any
) -> None:
    values = None if value_dtype is None else numbers(value_dtype, len(INDICES))
    w = numbers(dtype, COLUMNS)
    want = np.zeros(len(LENGTHS))
    for row, column, value in nonzeros(values):
        want[row] += float(value) * float(w[column])
    got = csr.dot(INDPTR.astype(indptr_dtype), INDICES, values, w)
    assert got.dtype == dtype
    assert (got == want.astype(dtype)).all()


@float_dtypes
@value_dtypes
def test_dot_t_adds_to_out_in_order_and_in_its_dtype(dtype: Any, value_dtype: Any) -> None:
    values = None if value_dtype is None else numbers(value_dtype, len(INDICES))
    coeff = numbers(dtype, len(LENGTHS))
    want = numbers(dtype, COLUMNS)
    got = want.copy()
    for row, column, value in nonzeros(values):
        want[column] += dtype(value) * coeff[row]
    csr.dot_t(INDPTR, INDICES, values, coeff, got)
    assert (got == want).all()


@float_dtypes
@value_dtypes
@pytest.mark.parametrize("width", [1, 3, 8])
def test_each_column_of_matmul_is_a_dot(dtype: Any, value_dtype: Any, width: int) -> None:
    values = None if value_dtype is None else numbers(value_dtype, len(INDICES))
    w = numbers(dtype, COLUMNS, width)
    got = csr.matmul(INDPTR, INDICES, values, w)
    assert got.shape == (len(LENGTHS), width)
    for k in range(width):
        assert (got[:, k] == csr.dot(INDPTR, INDICES, values, w[:, k].copy())).all()


@float_dtypes
@value_dtypes
@pytest.mark.parametrize("width", [1, 3, 8])
def test_each_column_of_matmul_t_is_a_dot_t(dtype: Any, value_dtype: Any, width: int) -> None:
    values = None if value_dtype is None else numbers(value_dtype, len(INDICES))
    coeff = numbers(dtype, len(LENGTHS), width)
    got = numbers(dtype, COLUMNS, width)
    columns = got.T.copy()
    csr.matmul_t(INDPTR, INDICES, values, coeff, got)
    for k in range(width):
        csr.dot_t(INDPTR, INDICES, values, coeff[:, k].copy(), columns[k])
        assert (got[:, k] == columns[k]).all()


@float_dtypes
def test_batches_without_rows_or_without_non_zeros_are_fine(dtype: Any) -> None:
    none = INDICES[:0]
    w = numbers(dtype, COLUMNS)
    out = w.copy()
    assert csr.dot(np.array([0]), none, None, w).shape == (0,)
    assert csr.dot(np.array([0, 0, 0]), none, None, w).tolist() == [0, 0]
    csr.dot_t(np.array([0, 0]), none, None, w[:1], out)
    assert (out == w).all()


def test_unaligned_and_read_only_batches_are_welcome() -> None:
    values, w = numbers(np.float64, len(INDICES)), numbers(np.float32, COLUMNS)
    odd = [
        np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1)
        for array in (INDPTR, INDICES, values, w)
    ]
    assert (csr.dot(*odd) == csr.dot(INDPTR, INDICES, values, w)).all()


@pytest.mark.parametrize(
    ("indptr", "columns", "sentence"),
    [
        ([0, 2], [0, 5], r"columns\[1\] is 5, outside 0..4"),
        ([0, 2], [-1, 0], r"columns\[0\] is -1, outside 0..4"),
        ([0, 2, 1, 2], [0, 0], "must not descend, as it does after row 1"),
        ([0, 3], [0, 0], "from 0 to the number of columns 2, not from 0 to 3"),
        ([1, 2], [0, 0], "from 0 to the number of columns 2, not from 1 to 2"),
        ([], [], "at least one entry"),
    ],
)
def test_a_batch_that_is_no_csr_is_refused(
    indptr: list[int], columns: list[int], sentence: str
) -> None:
    batch = np.array(indptr, np.int64), np.array(columns, np.int32), None
    out = np.zeros(5)
    with pytest.raises(ValueError, match=sentence):
        csr.dot(*batch, out)
    with pytest.raises(ValueError, match=sentence):
        csr.dot_t(*batch, np.ones(max(len(indptr) - 1, 0)), out)
    assert (out == 0).all()


def test_shapes_and_dtypes_must_agree() -> None:
    coeff: Array = np.ones(len(LENGTHS))
    out: Array = np.zeros(COLUMNS)
    with pytest.raises(ValueError, match="columns has 151 rows but values has 1"):
        csr.dot(INDPTR, INDICES, np.ones(1), out)
    with pytest.raises(ValueError, match="coeff has 8 rows but indptr has 9"):
        csr.dot_t(INDPTR, INDICES, None, coeff[1:], out)
    with pytest.raises(ValueError, match="coeff has 2 columns but out has 3"):
        csr.matmul_t(INDPTR, INDICES, None, np.ones((9, 2)), np.ones((COLUMNS, 3)))
    with pytest.raises(TypeError, match="coeff and out must have one dtype"):
        csr.dot_t(INDPTR, INDICES, None, coeff.astype(np.float32), out)
    with pytest.raises(TypeError, match="w must be float32 or float64, not int64"):
        csr.dot(INDPTR, INDICES, None, out.astype(np.int64))  # type: ignore[type-var]


@float_dtypes
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_is_the_loss_and_its_derivative(dtype: Any, weighted: bool) -> None:
    margins = numbers(dtype, 200) * 5
    labels = np.arange(200) % 2
    weights = np.linspace(0, 2, 200) if weighted else None
    loss, coeff = csr.logistic(margins, labels, weights)
    m, scale = margins.astype(float), np.ones(200) if weights is None else weights
    np.testing.assert_allclose(loss, (scale * (np.logaddexp(0, m) - labels * m)).sum(), rtol=1e-12)
    want = scale * (1 / (1 + np.exp(-m)) - labels)
    assert coeff.dtype == dtype
    np.testing.assert_allclose(coeff, want, rtol=1e-6 if dtype == np.float32 else 1e-14, atol=1e-15)


def test_logistic_neither_overflows_nor_loses_small_numbers() -> None:
    margins = np.array([1000.0, -1000.0, 1000.0, -1000.0, 40.0])
    loss, coeff = csr.logistic(margins, np.array([1, 0, 0, 1, 1]))
    assert loss == 2000 + math.log1p(math.exp(-40))
    assert coeff.tolist() == [0, 0, 1, -1, -math.exp(-40) / (1 + math.exp(-40))]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32, np.float64])
def test_labels_may_have_any_real_dtype(dtype: Any) -> None:
    loss, coeff = csr.logistic(np.zeros(2), np.array([0, 1], dtype))
    assert loss == pytest.approx(2 * math.log(2))
    assert coeff.tolist() == [0.5, -0.5]


def test_labels_other_than_0_and_1_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels\[1\] is -1.0, not 0 or 1"):
        csr.logistic(np.zeros(2), np.array([1, -1]))
    with pytest.raises(TypeError, match="labels must be numbers, not complex128"):
        csr.logistic(np.zeros(1), np.array([1j]))
    with pytest.raises(ValueError, match="margins has 2 rows but labels has 1"):
        csr.logistic(np.zeros(2), np.array([1]))


@pytest.mark.parametrize("value_dtype", [np.float32, np.float64, None])
@pytest.mark.parametrize("power", [1, 2])
def test_moments_t_take_the_sum_of_what_repeats_in_a_row(value_dtype: Any, power: int) -> None:
    rng = np.random.default_rng(0)
    indptr = np.array([0, 4, 4, 9])
    columns = np.array([1, 0, 1, 1, 2, 2, 0, 1, 0], np.int32)
    values = None if value_dtype is None else rng.integers(-4, 5, 9).astype(value_dtype)
    dense = np.zeros((3, 4))
    rows = np.repeat(np.arange(3), np.diff(indptr))
    np.add.at(dense, (rows, columns), 1 if values is None else values)
    coeff, out, low = np.array([0.5, 2.0, 3.0]), np.ones(4), np.zeros(4)
    csr.moments_t(indptr, columns, values, coeff, power, out, low)
    assert (out + low).tolist() == (1 + coeff @ dense**power).tolist()
    with pytest.raises(ValueError, match="coeff has 2 rows"):
        csr.moments_t(indptr, columns, values, coeff[:2], power, out, low)
    with pytest.raises(ValueError, match="power must be 1 or 2"):
        csr.moments_t(indptr, columns, values, coeff, 3, out, low)


def test_moments_t_lose_nothing_that_matters() -> None:
    rows = 100_000
    indptr, columns = np.arange(rows + 1), np.zeros(rows, np.int32)
    values, coeff = np.full(rows, 0.1), np.ones(rows)
    for power in (1, 2):
        out, low = np.zeros(1), np.zeros(1)
        csr.moments_t(indptr, columns, values, coeff, power, out, low)
        assert out[0] + low[0] == pytest.approx(rows * 0.1**power, rel=4e-16)
