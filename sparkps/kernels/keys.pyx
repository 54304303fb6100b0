"""Keys of a message: which partition each belongs to, and all that follows from it.

Covers: key -> partition, the stable sort by partition that every request begins with, cutting a
write into slices and chaining them, and the fingerprint of a stream of keys.
Does not cover: repeated keys (`sums`), moving values along (`arrays`), and the index of a table or
a vocabulary, which lives longer than a message (`index`).
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from sparkps.kernels.door cimport (
    INT32, INT64, UINT16, Buffer, check_indices, empty, first_outside, read, read_keys, same_rows,
    written,
)
from sparkps.kernels.hashing cimport hashed_partition, splitmix64

cdef extern from *:
    # Cython has no name for it; it only needs to know that the type is unsigned.
    ctypedef unsigned long long uint128_t "unsigned __int128"

cdef enum:
    # A key's partition is kept in 16 bits between the two passes of the sort.
    MAX_PARTITIONS = 65536
    STRETCHES = 4

ctypedef fused part_t:
    uint16_t
    int32_t


cdef int64_t _check_partitions(int64_t partitions, object dim) except -1:
    """The key space's size, or 0 when it is hashed."""
    cdef int64_t size
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ValueError(f"partitions must be in 1..{MAX_PARTITIONS}, not {partitions}")
    if dim is None:
        return 0
    size = dim
    if size < partitions:
        raise ValueError(f"dim must be at least the number of partitions {partitions}, not {size}")
    return size


cdef Buffer _read_slot(object slot, int64_t partitions):
    """Each partition's position in the wanted order: a permutation of 0..partitions-1."""
    cdef Buffer buffer = read(slot, "slot", INT32)
    cdef int32_t* positions = <int32_t*>buffer.data
    cdef int64_t p
    cdef char* seen
    if buffer.rows != partitions:
        raise ValueError(f"slot has {buffer.rows} entries for {partitions} partitions")
    seen = <char*>calloc(partitions, 1)
    if seen == NULL:
        raise MemoryError
    try:
        for p in range(partitions):
            if not 0 <= positions[p] < partitions or seen[positions[p]]:
                raise ValueError(f"slot must be a permutation; slot[{p}] is {positions[p]}")
            seen[positions[p]] = 1
    finally:
        free(seen)
    return buffer


# ---- key -> partition


cdef inline int64_t _dense_partition(
    int64_t key, int64_t partitions, int64_t dim, double partitions_per_key
) noexcept nogil:
    """`hashing.dense_partition` without its division, which would cost more than all the rest: a
    guess in floating point, off by one at most, then made exact by multiplying."""
    cdef uint64_t p = <uint64_t>(<double>key * partitions_per_key)
    cdef uint128_t end = <uint128_t>(<uint64_t>key + 1) * <uint64_t>partitions
    while <uint128_t>p * <uint64_t>dim >= end:
        p -= 1
    while <uint128_t>(p + 1) * <uint64_t>dim < end:
        p += 1
    return p


cdef inline int64_t _partition(
    int64_t key, int64_t partitions, int64_t dim, double partitions_per_key, bint* outside
) noexcept nogil:
    """The key's partition; a `dim` of 0 means hashed. A key outside a dense table counts as key 0
    and sets `outside`."""
    if dim == 0:
        return hashed_partition(key, partitions)
    if not 0 <= key < dim:
        outside[0] = True
        key = 0
    return _dense_partition(key, partitions, dim, partitions_per_key)


cdef int _refuse_keys(Buffer keys, int64_t dim) except -1:
    """Raise the error for the first key outside the dense table."""
    cdef Py_ssize_t bad = first_outside(keys, dim)
    key = (<int64_t*>keys.data)[bad]
    raise ValueError(f"keys[{bad}] is {key}; a table of dim {dim} has the keys 0..{dim - 1}")


