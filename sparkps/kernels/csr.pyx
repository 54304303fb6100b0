"""Products with a batch of sparse rows, and the logistic loss of their margins.

Covers: X w and X^T c, for one column of weights or several, with X in CSR form (`indptr`, `columns`,
`values`), and the loss and gradient factor of logistic regression.
Does not cover: building X from Arrow columns, and second-order terms (factorization machines).

X^T is never formed: X^T c is a scatter in row order, so a batch needs no second copy. Sums are in a
fixed order, that of the non-zeros: no reassociation and no SIMD across a sum, so that the same batch
gives the same bits. `dot` and `matmul` add in float64 and round once per row; `dot_t` and `matmul_t`
add where the caller points, in the dtype of `out`.
"""

cimport cython
from libc.math cimport exp, fabs, log1p
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

import numpy as np

from sparkps.kernels.door cimport (
    FLOAT32, FLOAT64, FLOATS, INT32, INT64, INTEGERS, Buffer, check_indices, like, read,
    same_rows, written,
)
from sparkps.kernels.hashing cimport prefetch

cdef enum:
    # Non-zeros between asking for a weight and using it: enough to hide a miss in the last level.
    AHEAD = 32

ctypedef fused value_t:
    float
    double

ctypedef fused weight_t:
    float
    double


@cython.final
@cython.freelist(4)
cdef class _Batch:
    """A batch of sparse rows that passed the door; it keeps alive what its pointers point to."""
    cdef Buffer indptr_, columns_, values_
    cdef const int64_t* indptr
    cdef const int32_t* columns
    cdef const void* values     # NULL: all are 1
    cdef bint double_values
    cdef Py_ssize_t rows


cdef _Batch _read_batch(object indptr, object columns, object values, Py_ssize_t width):
    """Check that `indptr` walks through all of `columns`, which must be in 0..width-1."""
    cdef _Batch batch = _Batch.__new__(_Batch)
    cdef Py_ssize_t row, nonzeros
    batch.columns_ = read(columns, "columns", INT32)
    batch.indptr_ = read(indptr, "indptr", INTEGERS)
    if batch.indptr_.dtype == INT32:
        # One number per row: copying them costs little beside the row's non-zeros.
        batch.indptr_ = read(np.array(indptr, np.int64), "indptr", INT64)
    batch.columns = <int32_t*>batch.columns_.data
    batch.indptr = <int64_t*>batch.indptr_.data
    batch.rows = batch.indptr_.rows - 1
    nonzeros = batch.columns_.rows
    if batch.rows < 0:
        raise ValueError("indptr must have at least one entry")
    if batch.indptr[0] != 0 or batch.indptr[batch.rows] != nonzeros:
        raise ValueError(f"indptr must go from 0 to the number of columns {nonzeros}, not from "
                         f"{batch.indptr[0]} to {batch.indptr[batch.rows]}")
    for row in range(batch.rows):
        if batch.indptr[row + 1] < batch.indptr[row]:
            raise ValueError(f"indptr must not descend, as it does after row {row}")
    if values is not None:
        batch.values_ = read(values, "values", FLOATS)
        same_rows(batch.columns_, "columns", batch.values_, "values")
        batch.values = batch.values_.data
        batch.double_values = batch.values_.dtype == FLOAT64
    check_indices(batch.columns_, "columns", width)
    return batch


# ---- X w


cdef void _dot(
    const int64_t* indptr, Py_ssize_t rows, const int32_t* columns, const value_t* values,
    const weight_t* w, weight_t* out,
) noexcept nogil:
    cdef Py_ssize_t row, j, last = indptr[rows] - 1
    cdef double total
    for row in range(rows):
        total = 0
        for j in range(indptr[row], indptr[row + 1]):
            prefetch(w + columns[min(j + AHEAD, last)])
            if values == NULL:
                total += <double>w[columns[j]]
            else:
                total += <double>values[j] * <double>w[columns[j]]
        out[row] = <weight_t>total


cdef void _matmul(
    const int64_t* indptr, Py_ssize_t rows, const int32_t* columns, const value_t* values,
    const weight_t* w, Py_ssize_t width, weight_t* out, double* totals,
) noexcept nogil:
    cdef Py_ssize_t row, j, k, last = indptr[rows] - 1
    cdef const weight_t* weights
    cdef double value
    for row in range(rows):
        for k in range(width):
            totals[k] = 0
        for j in range(indptr[row], indptr[row + 1]):
            prefetch(w + columns[min(j + AHEAD, last)] * width)
            weights = w + columns[j] * width
            value = 1 if values == NULL else <double>values[j]
            for k in range(width):
                totals[k] += value * <double>weights[k]
        for k in range(width):
            out[row * width + k] = <weight_t>totals[k]


