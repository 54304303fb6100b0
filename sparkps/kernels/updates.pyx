"""Optimizer updates, fused: rows are changed where they lie, in one pass over a message.

Covers: one function for each built-in optimizer; it is handed distinct rows and their summed
gradients. Does not cover: summing (`rows.sum_rows`, or the client), a user's own optimizer (which
gathers, computes in numpy and scatters), the numbers' meaning to a user (``sparkps.optim``).

Each function takes ``(pa, parts, rows, grads, numbers)``:

* ``parts`` and ``rows`` as `rows.gather` takes them, but every row exists; a row that came twice in
  one message would be updated twice, once for each;
* ``grads`` of the table's dtype, (n,) or (n, width);
* ``numbers``, float64, in the order that each docstring gives.

Every formula is computed in the table's dtype, element by element and in the order written, without
contraction, so that a row's bits do not depend on its neighbours in the message.

The penalties are the same everywhere but in FTRL and AdamW. ``l2`` adds ``l2 * w`` to the gradient.
``l1`` follows the step as a proximal operator: w moves towards 0 by ``l1`` times the rate that the
step had for this coordinate, and stops there (Duchi and Singer, "Efficient Online and Batch
Learning Using Forward Backward Splitting", JMLR 10, 2009).
"""

from libc.math cimport pow, sqrt, sqrtf
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from sparkps.kernels.ahead cimport AHEAD, Heads, ask
from sparkps.kernels.buffers cimport Buffer, FLOAT32, FLOAT64, INT32, INT64, Kind, readable
from sparkps.kernels.groups cimport check_groups, check_rows
from sparkps.kernels.hashing cimport prefetch
from sparkps.kernels.partitions cimport PartitionArray

cdef enum:
    REMEMBERED = 256  # step counts whose bias corrections are kept

ctypedef fused number:
    float
    double

cdef struct Correction:
    int64_t t
    double first
    double second

# One partition's part of a message; a step needs no more, and no Python.
cdef struct Group:
    char** fields
    const int32_t* rows
    Py_ssize_t count
    Py_ssize_t width
    const double* numbers
    Correction* corrections

ctypedef void (*FloatStep)(const Group* group, const float* grads) noexcept nogil
ctypedef void (*DoubleStep)(const Group* group, const double* grads) noexcept nogil


cdef inline number root(number x) noexcept nogil:
    """The square root in the dtype of `x`."""
    if number is float:
        return sqrtf(x)
    else:
        return sqrt(x)


cdef inline number shrink(number w, number threshold) noexcept nogil:
    """Move `w` towards 0 by `threshold` and stop there; NaN stays NaN."""
    if -threshold <= w <= threshold:
        return 0
    return w - threshold if w > 0 else w + threshold


cdef inline Py_ssize_t upcoming(const Group* group, Py_ssize_t i) noexcept nogil:
    """Where the row begins that the loop will reach AHEAD rows after row `i`."""
    return <Py_ssize_t>group.rows[min(i + AHEAD, group.count - 1)] * group.width


cdef int _run(
    PartitionArray pa, object parts, object rows, object grads, object numbers,
    Py_ssize_t number_count, int fields, bint counted, FloatStep float_step, DoubleStep double_step,
) except -1:
    """Check everything, then take `float_step` or `double_step` through the groups.

    `fields` are those of the table's dtype, with `width` numbers per row; `counted` optimizers have
    one more, an int64 counter per row.
    """
    cdef Kind kind = pa.field_of[0].kind
    cdef Buffer part = readable(parts, INT32, "parts")
    cdef Buffer row = readable(rows, INT32, "rows")
    cdef Buffer given = readable(numbers, FLOAT64, "numbers")
    cdef Buffer grad
    cdef const int32_t* groups = <const int32_t*>part.data
    cdef Correction corrections[REMEMBERED]
    cdef Group group
    cdef Heads heads
    cdef Py_ssize_t k, start = 0, count
    if kind == INT64:
        raise TypeError("an int64 table counts; it takes no optimizer")
    _check_fields(pa, fields, counted)
    given.expect_rows(number_count, 1)
    grad = readable(grads, kind, "grads")
    grad.expect_rows(row.size, pa.width)
    count = check_groups(pa, part, row.size)
    check_rows(pa, part, row, False)
    group.rows = <const int32_t*>row.data
    group.width = pa.width
    group.numbers = <const double*>given.data
    group.corrections = corrections
    with nogil:
        if counted:
            memset(corrections, 0, sizeof(corrections))
        heads.parts, heads.groups, heads.begin = groups, count, 0
        for k in range(count):
            group.fields = pa.at[groups[2 * k]].fields
            group.count = groups[2 * k + 1]
            ask(
                &heads, pa.at, pa.field_of, 0, pa.field_count, <const int32_t*>row.data,
                start + group.count,
            )
            if kind == FLOAT32:
                float_step(&group, <const float*>grad.data + start * pa.width)
            else:
                double_step(&group, <const double*>grad.data + start * pa.width)
            group.rows += group.count
            start += group.count
    return 0


