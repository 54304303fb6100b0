"""Numbers in and out of resolved rows: gather, scatter, and the sum of repeated rows.

Covers: reading rows of a field, adding to them, setting them, and summing a message's values per
row before an optimizer sees them. Does not cover: finding rows (`index`), optimizers (`updates`).

Every kernel walks a message in its order, so that sums have the same bits every time. Rows are
random within a partition, so each loop prefetches the row that it will need 16 rows later.

A loop for rows of one number is the loop for rows of `width` with the literal 1 in its place: the
compiler makes a copy of it that has no inner loop.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from sparkps.kernels.ahead cimport AHEAD, Heads, ask
from sparkps.kernels.buffers cimport (
    Buffer, FLOAT32, FLOAT64, INT32, INT64, Kind, itemsize_of, readable, shape_of, writable,
)
from sparkps.kernels.groups cimport check_groups, check_rows
from sparkps.kernels.hashing cimport prefetch
from sparkps.kernels.initial cimport CONSTANT, initial_row
from sparkps.kernels.partitions cimport Field, PartitionArray

# What is only moved is moved as bits of its size; what is added has its type.
ctypedef fused bits:
    uint32_t
    uint64_t

ctypedef fused number:
    float
    double
    int64_t


cdef class _Message:
    """The checked arguments that all kernels here share."""

    cdef Buffer parts
    cdef Buffer rows
    cdef Field* field
    cdef Py_ssize_t groups

    def __cinit__(self, PartitionArray pa not None, Py_ssize_t field, parts, rows, bint absent):
        self.field = pa.field_at(field)
        self.parts = readable(parts, INT32, "parts")
        self.rows = readable(rows, INT32, "rows")
        self.groups = check_groups(pa, self.parts, self.rows.size)
        check_rows(pa, self.parts, self.rows, absent)


cdef inline void _gather(
    PartitionArray pa, int field, const int32_t* parts, Py_ssize_t groups, const int32_t* rows,
    Py_ssize_t width, const bits* absent, bits* out
) noexcept nogil:
    cdef Heads heads
    cdef const bits* source
    cdef const bits* row
    cdef Py_ssize_t k, i, j, start = 0, stop
    heads.parts, heads.groups, heads.begin = parts, groups, 0
    for k in range(groups):
        stop = start + parts[2 * k + 1]
        ask(&heads, pa.at, pa.field_of, field, field + 1, rows, stop)
        source = <const bits*>pa.at[parts[2 * k]].fields[field]
        for i in range(start, stop):
            if i + AHEAD < stop:
                prefetch(source + <Py_ssize_t>rows[i + AHEAD] * width)
            row = absent if rows[i] < 0 else source + <Py_ssize_t>rows[i] * width
            for j in range(width):
                out[i * width + j] = row[j]
        start = stop


cdef inline void _set(
    PartitionArray pa, int field, const int32_t* parts, Py_ssize_t groups, const int32_t* rows,
    Py_ssize_t width, const bits* values
) noexcept nogil:
    cdef Heads heads
    cdef bits* target
    cdef Py_ssize_t k, i, j, start = 0, stop
    heads.parts, heads.groups, heads.begin = parts, groups, 0
    for k in range(groups):
        stop = start + parts[2 * k + 1]
        ask(&heads, pa.at, pa.field_of, field, field + 1, rows, stop)
        target = <bits*>pa.at[parts[2 * k]].fields[field]
        for i in range(start, stop):
            if i + AHEAD < stop:
                prefetch(target + <Py_ssize_t>rows[i + AHEAD] * width)
            for j in range(width):
                target[<Py_ssize_t>rows[i] * width + j] = values[i * width + j]
        start = stop


cdef inline void _add(
    PartitionArray pa, int field, const int32_t* parts, Py_ssize_t groups, const int32_t* rows,
    Py_ssize_t width, const number* values
) noexcept nogil:
    cdef Heads heads
    cdef number* target
    cdef Py_ssize_t k, i, j, start = 0, stop
    heads.parts, heads.groups, heads.begin = parts, groups, 0
    for k in range(groups):
        stop = start + parts[2 * k + 1]
        ask(&heads, pa.at, pa.field_of, field, field + 1, rows, stop)
        target = <number*>pa.at[parts[2 * k]].fields[field]
        for i in range(start, stop):
            if i + AHEAD < stop:
                prefetch(target + <Py_ssize_t>rows[i + AHEAD] * width)
            for j in range(width):
                target[<Py_ssize_t>rows[i] * width + j] += values[i * width + j]
        start = stop


cdef int _gather_bits(
    PartitionArray pa, int field, _Message message, bits* out
) except -1:
    cdef const int32_t* parts = <const int32_t*>message.parts.data
    cdef const int32_t* rows = <const int32_t*>message.rows.data
    cdef Py_ssize_t width = message.field.width, j
    # Absent rows of a random field are written by `_initial_absent`; here any row will do for them.
    cdef bytearray absent = bytearray(width * sizeof(bits))
    cdef bits* absent_row = <bits*><char*>absent
    if field == 0:
        initial_row(&pa.init, message.field.kind, 0, width, absent_row)
    elif message.field.initial != 0.0:
        for j in range(width):
            if message.field.kind == FLOAT32:
                (<float*>absent_row)[j] = <float>message.field.initial
            elif message.field.kind == FLOAT64:
                (<double*>absent_row)[j] = message.field.initial
            else:
                (<int64_t*>absent_row)[j] = <int64_t>message.field.initial
    with nogil:
        if width == 1:
            _gather(pa, field, parts, message.groups, rows, 1, absent_row, out)
        else:
            _gather(pa, field, parts, message.groups, rows, width, absent_row, out)
    return 0


cdef int _initial_absent(PartitionArray pa, _Message message, keys, Buffer out) except -1:
    """Write the random rows that do not exist yet, which needs to know whose they are."""
    cdef const int32_t* rows = <const int32_t*>message.rows.data
    cdef Py_ssize_t i, n = message.rows.size
    cdef Buffer key
    for i in range(n):
        if rows[i] < 0:
            break
    else:
        return 0
    if keys is None:
        raise ValueError("rows that do not exist begin at random numbers here: gather needs keys")
    key = readable(keys, INT64, "keys")
    key.expect_rows(n, 1)
    with nogil:
        for i in range(n):
            if rows[i] < 0:
                initial_row(
                    &pa.init, message.field.kind, (<const int64_t*>key.data)[i],
                    message.field.width, <char*>out.data + i * message.field.nbytes,
                )
    return 0


def gather(PartitionArray pa not None, Py_ssize_t field, parts, rows, out, keys=None):
    """Read rows of a field.

    Parameters
    ----------
    pa : PartitionArray
    field : int
        0 is the value.
    parts : int32 array of shape (k, 2)
        (partition, count) of each group.
    rows : int32 array of shape (n,)
        Row numbers in their partitions, from `find`; -1 reads as the row would begin.
    out : array of the field's dtype, of shape (n,) or (n, width)
    keys : int64 array of shape (n,), optional
        Needed only for -1 in field 0 of a table with random `init`.
    """
    cdef _Message message = _Message(pa, field, parts, rows, True)
    cdef Buffer target = writable(out, message.field.kind, "out")
    target.expect_rows(message.rows.size, message.field.width)
    if itemsize_of(message.field.kind) == 4:
        _gather_bits(pa, field, message, <uint32_t*>target.data)
    else:
        _gather_bits(pa, field, message, <uint64_t*>target.data)
    if field == 0 and pa.init.kind != CONSTANT:
        _initial_absent(pa, message, keys, target)


def gather_field(PartitionArray pa not None, Py_ssize_t field, parts, rows, keys=None):
    """The same as `gather`, into a new array: (n,) for one number per row, else (n, width)."""
    cdef Py_ssize_t width = pa.field_at(field).width
    cdef Py_ssize_t n = readable(rows, INT32, "rows").size
    out = np.empty(shape_of(n, width), pa.dtypes[field])
    gather(pa, field, parts, rows, out, keys)
    return out


def scatter_set(PartitionArray pa not None, Py_ssize_t field, parts, rows, values):
    """Set rows of a field; of a row that comes twice the last value stays.

    Parameters are those of `gather`; `values` is (n,) or (n, width), and every row must exist.
    """
    cdef _Message message = _Message(pa, field, parts, rows, False)
    cdef Buffer source = readable(values, message.field.kind, "values")
    cdef const int32_t* part = <const int32_t*>message.parts.data
    cdef const int32_t* row = <const int32_t*>message.rows.data
    cdef Py_ssize_t groups = message.groups, width = message.field.width
    source.expect_rows(message.rows.size, width)
    with nogil:
        if itemsize_of(message.field.kind) == 4:
            if width == 1:
                _set(pa, field, part, groups, row, 1, <const uint32_t*>source.data)
            else:
                _set(pa, field, part, groups, row, width, <const uint32_t*>source.data)
        elif width == 1:
            _set(pa, field, part, groups, row, 1, <const uint64_t*>source.data)
        else:
            _set(pa, field, part, groups, row, width, <const uint64_t*>source.data)


cdef void _add_any(
    PartitionArray pa, int field, const int32_t* parts, Py_ssize_t groups, const int32_t* rows,
    Py_ssize_t width, const number* values
) noexcept nogil:
    if width == 1:
        _add(pa, field, parts, groups, rows, 1, values)
    else:
        _add(pa, field, parts, groups, rows, width, values)


def scatter_add(PartitionArray pa not None, Py_ssize_t field, parts, rows, values):
    """Add to rows of a field, in the order of the message; a row may come twice.

    Parameters are those of `gather`; `values` is (n,) or (n, width), and every row must exist.
    """
    cdef _Message message = _Message(pa, field, parts, rows, False)
    cdef Kind kind = message.field.kind
    cdef Buffer source = readable(values, kind, "values")
    cdef const int32_t* part = <const int32_t*>message.parts.data
    cdef const int32_t* row = <const int32_t*>message.rows.data
    cdef Py_ssize_t groups = message.groups, width = message.field.width
    source.expect_rows(message.rows.size, width)
    with nogil:
        if kind == FLOAT32:
            _add_any(pa, field, part, groups, row, width, <const float*>source.data)
        elif kind == FLOAT64:
            _add_any(pa, field, part, groups, row, width, <const double*>source.data)
        else:
            _add_any(pa, field, part, groups, row, width, <const int64_t*>source.data)


cdef Py_ssize_t _sum(
    const int32_t* parts, Py_ssize_t groups, const int32_t* rows, Py_ssize_t width,
    const number* values, int32_t* seen, int32_t* counts, int32_t* distinct, number* sums
) noexcept nogil:
    """Sum per row; `seen[row]` is one more than the row's place in its group's results."""
    cdef Py_ssize_t k, i, j, start = 0, stop, begin = 0, end = 0
    cdef const number* value
    cdef number* total
    for k in range(groups):
        stop = start + parts[2 * k + 1]
        for i in range(start, stop):
            if i + AHEAD < stop:
                prefetch(&seen[rows[i + AHEAD]])
            value = values + i * width
            if seen[rows[i]] == 0:
                distinct[end] = rows[i]
                total = sums + end * width
                for j in range(width):
                    total[j] = value[j]
                end += 1
                seen[rows[i]] = <int32_t>(end - begin)
            else:
                total = sums + (begin + seen[rows[i]] - 1) * width
                for j in range(width):
                    total[j] += value[j]
        counts[2 * k] = parts[2 * k]
        counts[2 * k + 1] = <int32_t>(end - begin)
        for i in range(begin, end):
            seen[distinct[i]] = 0
        begin = end
        start = stop
    return end


def sum_rows(PartitionArray pa not None, parts, rows, values):
    """Sum the values of repeated rows, so that an optimizer sees each row once.

    Parameters
    ----------
    pa : PartitionArray
    parts : int32 array of shape (k, 2)
        (partition, count); give a partition one group, for rows are merged within a group only.
    rows : int32 array of shape (n,)
        Rows that exist, as `find_or_insert` gives them; may repeat.
    values : array of the table's dtype, of shape (n,) or (n, width)

    Returns
    -------
    parts, rows, sums : tuple of arrays
        The same kind of message with distinct rows in the order of their first appearance; the
        values of each were added in the order of the message, beginning with the first of them.
        New arrays of shapes (k, 2), (m,) and (m,) or (m, width).
    """
    cdef _Message message = _Message(pa, 0, parts, rows, False)
    cdef Kind kind = message.field.kind
    cdef Buffer source = readable(values, kind, "values")
    cdef Py_ssize_t n = message.rows.size, width = message.field.width, groups = message.groups
    cdef Py_ssize_t k, distinct
    cdef int64_t most = 1
    cdef const int32_t* part = <const int32_t*>message.parts.data
    cdef const int32_t* row = <const int32_t*>message.rows.data
    source.expect_rows(n, width)
    new_parts = np.empty((groups, 2), np.int32)
    new_rows = np.empty(n, np.int32)
    sums = np.empty(shape_of(n, width), pa.dtype)
    cdef Buffer part_out = writable(new_parts, INT32, "parts")
    cdef Buffer row_out = writable(new_rows, INT32, "rows")
    cdef Buffer sum_out = writable(sums, kind, "sums")
    cdef int32_t* counts = <int32_t*>part_out.data
    cdef int32_t* rows_at = <int32_t*>row_out.data
    for k in range(groups):
        most = max(most, pa.at[part[2 * k]].rows)
    cdef int32_t* seen = pa.scratch_for(most)
    with nogil:
        if kind == FLOAT32:
            distinct = _sum(part, groups, row, width, <const float*>source.data, seen, counts,
                            rows_at, <float*>sum_out.data)
        elif kind == FLOAT64:
            distinct = _sum(part, groups, row, width, <const double*>source.data, seen, counts,
                            rows_at, <double*>sum_out.data)
        else:
            distinct = _sum(part, groups, row, width, <const int64_t*>source.data, seen, counts,
                            rows_at, <int64_t*>sum_out.data)
    return new_parts, new_rows[:distinct], sums[:distinct]