cdef void _multiply(
    _Batch x, const weight_t* w, Py_ssize_t width, weight_t* out, double* totals
) noexcept nogil:
    if width == 1:
        if x.double_values:
            _dot(x.indptr, x.rows, x.columns, <const double*>x.values, w, out)
        else:
            _dot(x.indptr, x.rows, x.columns, <const float*>x.values, w, out)
    elif x.double_values:
        _matmul(x.indptr, x.rows, x.columns, <const double*>x.values, w, width, out, totals)
    else:
        _matmul(x.indptr, x.rows, x.columns, <const float*>x.values, w, width, out, totals)


cdef object _product(object indptr, object columns, object values, Buffer w):
    cdef _Batch batch = _read_batch(indptr, columns, values, w.rows)
    cdef Buffer out = like(w, batch.rows)
    cdef double* totals = <double*>malloc(w.width * sizeof(double))
    if totals == NULL:
        raise MemoryError
    with nogil:
        if w.dtype == FLOAT32:
            _multiply(batch, <const float*>w.data, w.width, <float*>out.data, totals)
        else:
            _multiply(batch, <const double*>w.data, w.width, <double*>out.data, totals)
        free(totals)
    return out.owner


def dot(indptr, columns, values, w):
    """X w: the dot product of each sparse row with the weights.

    Parameters
    ----------
    indptr : array of int64 or int32, shape (rows + 1,)
        Row r has the non-zeros ``indptr[r]`` to ``indptr[r + 1] - 1``.
    columns : array of int32, shape (non-zeros,)
        In 0..n-1; a column may repeat in a row, and counts each time.
    values : array of float32 or float64, shape (non-zeros,), or None
        None means that all are 1.
    w : array of float32 or float64, shape (n,)

    Returns
    -------
    ndarray of the dtype of `w`, shape (rows,)
        Each added up in float64, in order, and rounded once.

    Raises
    ------
    ValueError
        A column out of range, named with its place; an `indptr` that descends or does not end at
        the number of columns.
    """
    return _product(indptr, columns, values, read(w, "w", FLOATS))


def matmul(indptr, columns, values, w):
    """X W: like `dot` for several columns of weights.

    Parameters
    ----------
    indptr, columns, values
        As for `dot`.
    w : array of float32 or float64, shape (n, width)

    Returns
    -------
    ndarray of the dtype of `w`, shape (rows, width)
        Each added up in float64, in order, and rounded once.
    """
    return _product(indptr, columns, values, read(w, "w", FLOATS, 2))


# ---- X^T c


cdef void _dot_t(
    const int64_t* indptr, Py_ssize_t rows, const int32_t* columns, const value_t* values,
    const weight_t* coeff, weight_t* out,
) noexcept nogil:
    cdef Py_ssize_t row, j, last = indptr[rows] - 1
    cdef weight_t factor
    for row in range(rows):
        factor = coeff[row]
        for j in range(indptr[row], indptr[row + 1]):
            prefetch(out + columns[min(j + AHEAD, last)])
            if values == NULL:
                out[columns[j]] += factor
            else:
                out[columns[j]] += <weight_t>values[j] * factor


cdef void _matmul_t(
    const int64_t* indptr, Py_ssize_t rows, const int32_t* columns, const value_t* values,
    const weight_t* coeff, Py_ssize_t width, weight_t* out,
) noexcept nogil:
    cdef Py_ssize_t row, j, k, last = indptr[rows] - 1
    cdef const weight_t* factors
    cdef weight_t* sums
    cdef weight_t value
    for row in range(rows):
        factors = coeff + row * width
        for j in range(indptr[row], indptr[row + 1]):
            prefetch(out + columns[min(j + AHEAD, last)] * width)
            sums = out + columns[j] * width
            value = 1 if values == NULL else <weight_t>values[j]
            for k in range(width):
                sums[k] += value * factors[k]