cdef int _check_fields(PartitionArray pa, int fields, bint counted) except -1:
    cdef int i
    if pa.field_count != fields + counted:
        raise ValueError(
            f"this optimizer has {fields + counted} fields, the table {pa.field_count}"
        )
    for i in range(fields):
        if pa.field_of[i].kind != pa.field_of[0].kind or pa.field_of[i].per_row:
            raise ValueError(f"field {i} must be {pa.dtype}, with {pa.width} numbers per row")
    if counted and not (pa.field_of[fields].kind == INT64 and pa.field_of[fields].per_row):
        raise ValueError(f"field {fields} must be int64, with one number per row")
    return 0


cdef void _sgd(const Group* group, const number* grads) noexcept nogil:
    cdef number* w = <number*>group.fields[0]
    cdef number lr = <number>group.numbers[0]
    cdef number l1 = <number>group.numbers[1]
    cdef number l2 = <number>group.numbers[2]
    cdef Py_ssize_t i, j, at
    for i in range(group.count):
        prefetch(&w[upcoming(group, i)])
        for j in range(group.width):
            at = group.rows[i] * group.width + j
            w[at] -= lr * (grads[i * group.width + j] + l2 * w[at])
            if l1 > 0:
                w[at] = shrink(w[at], lr * l1)


def sgd(PartitionArray pa not None, parts, rows, grads, numbers):
    """Stochastic gradient descent: ``w -= lr * g``.

    Fields: w. Numbers: lr, l1, l2.

    Examples
    --------
    >>> import numpy as np
    >>> from sparkps.kernels.partitions import PartitionArray
    >>> table = PartitionArray(1, 1, "float32", [("float32", False, 0.0)], dim=3)
    >>> table.open(0)
    >>> parts, rows = np.array([[0, 1]], np.int32), np.array([2], np.int32)
    >>> sgd(table, parts, rows, np.ones(1, np.float32), np.array([0.5, 0.0, 0.0]))
    >>> table.field(0, 0)
    array([ 0. ,  0. , -0.5], dtype=float32)
    """
    _run(pa, parts, rows, grads, numbers, 3, 1, False, _sgd[float], _sgd[double])


cdef void _momentum(const Group* group, const number* grads) noexcept nogil:
    cdef number* w = <number*>group.fields[0]
    cdef number* m = <number*>group.fields[1]
    cdef number lr = <number>group.numbers[0]
    cdef number mu = <number>group.numbers[1]
    cdef bint nesterov = group.numbers[2] != 0.0
    cdef number l1 = <number>group.numbers[3]
    cdef number l2 = <number>group.numbers[4]
    cdef number g, step
    cdef Py_ssize_t i, j, at
    for i in range(group.count):
        at = upcoming(group, i)
        prefetch(&w[at])
        prefetch(&m[at])
        for j in range(group.width):
            at = group.rows[i] * group.width + j
            g = grads[i * group.width + j] + l2 * w[at]
            m[at] = mu * m[at] + g
            step = g + mu * m[at] if nesterov else m[at]
            w[at] -= lr * step
            if l1 > 0:
                w[at] = shrink(w[at], lr * l1)


def momentum(PartitionArray pa not None, parts, rows, grads, numbers):
    """Momentum: ``m = mu * m + g; w -= lr * m``; Nesterov's: ``w -= lr * (g + mu * m)``.

    Fields: w, m. Numbers: lr, mu, nesterov (0 or 1), l1, l2.

    Notes
    -----
    Polyak (1964); Nesterov's in the form of Sutskever et al., "On the importance of initialization
    and momentum in deep learning" (ICML 2013), with the rate outside m.
    """
    _run(pa, parts, rows, grads, numbers, 5, 2, False, _momentum[float], _momentum[double])