def partition_of(keys, int64_t partitions, dim=None):
    """The partition of each key.

    Parameters
    ----------
    keys : array of int64, shape (n,)
    partitions : int
        The table's number of partitions P, up to 65,536.
    dim : int, optional
        Size of a dense key space: partition p owns ``p*dim//P <= key < (p+1)*dim//P``. None for
        hashed keys: ``(splitmix64(key) * P) >> 64``.

    Returns
    -------
    ndarray of int32, shape (n,)

    Raises
    ------
    ValueError
        A key outside 0..dim-1, named with its index.
    """
    cdef Buffer keys_ = read(keys, "keys", INT64)
    cdef int64_t size = _check_partitions(partitions, dim)
    cdef Buffer out = empty(INT32, keys_.rows)
    cdef const int64_t* source = <int64_t*>keys_.data
    cdef int32_t* target = <int32_t*>out.data
    cdef double partitions_per_key = <double>partitions / <double>size if size else 0
    cdef bint outside = False
    cdef Py_ssize_t i
    with nogil:
        for i in range(keys_.rows):
            target[i] = <int32_t>_partition(
                source[i], partitions, size, partitions_per_key, &outside)
    if outside:
        _refuse_keys(keys_, size)
    return out.owner


# ---- sorting by partition
#
# Two passes: every key's position in the wanted order is found and counted; then the keys move to
# where their position's group begins. Both walk four stretches of the input side by side, each
# with its own counters: with one set, each increment would wait for the one before it to reach
# memory (2.7 against 1.2 ns a key). Counters lie in the order of the result, position by position
# and in each stretch by stretch, so the sort stays stable.


cdef inline void _place(
    int64_t partition, Py_ssize_t i, Py_ssize_t stretch, const int32_t* slot, uint16_t* positions,
    int32_t* counters,
) noexcept nogil:
    cdef int32_t position = slot[partition]
    positions[i] = <uint16_t>position
    counters[STRETCHES * position + stretch] += 1


cdef inline bint _place_keys(
    const int64_t* keys, Py_ssize_t n, int64_t partitions, int64_t dim, const int32_t* slot,
    uint16_t* positions, int32_t* counters,
) noexcept nogil:
    """Write each key's position and count; return whether a key was outside the dense table.
    Inline, so that a call with the constant 0 for `dim` becomes a loop for hashed keys alone."""
    cdef Py_ssize_t length = n // STRETCHES
    cdef Py_ssize_t offset, stretch, i
    cdef double partitions_per_key = <double>partitions / <double>dim if dim else 0
    cdef bint outside = False
    for offset in range(length):
        for stretch in range(STRETCHES):
            i = offset + stretch * length
            _place(_partition(keys[i], partitions, dim, partitions_per_key, &outside),
                   i, stretch, slot, positions, counters)
    for i in range(STRETCHES * length, n):
        _place(_partition(keys[i], partitions, dim, partitions_per_key, &outside),
               i, STRETCHES - 1, slot, positions, counters)
    return outside


cdef int64_t _place_ordinals(
    const int32_t* ordinals, Py_ssize_t n, const part_t* part_of, int64_t partitions,
    const int32_t* slot, uint16_t* positions, int32_t* counters,
) noexcept nogil:
    """The same by lookup; return an ordinal whose partition does not exist, or -1. The lookups
    have a loop of their own, in which `positions` holds partitions: they may miss the cache."""
    cdef Py_ssize_t length = n // STRETCHES
    cdef Py_ssize_t offset, stretch, i
    for i in range(n):
        if not 0 <= part_of[ordinals[i]] < partitions:
            return ordinals[i]
        positions[i] = <uint16_t>part_of[ordinals[i]]
    for offset in range(length):
        for stretch in range(STRETCHES):
            i = offset + stretch * length
            _place(positions[i], i, stretch, slot, positions, counters)
    for i in range(STRETCHES * length, n):
        _place(positions[i], i, STRETCHES - 1, slot, positions, counters)
    return -1


