"""The checks of a message that is grouped by partition.

Covers: the table of groups (which partitions, how many rows of each) and the row numbers of a
message that was resolved before. Does not cover: dtypes and sizes of the payload (`buffers`).

A message names partitions once, in ``parts``, (partition, count) for each group, and its payload
holds the groups one after another. Behind these checks a kernel follows row numbers unchecked, and
they may come from afar (a keyset, a forwarded operation), so every one is compared.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from sparkps.kernels.buffers cimport Buffer
from sparkps.kernels.partitions cimport PartitionArray


cdef Py_ssize_t check_groups(PartitionArray pa, Buffer parts, Py_ssize_t total) except -1:
    """Check ``parts`` of a message of `total` rows; return the number of groups."""
    cdef Py_ssize_t groups = parts.size // 2, k
    cdef const int32_t* part = <const int32_t*>parts.data
    cdef int64_t rows = 0
    parts.expect_rows(groups, 2)
    for k in range(groups):
        pa.check_partition(part[2 * k])
        if part[2 * k + 1] < 0:
            raise ValueError(f"partition {part[2 * k]} has a negative count, {part[2 * k + 1]}")
        rows += part[2 * k + 1]
    if rows != total:
        raise ValueError(f"the counts of parts make {rows} rows, but the message has {total}")
    return groups


cdef int check_rows(PartitionArray pa, Buffer parts, Buffer rows, bint absent_allowed) except -1:
    """Check that the resolved rows exist; -1 passes when `absent_allowed`."""
    cdef const int32_t* part = <const int32_t*>parts.data
    cdef const int32_t* row = <const int32_t*>rows.data
    cdef Py_ssize_t k, i, start = 0, stop
    cdef uint32_t shift = 1 if absent_allowed else 0
    cdef uint32_t bound
    cdef bint bad = False
    with nogil:
        for k in range(parts.size // 2):
            stop = start + part[2 * k + 1]
            bound = <uint32_t>pa.at[part[2 * k]].rows + shift
            # No exit from the inner loop, so that it becomes SIMD code.
            for i in range(start, stop):
                bad |= (<uint32_t>row[i] + shift) >= bound
            if bad:
                break
            start = stop
    if bad:
        for i in range(start, stop):
            if (<uint32_t>row[i] + shift) >= bound:
                break
        raise ValueError(
            f"rows[{i}] is {row[i]}, but partition {part[2 * k]} has {bound - shift} rows"
        )
    return 0
