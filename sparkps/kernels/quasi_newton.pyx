"""One iteration of limited-memory BFGS over the fields of a table: all products, and the move.

Covers: what `sparkps.store.quasi_newton` documents of ``Products`` and ``Move``. Does not cover: the
recursion between the two (`sparkps.algos.lbfgs`), and the combination of partitions
(`sparkps.store.builtin`).

Each is one pass over the memory of the partitions, which is what an iteration costs: a block of rows is
read once, and what is computed of it stays in the first-level cache. Sums of a block are made in
the order of `lanes`, blocks are added in order: the same bits on every machine, whatever other partitions
are there.

The fields are those of `sparkps.optim.lbfgs.LBFGS` in their order, all float64 of width 1.
"""

import numpy as np

from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from sparkps.kernels.buffers cimport FLOAT64
from sparkps.kernels.lanes cimport MAGNITUDE, block_dot, block_sum
from sparkps.kernels.partitions cimport Partition, PartitionArray

cdef enum:
    VALUE, G, X, GX, D, T, INV, MU, PAIRS

cdef enum:
    MEMORY = 10
    BLOCK = 512
    #: Numbers of a partition beside the products.
    OTHERS = 6

cdef struct Objective:
    double scale
    double slope
    double l1
    double l2
    bint unscaled

# A block of some vectors: of fields, or of what is computed of them.
cdef struct Block:
    double g[BLOCK]
    double s[BLOCK]
    double y[BLOCK]
    double pseudo[BLOCK]
    double before[BLOCK]
    double penalised[BLOCK]
    double mean[BLOCK]


cdef inline void _three(
    const double* a, const double* b, const double* c, const double* x, Py_ssize_t n,
    double* out, Py_ssize_t step
) noexcept nogil:
    """Add the products of three vectors with `x` to every `step`-th number."""
    out[0] += block_dot(a, 1, x, 1, n)
    out[step] += block_dot(b, 1, x, 1, n)
    out[2 * step] += block_dot(c, 1, x, 1, n)


cdef inline double* _field(const Partition* part, Py_ssize_t field, Py_ssize_t begin) noexcept nogil:
    return <double*>part.fields[field] + begin


cdef inline double* _pair(
    const Partition* part, int64_t slot, bint change, Py_ssize_t begin
) noexcept nogil:
    return _field(part, PAIRS + 2 * slot + change, begin)


cdef void _smooth(
    const Objective* o, const Partition* part, Py_ssize_t begin, Py_ssize_t n, double* out
) noexcept nogil:
    """The gradient of the smooth part at t."""
    cdef const double* g = _field(part, G, begin)
    cdef const double* inv = _field(part, INV, begin)
    cdef const double* mu = _field(part, MU, begin)
    cdef const double* t = _field(part, T, begin)
    cdef double scale = o.scale, slope = o.slope, l2 = o.l2
    cdef Py_ssize_t i
    if o.unscaled:
        for i in range(n):
            out[i] = inv[i] * (scale * g[i] - slope * mu[i]) + l2 * inv[i] * inv[i] * t[i]
    else:
        for i in range(n):
            out[i] = inv[i] * (scale * g[i] - slope * mu[i]) + l2 * t[i]


cdef void _pseudo(
    const Objective* o, const double* inv, const double* point, const double* gradient,
    Py_ssize_t n, double* out
) noexcept nogil:
    """The pseudo-gradient at a point whose smooth gradient is given."""
    cdef double up, down, l1
    cdef Py_ssize_t i
    if o.l1 == 0.0:
        memcpy(out, gradient, n * sizeof(double))
        return
    for i in range(n):
        l1 = o.l1 * inv[i] if o.unscaled else o.l1
        up = gradient[i] + l1
        down = gradient[i] - l1
        if point[i] > 0 or (point[i] == 0 and up < 0):
            out[i] = up
        elif point[i] < 0 or (point[i] == 0 and down > 0):
            out[i] = down
        else:
            out[i] = 0.0 if point[i] == 0 else point[i]  # NaN stays NaN


