"""Rows on their way from memory before the loop that will use them comes to their group.

Covers: asking for the first rows of the groups that follow. Does not cover: rows inside a group,
which each loop asks for AHEAD rows before it uses them, and the look-up of keys (`index`).

The rows of a message are random within a partition, and each field of a row is a line of its own. A
small message has small groups: 1,000 keys over 64 partitions make 15 rows each, all of them nearer
than AHEAD to the end of their group. Without this walk over the ends of groups nothing of such a
message would be asked for in time (measured on 1,000 rows without and with it: gather 28 and 13 us,
AdaGrad 50 and 40).
"""

from libc.stdint cimport int32_t

from sparkps.kernels.hashing cimport prefetch
from sparkps.kernels.partitions cimport Field, Partition

cdef enum:
    AHEAD = 16  # rows between a prefetch and its use, inside a group
    REACH = 48  # rows between the end of a group and the last group whose head is asked for

# The groups whose heads were not asked for yet, and where the first of them begins.
cdef struct Heads:
    const int32_t* parts
    Py_ssize_t groups
    Py_ssize_t begin


cdef inline void ask(
    Heads* heads, const Partition* at, const Field* field_of, int first, int last,
    const int32_t* rows, Py_ssize_t until
) noexcept nogil:
    """Ask for fields ``first .. last - 1`` of the heads of all groups that begin before row
    ``until + REACH`` of the message."""
    cdef const Partition* part
    cdef const int32_t* row
    cdef Py_ssize_t i
    cdef int field
    while heads.groups and heads.begin < until + REACH:
        part = &at[heads.parts[0]]
        row = rows + heads.begin
        for i in range(min(heads.parts[1], <int32_t>AHEAD)):
            for field in range(first, last):
                # An absent row, -1, is an address that nobody reads.
                prefetch(part.fields[field] + row[i] * field_of[field].nbytes)
        heads.begin += heads.parts[1]
        heads.parts += 2
        heads.groups -= 1
