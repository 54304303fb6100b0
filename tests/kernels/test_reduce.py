import math

import numpy as np
import pytest

from sparkps.kernels import reduce

DTYPES = ["float32", "float64", "int64"]
SIZES = [0, 1, 7, 8, 9, 1023, 1024, 1025, 5000]


def numbers(n, dtype, seed=0):
    return (np.random.default_rng(seed).normal(size=n) * 1000).astype(dtype)


def in_order(terms):
    """The order that the module promises, in plain Python."""
    total = 0.0
    for begin in range(0, len(terms), 1024):
        lanes = [0.0] * 8
        for i, term in enumerate(terms[begin : begin + 1024]):
            lanes[i % 8] += float(term)
        while len(lanes) > 1:
            lanes = [lanes[i] + lanes[i + 1] for i in range(0, len(lanes), 2)]
        total += lanes[0]
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_sums_have_exactly_the_promised_order(dtype, n):
    x, y = numbers(n, dtype), numbers(n, dtype, 1)
    assert reduce.sum(x) == in_order(x)
    assert reduce.asum(x) == in_order(np.abs(x))
    assert reduce.dot(x, y) == in_order(x.astype(float) * y.astype(float))


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides_do_not_change_a_bit(dtype):
    matrix = numbers(3000 * 3, dtype).reshape(3000, 3)
    for column in range(3):
        strided, packed = matrix[:, column], matrix[:, column].copy()
        assert reduce.sum(strided) == reduce.sum(packed)
        assert reduce.dot(strided, matrix[:, 0]) == reduce.dot(packed, matrix[:, 0].copy())
        assert reduce.extremes(strided) == (packed.min(), packed.max())
        assert reduce.nnz(strided) == np.count_nonzero(packed)
    assert reduce.sum(matrix[::-1, 1]) == in_order(matrix[::-1, 1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 3, 8])
def test_gram_has_the_bits_of_dot(dtype, width):
    for rows in (0, 1, 1024, 2500):
        matrix = numbers(rows * width, dtype).reshape(rows, width)
        gram = reduce.gram(matrix)
        for i in range(width):
            for j in range(width):
                assert gram[i, j] == reduce.dot(matrix[:, i], matrix[:, j])
        np.testing.assert_allclose(
            gram, matrix.astype(float).T @ matrix.astype(float), rtol=1e-9, atol=1e-6
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_only_and_unaligned_buffers_are_welcome(dtype):
    x = numbers(100, dtype)
    frame = b"?" + x.tobytes()
    unaligned = np.frombuffer(frame, dtype, offset=1)
    assert reduce.sum(unaligned) == reduce.sum(x)
    assert reduce.dot(unaligned, x) == reduce.dot(x, x)
    assert reduce.extremes(unaligned) == reduce.extremes(x)
    assert reduce.nnz(unaligned) == reduce.nnz(x)
    assert reduce.gram(unaligned.reshape(50, 2)).tolist() == reduce.gram(x.reshape(50, 2)).tolist()


def test_sums_of_integers_lose_nothing():
    x = np.array([2**63 - 1, 2**63 - 1, -(2**63), -1, 1, -(2**63)], np.int64)
    for part in (x, x[:2], x[2:4], x[:0]):
        high, low = reduce.sum_exact(part)
        assert (high << 32) + low == sum(part.tolist())


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_at_the_ends_of_the_type(dtype):
    info = np.iinfo(dtype) if dtype == "int64" else np.finfo(dtype)
    x = np.array([0, info.max, info.min, 1], dtype)
    assert reduce.extremes(x) == (info.min, info.max)
    assert reduce.extremes(x[:1]) == (0, 0)
    with pytest.raises(ValueError, match="x has no numbers"):
        reduce.extremes(x[:0])


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_anywhere_is_seen(dtype, place):
    x = np.array([1, 2, 3], dtype)
    x[place] = np.nan
    assert all(map(math.isnan, reduce.extremes(x)))
    assert math.isnan(reduce.sum(x))
    assert reduce.nnz(x) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: reduce.sum(np.zeros((2, 2))),
        lambda: reduce.gram(np.zeros(4)),
        lambda: reduce.dot(np.zeros(2), np.zeros(3)),
    ],
)
def test_wrong_sizes_are_refused(call):
    with pytest.raises(ValueError, match=r"dimensions|numbers"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: reduce.sum([1.0]),
        lambda: reduce.sum(np.zeros(2, np.int32)),
        lambda: reduce.asum(np.zeros(2, complex)),
        lambda: reduce.dot(np.zeros(2, np.float32), np.zeros(2)),
        lambda: reduce.sum_exact(np.zeros(2)),
        lambda: reduce.nnz(np.zeros(2, bool)),
    ],
)
def test_wrong_types_are_refused(call):
    with pytest.raises(TypeError):
        call()


def test_all_are_compiled():
    names = ["sum", "asum", "dot", "gram", "sum_exact", "extremes", "nnz"]
    assert all(
        type(getattr(reduce, name)).__name__ == "cython_function_or_method" for name in names
    )