cdef inline void _move_key(
    Py_ssize_t i, Py_ssize_t stretch, const uint16_t* positions, int32_t* counters,
    int32_t* order, const int64_t* keys, int64_t* sorted_keys,
) noexcept nogil:
    cdef int32_t* counter = counters + STRETCHES * positions[i] + stretch
    cdef int32_t at = counter[0]
    counter[0] = at + 1
    order[at] = <int32_t>i
    if keys != NULL:
        sorted_keys[at] = keys[i]


cdef void _move(
    const uint16_t* positions, Py_ssize_t n, int64_t partitions, int32_t* counters,
    int64_t* counts, int32_t* order, const int64_t* keys, int64_t* sorted_keys,
) noexcept nogil:
    """Turn the counters into `counts` and beginnings, and fill `order` and, if not NULL,
    `sorted_keys`."""
    cdef Py_ssize_t length = n // STRETCHES
    cdef Py_ssize_t offset, stretch, i
    cdef int64_t position
    cdef int32_t* counter = counters
    cdef int32_t count, begin = 0
    for position in range(partitions):
        counts[position] = -begin
        for stretch in range(STRETCHES):
            count = counter[stretch]
            counter[stretch] = begin
            begin += count
        counts[position] += begin
        counter += STRETCHES
    for offset in range(length):
        for stretch in range(STRETCHES):
            _move_key(offset + stretch * length, stretch, positions, counters, order, keys,
                      sorted_keys)
    for i in range(STRETCHES * length, n):
        _move_key(i, STRETCHES - 1, positions, counters, order, keys, sorted_keys)


cdef int32_t* _scratch(int64_t partitions, Py_ssize_t n) except NULL:
    """Zeroed counters, and behind them room for `n` positions; the caller frees it."""
    cdef size_t counters = STRETCHES * partitions * sizeof(int32_t)
    cdef int32_t* scratch = <int32_t*>malloc(counters + n * sizeof(uint16_t))
    if scratch == NULL:
        raise MemoryError(f"no memory to sort {n} keys")
    memset(scratch, 0, counters)
    return scratch


def partition_sort(keys, int64_t partitions, dim, slot):
    """Group keys by partition with one stable counting sort.

    Parameters
    ----------
    keys : array of int64, shape (n,)
    partitions : int
        The table's number of partitions P, up to 65,536.
    dim : int or None
        As for `partition_of`.
    slot : array of int32, shape (P,)
        The position of each partition in the wanted order (all partitions of a server together):
        a permutation.

    Returns
    -------
    order : ndarray of int32, shape (n,)
        ``sorted_keys == keys[order]``.
    sorted_keys : ndarray of int64, shape (n,)
    counts : ndarray of int64, shape (P,)
        Keys at each *position* of the wanted order.

    Raises
    ------
    ValueError
        A key outside 0..dim-1, named with its index; a slot that is not a permutation.
    """
    cdef Buffer keys_ = read_keys(keys, "keys", INT64)
    cdef int64_t size = _check_partitions(partitions, dim)
    cdef Buffer slot_ = _read_slot(slot, partitions)
    cdef Py_ssize_t n = keys_.rows
    cdef Buffer order = empty(INT32, n)
    cdef Buffer sorted_keys = empty(INT64, n)
    cdef Buffer counts = empty(INT64, partitions)
    cdef int32_t* counters = _scratch(partitions, n)
    cdef uint16_t* positions = <uint16_t*>(counters + STRETCHES * partitions)
    cdef bint outside
    with nogil:
        if size:
            outside = _place_keys(<int64_t*>keys_.data, n, partitions, size,
                                  <int32_t*>slot_.data, positions, counters)
        else:
            outside = _place_keys(<int64_t*>keys_.data, n, partitions, 0,
                                  <int32_t*>slot_.data, positions, counters)
        if not outside:
            _move(positions, n, partitions, counters, <int64_t*>counts.data,
                  <int32_t*>order.data, <int64_t*>keys_.data, <int64_t*>sorted_keys.data)
        free(counters)
    if outside:
        _refuse_keys(keys_, size)
    return order.owner, sorted_keys.owner, counts.owner


