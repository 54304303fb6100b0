"""When a partition grows, and by how much.

Covers: the capacity of rows and the slots of an index as functions of a partition's number and its
rows. Does not cover: the memory (`memory`) and the index itself (`probing`).

Rows get room in steps of 1/16 to 1/8, since growing an area copies nothing; an index doubles, and
is then filled anew from the keys. Both would come for all partitions in the same instant, for a
hash spreads keys evenly. So the steps are staggered: with u the fractional part of p times the
golden ratio, which spreads any number of partitions evenly over [0, 1) (Knuth, TAOCP 3, 6.4),
partition p grows by (1 + u)/16, and doubles its index at a load of ``0.7 * 2**(-u/2)``, between 0.5
and 0.7.

A large table then has 1.6 to 2.9 slots per key, 11.5 bytes at most, and a float32 FTRL row of 20
bytes needs less than 35 in the worst moment. Staggered over a whole octave instead, an index would
take 12 bytes per key nearly always. At a load of 0.7, linear probing looks at 2.2 slots for a key
that is there and 6 for one that is not; at 0.8 it would be 3 and 13.

Chance still puts several doublings into one message, and each may take milliseconds. So a message
fills indices anew for REFILLED rows and then leaves it to the next ones, as long as no load passes
0.8: the longest pause is that of one large partition.
"""

from libc.math cimport exp2, floor
from libc.stdint cimport int64_t

cdef enum:
    REFILLED = 1 << 18


cdef inline double stagger(int64_t p) noexcept nogil:
    """u of partition `p`."""
    cdef double turns = <double>p * 0.6180339887498949
    return turns - floor(turns)


cdef inline int64_t capacity_for(int64_t p, int64_t rows) noexcept nogil:
    """Rows to make room for when `rows` are needed; memory of the rest may stay untouched."""
    return rows + 8 + <int64_t>(<double>rows * (1.0 + stagger(p)) / 16.0)


cdef inline int64_t indexable(int64_t p, int64_t slots) noexcept nogil:
    """Rows that an index of `slots` takes in partition `p`; never all of the slots."""
    return <int64_t>(<double>slots * 0.7 * exp2(-0.5 * stagger(p)))


cdef inline bint pressing(int64_t slots, int64_t rows) noexcept nogil:
    """Whether an index of `slots` must double now, however many others do."""
    return 5 * rows > 4 * slots


cdef inline int64_t slots_for(int64_t p, int64_t rows) noexcept nogil:
    """The smallest index that takes `rows`: a power of two, one cache line at least."""
    cdef int64_t slots = 16
    while indexable(p, slots) < rows:
        slots *= 2
    return slots