cdef void _multiply_block(
    const Objective* o, const Partition* part, const int64_t* slots, Py_ssize_t count,
    Py_ssize_t begin, Py_ssize_t n, Block* block, double* dots, double* others
) noexcept nogil:
    cdef const double* inv = _field(part, INV, begin)
    cdef const double* mu = _field(part, MU, begin)
    cdef const double* x = _field(part, X, begin)
    cdef const double* t = _field(part, T, begin)
    cdef const double* gx = _field(part, GX, begin)
    cdef const double* d = _field(part, D, begin)
    cdef Py_ssize_t columns = 3 + 2 * count, i
    _smooth(o, part, begin, n, block.g)
    _pseudo(o, inv, t, block.g, n, block.pseudo)
    _pseudo(o, inv, x, gx, n, block.before)
    for i in range(n):
        block.s[i] = t[i] - x[i]
        block.y[i] = block.g[i] - gx[i]
        block.penalised[i] = t[i] * inv[i] if o.unscaled else t[i]
        block.mean[i] = mu[i] * inv[i]
    _three(block.s, block.y, block.pseudo, block.s, n, dots, columns)
    _three(block.s, block.y, block.pseudo, block.y, n, dots + 1, columns)
    _three(block.s, block.y, block.pseudo, block.pseudo, n, dots + 2, columns)
    for i in range(2 * count):
        _three(
            block.s, block.y, block.pseudo, _pair(part, slots[i % count], i >= count, begin), n,
            dots + 3 + i, columns,
        )
    others[0] += block_dot(block.before, 1, d, 1, n)
    others[1] += block_dot(block.pseudo, 1, d, 1, n)
    others[2] += block_dot(block.penalised, 1, block.penalised, 1, n)
    others[3] += block_sum(block.penalised, 1, n, MAGNITUDE)
    others[4] += block_dot(block.g, 1, block.g, 1, n)
    others[5] += block_dot(block.mean, 1, block.pseudo, 1, n)


cdef void _move_block(
    const Objective* o, const Partition* part, const int64_t* slots, Py_ssize_t count,
    const double* coefficients, bint accept, int64_t slot, double alpha,
    Py_ssize_t begin, Py_ssize_t n, Block* block
) noexcept nogil:
    cdef const double* inv = _field(part, INV, begin)
    cdef double* value = _field(part, VALUE, begin)
    cdef double* x = _field(part, X, begin)
    cdef double* t = _field(part, T, begin)
    cdef double* gx = _field(part, GX, begin)
    cdef double* d = _field(part, D, begin)
    cdef double* s
    cdef double* y
    cdef const double* kept
    cdef Py_ssize_t i, j
    if accept:
        _smooth(o, part, begin, n, block.g)
        if slot >= 0:
            s, y = _pair(part, slot, False, begin), _pair(part, slot, True, begin)
            for i in range(n):
                s[i] = t[i] - x[i]
                y[i] = block.g[i] - gx[i]
        memcpy(x, t, n * sizeof(double))
        memcpy(gx, block.g, n * sizeof(double))
    _pseudo(o, inv, x, gx, n, block.pseudo)
    if coefficients != NULL:
        for i in range(n):
            # 0 times what is not finite would not be 0.
            d[i] = coefficients[2 * count] * block.pseudo[i] if coefficients[2 * count] else 0.0
        for j in range(2 * count):
            kept = _pair(part, slots[j % count], j >= count, begin)
            for i in range(n):
                d[i] += coefficients[j] * kept[i]
        if o.l1 != 0.0:
            for i in range(n):
                if d[i] * block.pseudo[i] >= 0:
                    d[i] = 0.0
    memset(_field(part, G, begin), 0, n * sizeof(double))
    for i in range(n):
        t[i] = x[i] + alpha * d[i]
    if o.l1 != 0.0:
        # Stay in the orthant of x, or of the side on which the objective falls.
        for i in range(n):
            if x[i] > 0 or (x[i] == 0 and block.pseudo[i] < 0):
                t[i] = t[i] if not t[i] <= 0 else 0.0
            elif x[i] < 0 or (x[i] == 0 and block.pseudo[i] > 0):
                t[i] = t[i] if not t[i] >= 0 else 0.0
            elif x[i] == 0:
                t[i] = 0.0
    for i in range(n):
        value[i] = t[i] * inv[i]


