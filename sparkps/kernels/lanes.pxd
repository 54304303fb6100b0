"""Sums over a block of numbers in an order that depends on nothing but the numbers.

Covers: the sum, the sum of magnitudes and the dot product of one block that fits in the first-level
cache. Does not cover: walking over blocks (`reduce`, `quasi_newton`), which add theirs in order.

Numbers are widened to float64, products are made in float64. Number i is added to lane ``i % 8`` in
order; the lanes are added as a balanced tree: the same bits on every machine and for every stride,
as SIMD code, since eight lanes hide the latency of an addition. `numpy.sum` and BLAS promise no
order.
"""

from libc.math cimport fabs
from libc.stdint cimport int64_t

ctypedef fused number_t:
    float
    double
    int64_t

cdef enum:
    LANES = 8

cdef enum Term:
    PLAIN, MAGNITUDE


cdef inline double tree(const double* lane) noexcept nogil:
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]))


cdef inline double _term(number_t x, Term term) noexcept nogil:
    return fabs(<double>x) if term == MAGNITUDE else <double>x


cdef inline double block_sum(
    const number_t* x, Py_ssize_t step, Py_ssize_t n, Term term
) noexcept nogil:
    cdef double lane[LANES]
    cdef Py_ssize_t i = 0, k
    for k in range(LANES):
        lane[k] = 0.0
    while i + LANES <= n:
        for k in range(LANES):
            lane[k] += _term(x[(i + k) * step], term)
        i += LANES
    for k in range(n - i):
        lane[k] += _term(x[(i + k) * step], term)
    return tree(lane)


cdef inline double block_dot(
    const number_t* x, Py_ssize_t x_step, const number_t* y, Py_ssize_t y_step, Py_ssize_t n
) noexcept nogil:
    cdef double lane[LANES]
    cdef Py_ssize_t i = 0, k
    for k in range(LANES):
        lane[k] = 0.0
    while i + LANES <= n:
        for k in range(LANES):
            lane[k] += <double>x[(i + k) * x_step] * <double>y[(i + k) * y_step]
        i += LANES
    for k in range(n - i):
        lane[k] += <double>x[(i + k) * x_step] * <double>y[(i + k) * y_step]
    return tree(lane)