cdef void _adagrad(const Group* group, const number* grads) noexcept nogil:
    cdef number* w = <number*>group.fields[0]
    cdef number* n = <number*>group.fields[1]
    cdef number lr = <number>group.numbers[0]
    cdef number eps = <number>group.numbers[1]
    cdef number l1 = <number>group.numbers[2]
    cdef number l2 = <number>group.numbers[3]
    cdef number g, scale
    cdef Py_ssize_t i, j, at
    for i in range(group.count):
        at = upcoming(group, i)
        prefetch(&w[at])
        prefetch(&n[at])
        for j in range(group.width):
            at = group.rows[i] * group.width + j
            g = grads[i * group.width + j] + l2 * w[at]
            n[at] += g * g
            scale = root(n[at]) + eps
            w[at] -= lr * g / scale
            if l1 > 0:
                w[at] = shrink(w[at], lr / scale * l1)


def adagrad(PartitionArray pa not None, parts, rows, grads, numbers):
    """AdaGrad: ``n += g**2; w -= lr * g / (sqrt(n) + eps)``.

    Fields: w, n. Numbers: lr, eps, l1, l2.

    Notes
    -----
    Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", JMLR 12 (2011); the diagonal form, with composite mirror descent for l1.
    """
    _run(pa, parts, rows, grads, numbers, 4, 2, False, _adagrad[float], _adagrad[double])


cdef void _rmsprop(const Group* group, const number* grads) noexcept nogil:
    cdef number* w = <number*>group.fields[0]
    cdef number* v = <number*>group.fields[1]
    cdef number lr = <number>group.numbers[0]
    cdef number rho = <number>group.numbers[1]
    # 1 - rho is rounded once: in float32, 1 - 0.999 would be wrong in its fifth digit.
    cdef number rest = <number>(1.0 - group.numbers[1])
    cdef number eps = <number>group.numbers[2]
    cdef number l1 = <number>group.numbers[3]
    cdef number l2 = <number>group.numbers[4]
    cdef number g, scale
    cdef Py_ssize_t i, j, at
    for i in range(group.count):
        at = upcoming(group, i)
        prefetch(&w[at])
        prefetch(&v[at])
        for j in range(group.width):
            at = group.rows[i] * group.width + j
            g = grads[i * group.width + j] + l2 * w[at]
            v[at] = rho * v[at] + rest * (g * g)
            scale = root(v[at]) + eps
            w[at] -= lr * g / scale
            if l1 > 0:
                w[at] = shrink(w[at], lr / scale * l1)


def rmsprop(PartitionArray pa not None, parts, rows, grads, numbers):
    """RMSProp: ``v = rho * v + (1 - rho) * g**2; w -= lr * g / (sqrt(v) + eps)``.

    Fields: w, v. Numbers: lr, rho, eps, l1, l2.

    Notes
    -----
    Tieleman and Hinton, "Neural Networks for Machine Learning", lecture 6.5 (2012).
    """
    _run(pa, parts, rows, grads, numbers, 5, 2, False, _rmsprop[float], _rmsprop[double])


cdef inline Correction* _correction(const Group* group, int64_t t) noexcept nogil:
    """``1 - beta**t`` for both betas, in float64.

    Two powers cost 30 ns, ten times the rest of a row; but the rows of a message share few step
    counts. What is remembered is a function of t alone, so a row's bits do not depend on it.
    """
    cdef Correction* known = &group.corrections[t & (REMEMBERED - 1)]
    if known.t != t:
        known.t = t
        known.first = 1.0 - pow(group.numbers[1], <double>t)
        known.second = 1.0 - pow(group.numbers[2], <double>t)
    return known


