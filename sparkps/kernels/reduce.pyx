"""Sums over the rows of one partition whose bits depend on nothing but the numbers and their order.

Covers: sum, sum of magnitudes, dot product, all dot products of the columns of a matrix, smallest and
largest number, number of non-zeros. Does not cover: combining partitions (`sparkps.store.builtin`) and
sums by key (`rows`, `sums`).

**Order.** Within a block of 1,024 numbers that of `lanes`; blocks are added in order. That is the same on
every machine and for every stride, as fast as the memory, and its error grows with n / 1024 instead of n.

The sum of integers is exact: two 64-bit words, the high and the low 32 bits of each number summed apart.

Arguments are one-dimensional arrays of float32, float64 or int64 with any stride (a column of a field);
read-only ones are welcome, unaligned ones are copied.
"""

import numpy as np

cimport cython
from libc.math cimport NAN
from libc.stdint cimport int64_t

from sparkps.kernels.lanes cimport MAGNITUDE, PLAIN, Term, block_dot, block_sum, number_t

ctypedef fused real_t:
    float
    double

cdef enum:
    # A block of two float64 columns fits in the first-level cache.
    BLOCK = 1024


cdef object _readable(object x, str name, Py_ssize_t ndim):
    """The door: an aligned array of a dtype that the kernels take."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name} must be an array, not {type(x).__name__}")
    if x.dtype not in (np.float32, np.float64, np.int64):
        raise TypeError(f"{name} must be float32, float64 or int64, not {x.dtype}")
    if x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, not {x.ndim}")
    # Strides are counted in numbers below, so they must be whole ones (a field of a struct has others).
    if not x.flags.aligned or any(stride % x.itemsize for stride in x.strides):
        return np.array(x)
    return x


cdef double _sum(const number_t* x, Py_ssize_t step, Py_ssize_t n, Term term) noexcept nogil:
    cdef double total = 0.0
    cdef Py_ssize_t begin = 0, size
    while begin < n:
        size = min(n - begin, <Py_ssize_t>BLOCK)
        # With a constant step the compiler makes SIMD code of the lanes; the order is the same.
        if step == 1:
            total += block_sum(x + begin, 1, size, term)
        else:
            total += block_sum(x + begin * step, step, size, term)
        begin += size
    return total


cdef double _dot(
    const number_t* x, Py_ssize_t x_step, const number_t* y, Py_ssize_t y_step, Py_ssize_t n
) noexcept nogil:
    cdef double total = 0.0
    cdef Py_ssize_t begin = 0, size
    while begin < n:
        size = min(n - begin, <Py_ssize_t>BLOCK)
        if x_step == 1 and y_step == 1:
            total += block_dot(x + begin, 1, y + begin, 1, size)
        else:
            total += block_dot(x + begin * x_step, x_step, y + begin * y_step, y_step, size)
        begin += size
    return total


cdef inline Py_ssize_t _step(Py_ssize_t stride, Py_ssize_t itemsize) noexcept nogil:
    # Not `//`: strides may be negative, and are whole multiples here, so that C's division is exact.
    return stride // itemsize


cdef double _sum_of(const number_t[:] x, Term term):
    cdef Py_ssize_t n = x.shape[0]
    cdef double total = 0.0
    if n:
        with nogil:
            total = _sum(&x[0], _step(x.strides[0], sizeof(number_t)), n, term)
    return total


cdef double _dot_of(const number_t[:] x, const number_t[:] y):
    cdef Py_ssize_t n = x.shape[0]
    cdef double total = 0.0
    if n:
        with nogil:
            total = _dot(
                &x[0], _step(x.strides[0], sizeof(number_t)),
                &y[0], _step(y.strides[0], sizeof(number_t)), n,
            )
    return total


def sum(x):
    """Sum of the numbers, in the fixed order of this module.

    Parameters
    ----------
    x : float32, float64 or int64 array of shape (n,)

    Returns
    -------
    float
        0.0 when there are none.

    Examples
    --------
    >>> import numpy as np
    >>> sum(np.array([0.5, 0.25], np.float32))
    0.75
    """
    x = _readable(x, "x", 1)
    if x.dtype == np.float32:
        return _sum_of[float](x, PLAIN)
    if x.dtype == np.float64:
        return _sum_of[double](x, PLAIN)
    return _sum_of[int64_t](x, PLAIN)


def asum(x):
    """Sum of the magnitudes, otherwise as `sum`."""
    x = _readable(x, "x", 1)
    if x.dtype == np.float32:
        return _sum_of[float](x, MAGNITUDE)
    if x.dtype == np.float64:
        return _sum_of[double](x, MAGNITUDE)
    return _sum_of[int64_t](x, MAGNITUDE)


def dot(x, y):
    """Sum of the products, otherwise as `sum`.

    Parameters
    ----------
    x, y : arrays of one dtype and shape (n,)

    Returns
    -------
    float
    """
    x = _readable(x, "x", 1)
    y = _readable(y, "y", 1)
    if x.dtype != y.dtype:
        raise TypeError(f"x is {x.dtype} but y is {y.dtype}")
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} numbers but y has {len(y)}")
    if x.dtype == np.float32:
        return _dot_of[float](x, y)
    if x.dtype == np.float64:
        return _dot_of[double](x, y)
    return _dot_of[int64_t](x, y)


cdef void _gram_blocks(
    const number_t* x, Py_ssize_t row, Py_ssize_t column, Py_ssize_t n, Py_ssize_t width, double* out
) noexcept nogil:
    cdef Py_ssize_t begin = 0, size, i, j
    cdef const number_t* block
    while begin < n:
        size = min(n - begin, <Py_ssize_t>BLOCK)
        block = x + begin * row
        for i in range(width):
            for j in range(i, width):
                out[i * width + j] += block_dot(
                    block + i * column, row, block + j * column, row, size
                )
        begin += size
    for i in range(width):
        for j in range(i):
            out[i * width + j] = out[j * width + i]


cdef void _gram_of(const number_t[:, :] x, double[:, ::1] out):
    if x.shape[0] and x.shape[1]:
        with nogil:
            _gram_blocks(
                &x[0, 0], _step(x.strides[0], sizeof(number_t)), _step(x.strides[1], sizeof(number_t)),
                x.shape[0], x.shape[1], &out[0, 0],
            )


def gram(x):
    """All dot products of the columns, ``x.T @ x``, each with the bits that `dot` gives.

    Parameters
    ----------
    x : float32, float64 or int64 array of shape (n, k)

    Returns
    -------
    float64 array of shape (k, k)
        Symmetric.
    """
    x = _readable(x, "x", 2)
    out = np.zeros((x.shape[1], x.shape[1]), np.float64)
    if x.dtype == np.float32:
        _gram_of[float](x, out)
    elif x.dtype == np.float64:
        _gram_of[double](x, out)
    else:
        _gram_of[int64_t](x, out)
    return out


def sum_exact(x):
    """Sum of integers without loss, as two words.

    Parameters
    ----------
    x : int64 array of shape (n,)

    Returns
    -------
    high, low : int
        The sum is ``high * 2**32 + low``. Words of several partitions may be added as they are.
    """
    cdef int64_t high = 0, low = 0, low_word = 0xFFFFFFFF
    cdef Py_ssize_t i
    x = _readable(x, "x", 1)
    if x.dtype != np.int64:
        raise TypeError(f"x must be int64, not {x.dtype}")
    cdef const int64_t[:] numbers = x
    with nogil:
        for i in range(numbers.shape[0]):
            high += numbers[i] >> 32
            low += numbers[i] & low_word
    return high, low


cdef tuple _real_extremes(const real_t[:] x):
    # In float64, which holds every float32.
    cdef double least = x[0], most = x[0], number
    cdef Py_ssize_t i
    cdef bint nan = False
    with nogil:
        for i in range(x.shape[0]):
            number = x[i]
            nan |= number != number
            least = number if number < least else least
            most = number if number > most else most
    if nan:
        return NAN, NAN
    return least, most


cdef tuple _whole_extremes(const int64_t[:] x):
    cdef int64_t least = x[0], most = x[0]
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0]):
            least = min(least, x[i])
            most = max(most, x[i])
    return least, most


def extremes(x):
    """The smallest and the largest number; both NaN if there is one.

    Parameters
    ----------
    x : float32, float64 or int64 array of shape (n,), n > 0

    Returns
    -------
    smallest, largest : float, or int for int64
    """
    x = _readable(x, "x", 1)
    if not len(x):
        raise ValueError("x has no numbers")
    if x.dtype == np.float32:
        return _real_extremes[float](x)
    if x.dtype == np.float64:
        return _real_extremes[double](x)
    return _whole_extremes(x)


cdef Py_ssize_t _nnz(const number_t[:] x):
    cdef Py_ssize_t i, count = 0
    with nogil:
        for i in range(x.shape[0]):
            count += x[i] != 0
    return count


def nnz(x):
    """How many numbers are not zero; NaN is not.

    Parameters
    ----------
    x : float32, float64 or int64 array of shape (n,)

    Returns
    -------
    int
    """
    x = _readable(x, "x", 1)
    if x.dtype == np.float32:
        return _nnz[float](x)
    if x.dtype == np.float64:
        return _nnz[double](x)
    return _nnz[int64_t](x)