cdef void _multiply_t(
    _Batch x, const weight_t* coeff, Py_ssize_t width, weight_t* out
) noexcept nogil:
    if width == 1:
        if x.double_values:
            _dot_t(x.indptr, x.rows, x.columns, <const double*>x.values, coeff, out)
        else:
            _dot_t(x.indptr, x.rows, x.columns, <const float*>x.values, coeff, out)
    elif x.double_values:
        _matmul_t(x.indptr, x.rows, x.columns, <const double*>x.values, coeff, width, out)
    else:
        _matmul_t(x.indptr, x.rows, x.columns, <const float*>x.values, coeff, width, out)


cdef int _add_product(
    object indptr, object columns, object values, Buffer coeff, Buffer out
) except -1:
    cdef _Batch batch
    if coeff.dtype != out.dtype:
        raise TypeError("coeff and out must have one dtype")
    if coeff.width != out.width:
        raise ValueError(f"coeff has {coeff.width} columns but out has {out.width}")
    batch = _read_batch(indptr, columns, values, out.rows)
    if coeff.rows != batch.rows:
        raise ValueError(f"coeff has {coeff.rows} rows but indptr has {batch.rows}")
    with nogil:
        if out.dtype == FLOAT32:
            _multiply_t(batch, <const float*>coeff.data, out.width, <float*>out.data)
        else:
            _multiply_t(batch, <const double*>coeff.data, out.width, <double*>out.data)
    return 0


def dot_t(indptr, columns, values, coeff, out):
    """X^T c, added to `out`: ``out[column] += value * coeff[row]`` for each non-zero, in order.

    Parameters
    ----------
    indptr, columns, values
        As for `dot`.
    coeff : array of the dtype of `out`, shape (rows,)
    out : ndarray of float32 or float64, shape (n,)
        All arithmetic is in its dtype.

    Raises
    ------
    ValueError
        As `dot`; nothing has been added then.
    """
    _add_product(indptr, columns, values, read(coeff, "coeff", FLOATS),
                 written(out, "out", FLOATS))


def matmul_t(indptr, columns, values, coeff, out):
    """X^T C, added to `out`: like `dot_t` for several columns.

    Parameters
    ----------
    indptr, columns, values
        As for `dot`.
    coeff : array of the dtype of `out`, shape (rows, width)
    out : ndarray of float32 or float64, shape (n, width)
        All arithmetic is in its dtype.
    """
    _add_product(indptr, columns, values, read(coeff, "coeff", FLOATS, 2),
                 written(out, "out", FLOATS, 2))


cdef inline void _add_exactly(double* sum, double* low, double x) noexcept nogil:
    """Neumaier's sum (ZAMM 54, 1974): what is lost of each addition is added up in `low`."""
    cdef double total = sum[0] + x
    if fabs(sum[0]) >= fabs(x):
        low[0] += (sum[0] - total) + x
    else:
        low[0] += (x - total) + sum[0]
    sum[0] = total


cdef void _moments_t(
    const int64_t* indptr, Py_ssize_t rows, const int32_t* columns, const value_t* values,
    const double* coeff, bint squares, double* out, double* low, Py_ssize_t* seen, double* sums,
) noexcept nogil:
    cdef Py_ssize_t row, j, column
    cdef double value
    for row in range(rows):
        for j in range(indptr[row], indptr[row + 1]):
            column = columns[j]
            value = 1 if values == NULL else <double>values[j]
            if not squares:
                _add_exactly(&out[column], &low[column], coeff[row] * value)
                continue
            if seen[column] != row + 1:
                seen[column] = row + 1
                sums[column] = 0
            # (s + v)**2 - s**2, so that a column that comes twice counts with its sum.
            _add_exactly(
                &out[column], &low[column], coeff[row] * (value * (value + 2 * sums[column]))
            )
            sums[column] += value


