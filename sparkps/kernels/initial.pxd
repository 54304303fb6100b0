"""What a row holds before anything was written to it; `initial.pyx` says what it covers."""

from libc.math cimport cos, log, sqrt
from libc.stdint cimport int64_t, uint64_t

from sparkps.kernels.buffers cimport FLOAT32, INT64, Kind
from sparkps.kernels.hashing cimport splitmix64

cdef enum InitKind:
    CONSTANT, NORMAL, UNIFORM

cdef struct Init:
    InitKind kind
    double a         # constant; mean; lower end
    double b         # -; standard deviation; upper end
    int64_t whole    # the constant of an int64 table, which a double may not hold
    uint64_t stream  # splitmix64(seed)


cdef inline double unit(uint64_t word) noexcept nogil:
    """The top 53 bits of `word` as a number in [0, 1)."""
    return <double>(word >> 11) * (1.0 / 9007199254740992.0)


cdef inline double initial_number(
    const Init* init, uint64_t begin, Py_ssize_t column
) noexcept nogil:
    """The number of one column of the row whose stream begins at `begin`."""
    cdef uint64_t gamma = <uint64_t>0x9E3779B97F4A7C15
    cdef uint64_t state = begin + 2 * <uint64_t>column * gamma
    cdef double u = unit(splitmix64(state)), v
    if init.kind == UNIFORM:
        return init.a + (init.b - init.a) * u
    v = unit(splitmix64(state + gamma))
    # 1 - u is in (0, 1], so its logarithm is finite.
    return init.a + init.b * (sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * v))


cdef inline void initial_row(
    const Init* init, Kind kind, int64_t key, Py_ssize_t width, void* row
) noexcept nogil:
    """Write the initial `width` numbers of `key`, of dtype `kind`, to `row`."""
    cdef uint64_t begin = splitmix64(init.stream ^ <uint64_t>key)
    cdef Py_ssize_t column
    cdef double number = init.a
    if kind == INT64:
        for column in range(width):
            (<int64_t*>row)[column] = init.whole
        return
    for column in range(width):
        if init.kind != CONSTANT:
            number = initial_number(init, begin, column)
        if kind == FLOAT32:
            (<float*>row)[column] = <float>number
        else:
            (<double*>row)[column] = number


cdef Init make_init(object init, object seed, Kind kind) except *