def partition_sort_by(part_of, ordinals, slot):
    """Group ordinals of a vocabulary by partition; like `partition_sort` without hashing.

    Parameters
    ----------
    part_of : array of uint16 or int32, shape (m,)
        The partition of each ordinal of the vocabulary.
    ordinals : array of int32, shape (n,)
        In 0..m-1.
    slot : array of int32, shape (P,)
        As for `partition_sort`; its length says P.

    Returns
    -------
    order : ndarray of int32, shape (n,)
    counts : ndarray of int64, shape (P,)
        Ordinals at each *position* of the wanted order.

    Raises
    ------
    ValueError
        An ordinal or a partition out of range; a slot that is not a permutation.
    """
    cdef Buffer part_of_ = read(part_of, "part_of", UINT16 | INT32)
    cdef Buffer ordinals_ = read_keys(ordinals, "ordinals", INT32)
    cdef int64_t partitions = len(slot)
    _check_partitions(partitions, None)
    cdef Buffer slot_ = _read_slot(slot, partitions)
    check_indices(ordinals_, "ordinals", part_of_.rows)
    cdef Py_ssize_t n = ordinals_.rows
    cdef Buffer order = empty(INT32, n)
    cdef Buffer counts = empty(INT64, partitions)
    cdef int32_t* counters = _scratch(partitions, n)
    cdef uint16_t* positions = <uint16_t*>(counters + STRETCHES * partitions)
    cdef Py_ssize_t bad
    with nogil:
        if part_of_.dtype == UINT16:
            bad = _place_ordinals(
                <int32_t*>ordinals_.data, n, <uint16_t*>part_of_.data, partitions,
                <int32_t*>slot_.data, positions, counters)
        else:
            bad = _place_ordinals(
                <int32_t*>ordinals_.data, n, <int32_t*>part_of_.data, partitions,
                <int32_t*>slot_.data, positions, counters)
        if bad < 0:
            _move(positions, n, partitions, counters, <int64_t*>counts.data,
                  <int32_t*>order.data, NULL, NULL)
        free(counters)
    if bad >= 0:
        raise ValueError(
            f"part_of[{bad}] is {part_of_.owner[bad]}, outside 0..{partitions - 1}")
    return order.owner, counts.owner


# ---- slices of a write


def cut(partitions, counts, int64_t rows_per_slice):
    """Cut each partition's part of a write into slices.

    Parameters
    ----------
    partitions : array of int32, shape (groups,)
        The partition of each group, each at most once.
    counts : array of int64, shape (groups,)
        The rows of each group; an empty group has no slice.
    rows_per_slice : int
        The largest slice, at least 1.

    Returns
    -------
    ndarray of int64, shape (slices, 6)
        Columns partition, slice, count, and the previous position (clock, seq, slice), which is
        (-1, -1, -1) until `fill_prev`. Slices of a partition are numbered from 0.
    """
    cdef Buffer partitions_ = read(partitions, "partitions", INT32)
    cdef Buffer counts_ = read(counts, "counts", INT64)
    cdef const int32_t* partition = <int32_t*>partitions_.data
    cdef const int64_t* count = <int64_t*>counts_.data
    cdef Py_ssize_t group, slices = 0
    cdef int64_t number, left
    cdef int64_t* row
    same_rows(partitions_, "partitions", counts_, "counts")
    check_indices(partitions_, "partitions", MAX_PARTITIONS)
    if rows_per_slice < 1:
        raise ValueError(f"rows_per_slice must be at least 1, not {rows_per_slice}")
    for group in range(counts_.rows):
        if not 0 <= count[group] <= INT32_MAX:
            raise ValueError(f"counts[{group}] is {count[group]}, not in 0..2^31 - 1")
        slices += (count[group] + rows_per_slice - 1) // rows_per_slice
    _check_distinct(partition, partitions_.rows)
    table = empty(INT64, slices, 6)
    row = <int64_t*>table.data
    with nogil:
        for group in range(counts_.rows):
            number = 0
            left = count[group]
            while left > 0:
                row[0] = partition[group]
                row[1] = number
                row[2] = min(left, rows_per_slice)
                row[3] = row[4] = row[5] = -1
                left -= row[2]
                number += 1
                row += 6
    return table.owner