def moments_t(indptr, columns, values, coeff, power, out, low):
    """X or its squares, transposed, times c: ``out[column] + low[column] += x**power * coeff[row]``.

    x is the sum of the row's values in that column. As good as in twice the digits, since what is
    computed from moments is a small difference of large sums.

    Parameters
    ----------
    indptr, columns, values
        As for `dot`.
    coeff : float64 array of shape (rows,)
    power : 1 or 2
    out, low : float64 ndarrays of shape (n,)
        The sums are ``out + low``.
    """
    cdef Buffer coeff_ = read(coeff, "coeff", FLOAT64)
    cdef Buffer out_ = written(out, "out", FLOAT64)
    cdef Buffer low_ = written(low, "low", FLOAT64)
    cdef _Batch batch = _read_batch(indptr, columns, values, out_.rows)
    cdef Py_ssize_t width = max(out_.rows, 1)
    cdef bint squares = power == 2
    cdef Py_ssize_t* seen
    cdef double* sums
    if power not in (1, 2):
        raise ValueError(f"power must be 1 or 2, not {power}")
    if coeff_.rows != batch.rows:
        raise ValueError(f"coeff has {coeff_.rows} rows but indptr has {batch.rows}")
    same_rows(out_, "out", low_, "low")
    seen = <Py_ssize_t*>calloc(width, sizeof(Py_ssize_t))
    sums = <double*>malloc(width * sizeof(double))
    if seen == NULL or sums == NULL:
        free(seen)
        free(sums)
        raise MemoryError(f"no memory for {width} columns")
    with nogil:
        if batch.double_values:
            _moments_t(batch.indptr, batch.rows, batch.columns, <const double*>batch.values,
                       <const double*>coeff_.data, squares, <double*>out_.data,
                       <double*>low_.data, seen, sums)
        else:
            _moments_t(batch.indptr, batch.rows, batch.columns, <const float*>batch.values,
                       <const double*>coeff_.data, squares, <double*>out_.data,
                       <double*>low_.data, seen, sums)
        free(seen)
        free(sums)


# ---- logistic loss


cdef Buffer _read_float64(object numbers, str name):
    """Numbers of any real dtype, as float64: one per row, so the copy is cheap."""
    array = np.asarray(numbers)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numbers, not {array.dtype}")
    return read(np.ascontiguousarray(array, np.float64), name, FLOAT64)


cdef double _logistic(
    const weight_t* margins, const double* labels, const double* weights, Py_ssize_t rows,
    weight_t* coeff
) noexcept nogil:
    cdef double loss = 0
    cdef double sign, z, e, weight
    cdef Py_ssize_t row
    for row in range(rows):
        # With z = m for label 0 and -m for label 1 both cases are one: the loss is log(1 + e^z)
        # and its derivative by m is +-sigmoid(z). Only e^-|z| is taken, which cannot overflow.
        sign = 1 - 2 * labels[row]
        z = sign * <double>margins[row]
        e = exp(-fabs(z))
        weight = 1 if weights == NULL else weights[row]
        loss += weight * ((z if z > 0 else 0) + log1p(e))
        coeff[row] = <weight_t>(weight * sign * (1 if z > 0 else e) / (1 + e))
    return loss


def logistic(margins, labels, weights=None):
    """The logistic loss of a batch and its derivative by each margin.

    Parameters
    ----------
    margins : array of float32 or float64, shape (rows,)
    labels : array of numbers, shape (rows,)
        Each 0 or 1.
    weights : array of numbers, shape (rows,), optional
        Weight of each row; None means that all are 1.

    Returns
    -------
    loss : float
        Sum of ``weight * (log(1 + exp(m)) - y * m)``, in float64, in row order.
    coeff : ndarray of the dtype of `margins`, shape (rows,)
        ``weight * (sigmoid(m) - y)``, to full relative precision also where it is tiny.
    """
    cdef Buffer margins_ = read(margins, "margins", FLOATS)
    cdef Buffer labels_ = _read_float64(labels, "labels")
    cdef Buffer weights_
    cdef const double* label = <const double*>labels_.data
    cdef const double* weight = NULL
    cdef Buffer coeff = like(margins_, margins_.rows)
    cdef Py_ssize_t row
    cdef double loss
    same_rows(margins_, "margins", labels_, "labels")
    if weights is not None:
        weights_ = _read_float64(weights, "weights")
        same_rows(margins_, "margins", weights_, "weights")
        weight = <const double*>weights_.data
    for row in range(labels_.rows):
        if label[row] != 0 and label[row] != 1:
            raise ValueError(f"labels[{row}] is {label[row]}, not 0 or 1")
    with nogil:
        if margins_.dtype == FLOAT32:
            loss = _logistic(<const float*>margins_.data, label, weight, margins_.rows,
                             <float*>coeff.data)
        else:
            loss = _logistic(<const double*>margins_.data, label, weight, margins_.rows,
                             <double*>coeff.data)
    return loss, coeff.owner