cdef inline void _adam_any(
    const Group* group, const number* grads, number l1, number l2, number decay
) noexcept nogil:
    """Adam with penalties, or AdamW with `decay`; the other's are 0 and change no bit."""
    cdef number* w = <number*>group.fields[0]
    cdef number* m = <number*>group.fields[1]
    cdef number* v = <number*>group.fields[2]
    cdef int64_t* t = <int64_t*>group.fields[3]
    cdef number lr = <number>group.numbers[0]
    cdef number beta1 = <number>group.numbers[1]
    cdef number beta2 = <number>group.numbers[2]
    cdef number rest1 = <number>(1.0 - group.numbers[1])
    cdef number rest2 = <number>(1.0 - group.numbers[2])
    cdef number eps = <number>group.numbers[3]
    cdef number g, scale, bias1, bias2
    cdef Correction* correction
    cdef Py_ssize_t i, j, at
    for i in range(group.count):
        at = upcoming(group, i)
        prefetch(&w[at])
        prefetch(&m[at])
        prefetch(&v[at])
        prefetch(&t[group.rows[min(i + AHEAD, group.count - 1)]])
        t[group.rows[i]] += 1
        correction = _correction(group, t[group.rows[i]])
        bias1 = <number>correction.first
        bias2 = <number>correction.second
        for j in range(group.width):
            at = group.rows[i] * group.width + j
            g = grads[i * group.width + j] + l2 * w[at]
            m[at] = beta1 * m[at] + rest1 * g
            v[at] = beta2 * v[at] + rest2 * (g * g)
            scale = root(v[at] / bias2) + eps
            w[at] -= lr * decay * w[at]
            w[at] -= lr * (m[at] / bias1) / scale
            if l1 > 0:
                w[at] = shrink(w[at], lr / scale * l1)


cdef void _adam(const Group* group, const number* grads) noexcept nogil:
    _adam_any(group, grads, <number>group.numbers[4], <number>group.numbers[5], <number>0)


cdef void _adamw(const Group* group, const number* grads) noexcept nogil:
    _adam_any(group, grads, <number>0, <number>0, <number>group.numbers[4])


def adam(PartitionArray pa not None, parts, rows, grads, numbers):
    """Adam: moving averages of g and its square, each divided by its bias, per row and step.

    ``t += 1; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g**2;
    w -= lr * (m / (1 - beta1**t)) / (sqrt(v / (1 - beta2**t)) + eps)``

    Fields: w, m, v, t (int64, one per row). Numbers: lr, beta1, beta2, eps, l1, l2.

    Notes
    -----
    Kingma and Ba, "Adam: A Method for Stochastic Optimization" (ICLR 2015), Algorithm 1. t counts
    the updates of its own row: a rare key's first update is corrected as a first one. The biases
    are computed in float64 and then rounded to the table's dtype.
    """
    _run(pa, parts, rows, grads, numbers, 6, 3, True, _adam[float], _adam[double])


def adamw(PartitionArray pa not None, parts, rows, grads, numbers):
    """AdamW: Adam, after a decay of w that does not pass through the averages.

    ``w -= lr * weight_decay * w`` and then Adam's step.

    Fields: w, m, v, t (int64, one per row). Numbers: lr, beta1, beta2, eps, weight_decay.

    Notes
    -----
    Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019), Algorithm 2.
    """
    _run(pa, parts, rows, grads, numbers, 5, 3, True, _adamw[float], _adamw[double])


cdef void _ftrl(const Group* group, const number* grads) noexcept nogil:
    cdef number* w = <number*>group.fields[0]
    cdef number* z = <number*>group.fields[1]
    cdef number* n = <number*>group.fields[2]
    cdef number lr = <number>group.numbers[0]
    cdef number beta = <number>group.numbers[1]
    cdef number l1 = <number>group.numbers[2]
    cdef number l2 = <number>group.numbers[3]
    cdef number g, before, after, sigma, numerator
    cdef Py_ssize_t i, j, at
    for i in range(group.count):
        at = upcoming(group, i)
        prefetch(&w[at])
        prefetch(&z[at])
        prefetch(&n[at])
        for j in range(group.width):
            at = group.rows[i] * group.width + j
            g = grads[i * group.width + j]
            before = root(n[at])
            n[at] += g * g
            after = root(n[at])
            sigma = (after - before) / lr
            z[at] += g - sigma * w[at]
            # shrink gives z - sign(z) * l1, or 0 where |z| <= l1.
            numerator = shrink(z[at], l1)
            w[at] = -numerator / ((beta + after) / lr + l2) if numerator != 0 else 0


def ftrl(PartitionArray pa not None, parts, rows, grads, numbers):
    """FTRL-Proximal: w in closed form from z, the gradients' sum, and n, the sum of their squares.

    ``sigma = (sqrt(n + g**2) - sqrt(n)) / lr; z += g - sigma * w; n += g**2;
    w = 0 if |z| <= l1 else -(z - sign(z) * l1) / ((beta + sqrt(n)) / lr + l2)``

    Fields: w, z, n. Numbers: lr, beta, l1, l2.

    Notes
    -----
    McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013), Algorithm 1.
    """
    _run(pa, parts, rows, grads, numbers, 4, 3, False, _ftrl[float], _ftrl[double])