cdef class _Call:
    """The checked arguments that both kernels share."""

    cdef Objective objective
    cdef Block block
    cdef int64_t slots[MEMORY]
    cdef Py_ssize_t count
    cdef list partitions

    def __cinit__(
        self, PartitionArray pa not None, partitions, slots,
        double scale, double slope, double l1, double l2, bint unscaled,
    ):
        cdef int i
        fits = pa.width == 1 and pa.field_count == PAIRS + 2 * MEMORY
        for i in range(pa.field_count):
            fits = fits and pa.field_of[i].kind == FLOAT64
        if not fits:
            raise TypeError(f"the table needs {PAIRS + 2 * MEMORY} fields of float64 and width 1")
        self.objective = Objective(scale, slope, l1, l2, unscaled)
        self.partitions = [int(partition) for partition in partitions]
        for partition in self.partitions:
            pa.check_partition(partition)
        self.count = len(slots)
        if self.count > MEMORY or len(set(slots)) != self.count:
            raise ValueError(f"slots {slots} are not at most {MEMORY} different ones")
        for i, slot in enumerate(slots):
            self.slots[i] = _slot(slot)


cdef int64_t _slot(int64_t slot) except -1:
    if not 0 <= slot < MEMORY:
        raise ValueError(f"slot {slot} is not one of {MEMORY}")
    return slot


def products(
    PartitionArray pa not None, partitions, slots, scale, slope, l1, l2, unscaled
):
    """The products that an iteration needs, of each partition.

    Parameters
    ----------
    pa : PartitionArray
        Of a table with the fields of ``LBFGS``.
    partitions : sequence of int
    slots : sequence of int
        Of the remembered pairs, at most 10.
    scale, slope, l1, l2 : float
    unscaled : bool
        Of the objective; see `sparkps.store.quasi_newton`.

    Returns
    -------
    dots : float64 array of shape (partitions, 3, 3 + 2 * len(slots))
    others : float64 array of shape (partitions, 6)

    Raises
    ------
    TypeError
        If the table has other fields.
    ValueError
        If a partition is not here, or a slot is none.
    """
    cdef _Call call = _Call(pa, partitions, slots, scale, slope, l1, l2, unscaled)
    cdef Py_ssize_t n = len(call.partitions), i, begin
    out = np.zeros((n, 3, 3 + 2 * call.count), np.float64)
    rest = np.zeros((n, OTHERS), np.float64)
    cdef double[:, :, ::1] dots = out
    cdef double[:, ::1] others = rest
    cdef const Partition* part
    for i in range(n):
        part = &pa.at[<int64_t>call.partitions[i]]
        begin = 0
        with nogil:
            while begin < part.rows:
                _multiply_block(
                    &call.objective, part, call.slots, call.count, begin,
                    min(part.rows - begin, <Py_ssize_t>BLOCK), &call.block,
                    &dots[i, 0, 0], &others[i, 0],
                )
                begin += BLOCK
    return out, rest


def move(
    PartitionArray pa not None, partitions, slots, scale, slope, l1, l2, unscaled,
    accept, int64_t slot, coefficients, double alpha,
):
    """Accept the point that was tried or not, and try another, in each partition.

    Parameters
    ----------
    pa, partitions, slots, scale, slope, l1, l2, unscaled
        As in `products`.
    accept : bool
    slot : int
        Where the step is remembered, or -1.
    coefficients : sequence of float
        ``2 * len(slots) + 1`` of the new direction; empty keeps the old one.
    alpha : float

    Raises
    ------
    TypeError, ValueError
        As in `products`; or there is another number of coefficients.
    """
    cdef _Call call = _Call(pa, partitions, slots, scale, slope, l1, l2, unscaled)
    cdef double numbers[2 * MEMORY + 1]
    cdef const double* direction = NULL
    cdef bint taken = accept
    cdef const Partition* part
    cdef Py_ssize_t begin
    if slot != -1:
        _slot(slot)
    if len(coefficients):
        if len(coefficients) != 2 * call.count + 1:
            raise ValueError(f"{len(coefficients)} coefficients are not for {call.count} slots")
        for i, number in enumerate(coefficients):
            numbers[i] = number
        direction = numbers
    for partition in call.partitions:
        part = &pa.at[<int64_t>partition]
        begin = 0
        with nogil:
            while begin < part.rows:
                _move_block(
                    &call.objective, part, call.slots, call.count, direction, taken, slot, alpha,
                    begin, min(part.rows - begin, <Py_ssize_t>BLOCK), &call.block,
                )
                begin += BLOCK