cdef int _check_distinct(const int32_t* partitions, Py_ssize_t n) except -1:
    """A partition in two groups would have two slices of one number: one would be lost as a
    duplicate."""
    cdef Py_ssize_t i
    cdef char* seen = <char*>calloc(MAX_PARTITIONS // 8, 1)
    if seen == NULL:
        raise MemoryError
    try:
        for i in range(n):
            if seen[partitions[i] >> 3] >> (partitions[i] & 7) & 1:
                raise ValueError(f"partition {partitions[i]} has more than one group")
            seen[partitions[i] >> 3] |= 1 << (partitions[i] & 7)
    finally:
        free(seen)
    return 0


def fill_prev(slices, last, int64_t clock, int64_t seq):
    """Chain slices to the position sent before to their partition, and remember theirs.

    Parameters
    ----------
    slices : ndarray of int64, shape (k, 6)
        From `cut`; the columns of the previous position are written.
    last : ndarray of int64, shape (P, 3)
        Each partition's last position (clock, seq, slice), or (-1, -1, -1); moved forward.
    clock, seq : int
        Of this write.

    Raises
    ------
    ValueError
        A partition outside `last`; nothing has been written then.
    """
    cdef Buffer slices_ = written(slices, "slices", INT64, 2)
    cdef Buffer last_ = written(last, "last", INT64, 2)
    cdef int64_t* row = <int64_t*>slices_.data
    cdef int64_t* position
    cdef Py_ssize_t i
    if slices_.width != 6 or last_.width != 3:
        raise ValueError(f"slices must have 6 columns and last 3, not {slices_.width} and "
                         f"{last_.width}")
    for i in range(slices_.rows):
        if not 0 <= row[6 * i] < last_.rows:
            raise ValueError(f"slices[{i}] is of partition {row[6 * i]}, outside "
                             f"0..{last_.rows - 1}")
    with nogil:
        for i in range(slices_.rows):
            position = <int64_t*>last_.data + 3 * row[0]
            row[3] = position[0]
            row[4] = position[1]
            row[5] = position[2]
            position[0] = clock
            position[1] = seq
            position[2] = row[1]
            row += 6


# ---- fingerprint


def fingerprint(hashes, state=0):
    """A 64-bit hash of a stream of int64, which depends on their order.

    Parameters
    ----------
    hashes : array of int64, shape (n,)
    state : int
        A seed, or the fingerprint of what came before: taking a stream in pieces gives the same
        as taking it at once. Between 0 and 2^64 - 1.

    Returns
    -------
    int
        Between 0 and 2^64 - 1. It finds accidents, not forgers.

    Examples
    --------
    >>> import numpy as np
    >>> a, b = np.arange(3), np.arange(3, 7)
    >>> fingerprint(b, fingerprint(a)) == fingerprint(np.arange(7))
    True
    """
    cdef Buffer hashes_ = read(hashes, "hashes", INT64)
    cdef uint64_t mixed = state
    cdef uint64_t* words = <uint64_t*>hashes_.data
    cdef Py_ssize_t i
    with nogil:
        for i in range(hashes_.rows):
            # The strong mixing is off the chain from word to word, which sets the speed. The odd
            # factor (2^64 over the golden ratio) and the rotation make the order count.
            mixed = ((mixed << 27) | (mixed >> 37)) * <uint64_t>0x9E3779B97F4A7C15
            mixed ^= splitmix64(words[i])
    return mixed
