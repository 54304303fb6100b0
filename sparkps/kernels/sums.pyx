"""Repeated keys: the distinct ones with their inverse, and the sum by key.

Covers: `unique`, which every batch of a worker begins with, and `sum_by_key`, which every push
begins with.
Does not cover: summing into the rows of a table (`rows`) and indexes that live longer than a
message (`index`).

Both keep the order of appearance: distinct keys come in the order in which they were first seen,
and the values of a key are added in the order of the batch. "Same bits" rests on that, and so does
the order of a table's rows.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from sparkps.kernels.door cimport (
    FLOAT32, FLOAT64, INT32, INT64, INTEGERS, Buffer, empty, like, read, read_keys, same_rows,
)
from sparkps.kernels.hashing cimport index_slot, prefetch

cdef enum:
    # Hash slots asked from memory ahead of their use: enough to hide a cache miss, few enough that
    # all are still in the first level when used.
    BLOCK = 32
    # Bits of a bitmap of ordinals for each of them; beyond, clearing it costs what it saves.
    BITS_PER_KEY = 64

ctypedef fused key_t:
    int32_t
    int64_t

ctypedef fused value_t:
    float
    double
    int64_t


# ---- distinct keys


cdef Py_ssize_t _table_size(Py_ssize_t keys) noexcept nogil:
    """Slots of a hash table for `keys` keys, a power of two. Far more than would do: a collision
    is a branch that the processor guesses wrong, and costs more than a miss in the first level of
    cache; only a large table is kept smaller for the sake of the second level."""
    cdef Py_ssize_t size = 16
    cdef Py_ssize_t wanted = keys * (8 if keys <= 4096 else 4)
    while size < wanted:
        size *= 2
    return size


cdef int32_t _distinct(
    const key_t* keys, Py_ssize_t n, int32_t* table, Py_ssize_t size, key_t* distinct,
    int32_t found, int32_t* inverse,
) noexcept nogil:
    """Append the keys that were not seen before in this group to `distinct`, which holds `found`
    of earlier groups; set each key's place there; return the new number. `table` has `size`
    slots of any content."""
    cdef uint64_t slots[BLOCK]
    cdef uint64_t mask = size - 1
    cdef uint64_t slot
    cdef Py_ssize_t begin = 0, i
    cdef int k, block
    cdef int32_t row
    cdef key_t key
    memset(table, 0xFF, size * sizeof(int32_t))
    while begin < n:
        block = <int>min(n - begin, <Py_ssize_t>BLOCK)
        for k in range(block):
            slots[k] = index_slot(keys[begin + k], mask)
            prefetch(table + slots[k])
        for k in range(block):
            i = begin + k
            key = keys[i]
            slot = slots[k]
            while True:
                row = table[slot]
                if row < 0:
                    row = found
                    table[slot] = row
                    distinct[row] = key
                    found += 1
                    break
                if distinct[row] == key:
                    break
                slot = (slot + 1) & mask
            inverse[i] = row
        begin += block
    return found


cdef object _shortened(Buffer array, Py_ssize_t rows):
    """The array with its first `rows` rows: a copy, for a slice would hold all the memory."""
    if rows == array.rows:
        return array.owner
    return array.owner[:rows].copy()


def unique(keys):
    """The distinct keys in order of first appearance, and where each key is among them.

    Parameters
    ----------
    keys : array of int64 or int32, shape (n,)

    Returns
    -------
    distinct : ndarray of the dtype of `keys`, shape (d,)
    inverse : ndarray of int32, shape (n,)
        ``keys == distinct[inverse]``.
    """
    cdef Buffer keys_ = read_keys(keys, "keys", INTEGERS)
    cdef Py_ssize_t n = keys_.rows
    cdef Py_ssize_t size = _table_size(n)
    cdef Buffer distinct = like(keys_, n)
    cdef Buffer inverse = empty(INT32, n)
    cdef int32_t found
    cdef int32_t* table = <int32_t*>malloc(size * sizeof(int32_t))
    if table == NULL:
        raise MemoryError
    with nogil:
        if keys_.dtype == INT64:
            found = _distinct(<int64_t*>keys_.data, n, table, size, <int64_t*>distinct.data, 0,
                              <int32_t*>inverse.data)
        else:
            found = _distinct(<int32_t*>keys_.data, n, table, size, <int32_t*>distinct.data, 0,
                              <int32_t*>inverse.data)
        free(table)
    return _shortened(distinct, found), inverse.owner


# ---- summing by key


cdef bint _all_distinct(const int32_t* ordinals, Py_ssize_t n) noexcept nogil:
    """Whether it is sure that no ordinal is repeated: one bit for each that there may be, which for
    ordinals of a vocabulary is a third of the hash's work. Those that a bitmap is too sparse for,
    and negative ones, are left to the hash."""
    cdef int32_t least = 0, most = 0
    cdef Py_ssize_t i
    cdef uint64_t* seen
    cdef uint64_t bit
    for i in range(n):
        least = min(least, ordinals[i])
        most = max(most, ordinals[i])
    if least < 0 or most >= BITS_PER_KEY * n:
        return False
    seen = <uint64_t*>calloc(most // 64 + 1, sizeof(uint64_t))
    if seen == NULL:
        return False
    for i in range(n):
        bit = <uint64_t>1 << (ordinals[i] & 63)
        if seen[ordinals[i] >> 6] & bit:
            break
        seen[ordinals[i] >> 6] |= bit
    else:
        i = n
    free(seen)
    return i == n


cdef void _distinct_by_group(
    const key_t* keys, const int64_t* counts, Py_ssize_t groups, int32_t* table, key_t* distinct,
    int32_t* inverse, int64_t* found_in,
) noexcept nogil:
    """`_distinct` for each group. A group's table is of the size of the group, so that it stays
    in cache, and only what is used of it is cleared."""
    cdef Py_ssize_t group, begin = 0
    cdef int32_t found = 0, before
    for group in range(groups):
        before = found
        if counts[group]:
            found = _distinct(keys + begin, counts[group], table, _table_size(counts[group]),
                              distinct, found, inverse + begin)
        found_in[group] = found - before
        begin += counts[group]


cdef void _sum_rows(
    const value_t* values, const int32_t* inverse, Py_ssize_t n, Py_ssize_t width, value_t* sums,
    Py_ssize_t rows,
) noexcept nogil:
    """``sums[inverse[i]] += values[i]``, in order, on fresh sums."""
    cdef Py_ssize_t i, j
    cdef value_t* row
    cdef value_t zero = 0
    if value_t is not int64_t:
        # The neutral element of floating point addition is -0.0: a key that appears once keeps
        # its bits, and no branch is needed for the first value of a key.
        zero = -0.0
    for i in range(rows * width):
        sums[i] = zero
    if width == 1:
        for i in range(n):
            sums[inverse[i]] += values[i]
        return
    for i in range(n):
        row = sums + inverse[i] * width
        for j in range(width):
            row[j] += values[i * width + j]


cdef int _check_counts(Buffer counts, Py_ssize_t n, int64_t* largest) except -1:
    cdef int64_t* number = <int64_t*>counts.data
    cdef int64_t total = 0
    cdef Py_ssize_t group
    largest[0] = 0
    for group in range(counts.rows):
        if not 0 <= number[group] <= n - total:
            raise ValueError(f"counts must be positive and add up to {n}, the number of keys; "
                             f"counts[{group}] is {number[group]} after {total}")
        total += number[group]
        largest[0] = max(largest[0], number[group])
    if total != n:
        raise ValueError(f"counts add up to {total}, not to {n}, the number of keys")
    return 0


def sum_by_key(counts, keys, values):
    """Add up the values of repeated keys, within groups.

    Parameters
    ----------
    counts : array of int64, shape (groups,)
        The length of each group; `keys` and `values` hold the groups one after another.
    keys : array of int64 or int32, shape (n,)
        Keys, or ordinals of a vocabulary.
    values : array of float32, float64 or int64, shape (n,) or (n, width)

    Returns
    -------
    counts : ndarray of int64, shape (groups,)
        Distinct keys in each group.
    keys : ndarray of the dtype of `keys`, shape (d,)
        Each group's distinct keys in order of first appearance.
    values : ndarray of the dtype of `values`, shape (d,) or (d, width)
        Their sums, added in the order given, in the dtype given; int64 sums wrap around.

    Notes
    -----
    When nothing is repeated the three arguments themselves are returned, not copies.
    """
    cdef Buffer counts_ = read(counts, "counts", INT64)
    cdef Buffer keys_ = read_keys(keys, "keys", INTEGERS)
    cdef Buffer values_ = read(values, "values", FLOAT32 | FLOAT64 | INT64, 0)
    cdef Py_ssize_t n = keys_.rows
    cdef Py_ssize_t rows
    cdef int64_t largest
    same_rows(keys_, "keys", values_, "values")
    _check_counts(counts_, n, &largest)
    cdef bint distinct_already = False
    if keys_.dtype == INT32:
        with nogil:
            distinct_already = _all_distinct(<int32_t*>keys_.data, n)
    if distinct_already:
        return counts, keys, values
    cdef Buffer found = empty(INT64, counts_.rows)
    cdef Buffer distinct = like(keys_, n)
    cdef Py_ssize_t size = _table_size(largest)
    cdef int32_t* table = <int32_t*>malloc((size + n) * sizeof(int32_t))
    cdef int32_t* inverse = table + size
    if table == NULL:
        raise MemoryError
    try:
        with nogil:
            if keys_.dtype == INT64:
                _distinct_by_group(
                    <int64_t*>keys_.data, <int64_t*>counts_.data, counts_.rows, table,
                    <int64_t*>distinct.data, inverse, <int64_t*>found.data)
            else:
                _distinct_by_group(
                    <int32_t*>keys_.data, <int64_t*>counts_.data, counts_.rows, table,
                    <int32_t*>distinct.data, inverse, <int64_t*>found.data)
            rows = 0
            for group in range(counts_.rows):
                rows += (<int64_t*>found.data)[group]
        if rows == n:
            return counts, keys, values
        sums = like(values_, rows)
        with nogil:
            if values_.dtype == FLOAT32:
                _sum_rows(<float*>values_.data, inverse, n, values_.width, <float*>sums.data, rows)
            elif values_.dtype == FLOAT64:
                _sum_rows(<double*>values_.data, inverse, n, values_.width, <double*>sums.data,
                          rows)
            else:
                _sum_rows(<int64_t*>values_.data, inverse, n, values_.width, <int64_t*>sums.data,
                          rows)
    finally:
        free(table)
    return found.owner, _shortened(distinct, rows), sums.owner
