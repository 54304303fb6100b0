"""Keys to row numbers: of a table's partitions, and of a list of keys that stands alone.

Covers: looking keys up, creating the rows of new ones, and `KeyIndex`, the map behind vocabularies.
Does not cover: the numbers in the rows (`rows`, `updates`), how an index is probed (`probing`).

A look-up is two distant reads, the index and then the key it points to, each a cache miss in a
large table. So keys go through three stages in blocks of 32: the first slots of all are fetched,
then the keys that those point to, then the keys are compared. The next block's slots are under way
while this one's keys are, so the memory is never idle. A block may span partitions, or small
messages, a key or two for each partition, would gain nothing.
"""

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from sparkps.kernels.buffers cimport Buffer, INT32, INT64, readable, writable
from sparkps.kernels.groups cimport check_groups
from sparkps.kernels.growth cimport REFILLED, indexable, pressing, slots_for
from sparkps.kernels.hashing cimport hashed_partition, prefetch, splitmix64
from sparkps.kernels.memory cimport Area, new_area
from sparkps.kernels.partitions cimport Partition, PartitionArray
from sparkps.kernels.probing cimport (
    BLOCK, EMPTY, MAX_SLOTS, fill_index, place, settle, tag_of, walk,
)


# Keys on their way through the three stages of a look-up.
cdef struct Block:
    Py_ssize_t size
    const Partition* owner[BLOCK]
    uint64_t hash[BLOCK]
    uint64_t slot[BLOCK]

# Where the next block begins; `parts` is the group after the one that has `left` keys to come.
cdef struct Cursor:
    const Partition* at
    const Partition* part
    const int32_t* parts
    const int64_t* keys
    Py_ssize_t left
    Py_ssize_t remaining


cdef inline void _begin(Block* block, Cursor* cursor) noexcept nogil:
    """Take the next keys, hash them, and fetch the first slot of each."""
    cdef const Partition* part = cursor.part
    cdef Py_ssize_t left = cursor.left, b
    cdef uint64_t hash
    block.size = min(<Py_ssize_t>BLOCK, cursor.remaining)
    for b in range(block.size):
        while left == 0:
            part = &cursor.at[cursor.parts[0]]
            left = cursor.parts[1]
            cursor.parts += 2
        left -= 1
        hash = splitmix64(<uint64_t>cursor.keys[b])
        block.owner[b] = part
        block.hash[b] = hash
        prefetch(&part.index[hash & part.mask])
    cursor.part = part
    cursor.left = left
    cursor.keys += block.size
    cursor.remaining -= block.size


cdef inline void _guess(Block* block) noexcept nogil:
    """Find the slot that bears each key's tag, and fetch the key that it points to."""
    cdef const Partition* part
    cdef uint64_t hash, slot
    cdef Py_ssize_t b
    for b in range(block.size):
        part = block.owner[b]
        hash = block.hash[b]
        slot = walk(part.index, part.mask, tag_of(hash, part.mask), hash & part.mask)
        block.slot[b] = slot
        # The row of an empty slot is the mask: an address that nobody reads.
        prefetch(&part.keys[<uint64_t>part.index[slot] & part.mask])


cdef inline Py_ssize_t _finish(
    const Block* block, const int64_t* keys, int32_t* out
) noexcept nogil:
    """Compare the keys, and write their rows or -1; return how many are absent."""
    cdef const Partition* part
    cdef uint64_t slot
    cdef int32_t entry
    cdef Py_ssize_t b, misses = 0
    for b in range(block.size):
        part = block.owner[b]
        slot = settle(
            part.index, part.mask, part.keys, keys[b], tag_of(block.hash[b], part.mask),
            block.slot[b],
        )
        entry = part.index[slot]
        # The low bits of a slot are the row; an empty one is -1 in all its bits.
        out[b] = EMPTY if entry < 0 else <int32_t>(<uint64_t>entry & part.mask)
        misses += entry < 0
    return misses


cdef Py_ssize_t _find_hashed(
    const Partition* at, const int32_t* parts, const int64_t* keys, Py_ssize_t n, int32_t* out
) noexcept nogil:
    """Look `n` keys up, grouped by partition; return how many are absent."""
    cdef Block blocks[2]
    cdef Block* block = &blocks[0]
    cdef Block* following = &blocks[1]
    cdef Cursor cursor
    cdef Py_ssize_t misses = 0
    cursor.at = at
    cursor.part = NULL
    cursor.parts = parts
    cursor.keys = keys
    cursor.left = 0
    cursor.remaining = n
    _begin(block, &cursor)
    while block.size:
        _guess(block)
        _begin(following, &cursor)
        misses += _finish(block, keys, out)
        keys += block.size
        out += block.size
        block, following = following, block
    return misses


cdef Py_ssize_t _find_dense(
    const Partition* at, const int32_t* parts, Py_ssize_t groups, const int64_t* keys, int32_t* out
) noexcept nogil:
    """Subtract the bases; return the position of a key outside its partition, or -1."""
    cdef Py_ssize_t k, i, start = 0, stop
    cdef uint64_t base, rows, row
    cdef bint bad
    for k in range(groups):
        stop = start + parts[2 * k + 1]
        base = <uint64_t>at[parts[2 * k]].base
        rows = <uint64_t>at[parts[2 * k]].rows
        bad = False
        for i in range(start, stop):
            row = <uint64_t>keys[i] - base
            bad |= row >= rows
            out[i] = <int32_t>row
        if bad:
            for i in range(start, stop):
                if <uint64_t>keys[i] - base >= rows:
                    return i
        start = stop
    return -1


cdef int64_t _look_up(PartitionArray pa, Buffer parts, Buffer key, Buffer out) except -1:
    """The body of `find`."""
    cdef Py_ssize_t groups, bad = -1
    cdef int64_t misses = 0
    out.expect_rows(key.size, 1)
    groups = check_groups(pa, parts, key.size)
    with nogil:
        if pa.hashed:
            misses = _find_hashed(
                pa.at, <const int32_t*>parts.data, <const int64_t*>key.data, key.size,
                <int32_t*>out.data,
            )
        else:
            bad = _find_dense(
                pa.at, <const int32_t*>parts.data, groups, <const int64_t*>key.data,
                <int32_t*>out.data,
            )
    if bad >= 0:
        _raise_foreign(<const int64_t*>key.data, bad)
    return misses


cdef int _raise_foreign(const int64_t* keys, Py_ssize_t bad) except -1:
    raise ValueError(f"keys[{bad}] is {keys[bad]}, which does not belong to the partition it names")


def find(PartitionArray pa not None, parts, keys, out_rows):
    """Look keys up; create nothing.

    Parameters
    ----------
    pa : PartitionArray
    parts : int32 array of shape (k, 2)
        (partition, count) of each group, in the order in which `keys` holds the groups.
    keys : int64 array of shape (n,)
        May repeat.
    out_rows : int32 array of shape (n,)
        Receives the row number in its partition of each key, -1 where there is none.

    Returns
    -------
    int
        How many keys have no row; 0 for a dense table, where all rows exist.

    Raises
    ------
    ValueError
        For a dense key outside its partition, by name; `out_rows` is then unspecified.
    """
    return _look_up(
        pa, readable(parts, INT32, "parts"), readable(keys, INT64, "keys"),
        writable(out_rows, INT32, "out_rows"),
    )


cdef Py_ssize_t _count_coming(
    PartitionArray pa, const int32_t* parts, Py_ssize_t groups, const int64_t* keys,
    const int32_t* rows
) noexcept nogil:
    """Count the absent keys per partition in `coming`; return a key that is foreign, or -1."""
    cdef Py_ssize_t k, i, start = 0, stop
    for k in range(groups):
        stop = start + parts[2 * k + 1]
        for i in range(start, stop):
            if rows[i] == EMPTY:
                # A row in the wrong partition would never be found again, so this is checked.
                if hashed_partition(keys[i], pa.partitions) != parts[2 * k]:
                    return i
                pa.at[parts[2 * k]].coming += 1
        start = stop
    return -1


cdef int _make_room(PartitionArray pa, const int32_t* parts, Py_ssize_t groups) except -1:
    """Grow every partition by what is coming to it, or none of them."""
    cdef Py_ssize_t k
    cdef Partition* part
    cdef int64_t added = 0, refilled = 0, rows
    cdef bint doubling, now
    if pa.limit is not None:
        for k in range(groups):
            part = &pa.at[parts[2 * k]]
            added += pa.growth(parts[2 * k], part.rows + part.coming)
        pa.admit(added)
    for k in range(groups):
        part = &pa.at[parts[2 * k]]
        rows = part.rows + part.coming
        doubling = rows > part.indexable
        now = doubling and (refilled < REFILLED or pressing(part.mask + 1, rows))
        if now:
            refilled += part.rows
        if now or rows > part.capacity:
            pa.grow(parts[2 * k], rows, now)
    return 0


cdef void _append(
    Partition* part, const int64_t* keys, Py_ssize_t n, int32_t* out
) noexcept nogil:
    """Append the keys that `out` says are absent; there is room for them."""
    cdef uint64_t hash, slot
    cdef uint32_t tag
    cdef Py_ssize_t i
    for i in range(n):
        if i + BLOCK < n and out[i + BLOCK] == EMPTY:
            prefetch(&part.index[splitmix64(<uint64_t>keys[i + BLOCK]) & part.mask])
        if out[i] != EMPTY:
            continue
        hash = splitmix64(<uint64_t>keys[i])
        tag = tag_of(hash, part.mask)
        slot = walk(part.index, part.mask, tag, hash & part.mask)
        # A key that comes twice was absent twice, and is there by now.
        slot = settle(part.index, part.mask, part.keys, keys[i], tag, slot)
        if part.index[slot] == EMPTY:
            part.keys[part.rows] = keys[i]
            place(part.index, part.mask, tag, slot, part.rows)
            part.rows += 1
        out[i] = <int32_t>(<uint64_t>part.index[slot] & part.mask)


cdef int64_t _insert(
    PartitionArray pa, const int32_t* parts, Py_ssize_t groups, const int64_t* keys, int32_t* out
) noexcept nogil:
    """Create the rows of all absent keys, with their initial numbers; return how many."""
    cdef Partition* part
    cdef Py_ssize_t k, start = 0
    cdef int64_t before, created = 0
    for k in range(groups):
        part = &pa.at[parts[2 * k]]
        before = part.rows
        _append(part, keys + start, parts[2 * k + 1], out + start)
        if part.rows > before:
            pa.initialise(part, before, part.rows)
            created += part.rows - before
        start += parts[2 * k + 1]
    return created


def find_or_insert(PartitionArray pa not None, parts, keys, out_rows):
    """Look keys up and create the rows of those that have none, in order of appearance.

    Parameters are those of `find`. New rows hold their initial numbers. In a dense table this is
    `find`.

    Returns
    -------
    int
        The number of rows created.

    Raises
    ------
    MemoryLimit
        If the new rows do not fit under the table's limit: no row was created.
    ValueError
        For a key that does not belong to its partition, by name: no row was created.
    """
    cdef Buffer part = readable(parts, INT32, "parts")
    cdef Buffer key = readable(keys, INT64, "keys")
    cdef Buffer out = writable(out_rows, INT32, "out_rows")
    cdef const int32_t* groups = <const int32_t*>part.data
    cdef Py_ssize_t count = part.size // 2, bad, k
    cdef int64_t created
    if _look_up(pa, part, key, out) == 0:
        return 0
    try:
        with nogil:
            bad = _count_coming(
                pa, groups, count, <const int64_t*>key.data, <const int32_t*>out.data
            )
        if bad >= 0:
            _raise_foreign(<const int64_t*>key.data, bad)
        _make_room(pa, groups, count)
    finally:
        for k in range(count):
            pa.at[groups[2 * k]].coming = 0
    with nogil:
        created = _insert(pa, groups, count, <const int64_t*>key.data, <int32_t*>out.data)
    return created


cdef int64_t FIRST_SLOTS = 64


@cython.final
cdef class KeyIndex:
    """A map from int64 keys to the ordinals 0, 1, 2, … of their first appearance.

    It takes 8 bytes per key, growing by an eighth, and an index of 5.7 to 11.4 more.

    Examples
    --------
    >>> import numpy as np
    >>> index = KeyIndex()
    >>> index.add(np.array([70, -1, 70, 5]))
    array([0, 1, 0, 2], dtype=int32)
    >>> index.find(np.array([5, 6]))
    array([ 2, -1], dtype=int32)
    """

    cdef Partition part  # one partition without fields
    cdef Area key_area
    cdef Area index_area

    def __cinit__(self):
        self.key_area = new_area(FIRST_SLOTS * sizeof(int64_t), 0)
        self._rebuild(FIRST_SLOTS)

    cdef int _rebuild(self, int64_t slots) except -1:
        cdef Area area
        if slots > MAX_SLOTS:
            raise ValueError(f"an index has at most {MAX_SLOTS} slots; too many keys for one")
        area = new_area(slots * sizeof(int32_t), 1)
        self.part.keys = <int64_t*>self.key_area.data
        with nogil:
            memset(area.data, 0xFF, slots * sizeof(int32_t))
            fill_index(<int32_t*>area.data, slots - 1, self.part.keys, self.part.rows)
        self.index_area = area
        self.part.index = <int32_t*>area.data
        self.part.mask = slots - 1
        self.part.indexable = indexable(0, slots)
        return 0

    cdef int _make_room(self, int64_t rows) except -1:
        if rows * <int64_t>sizeof(int64_t) > self.key_area.room:
            self.key_area = self.key_area.grown((rows + rows // 8) * sizeof(int64_t))
            self.part.keys = <int64_t*>self.key_area.data
        if rows > self.part.indexable:
            self._rebuild(slots_for(0, rows))
        return 0

    cdef object _ordinals(self, keys, bint insert):
        cdef Buffer key = readable(keys, INT64, "keys")
        cdef object ordinals = np.empty(key.size, np.int32)
        cdef Buffer out = writable(ordinals, INT32, "ordinals")
        cdef const int64_t* key_at = <const int64_t*>key.data
        cdef int32_t* out_at = <int32_t*>out.data
        cdef int32_t group[2]
        cdef Py_ssize_t start, size, misses
        # By stretches: room is made for the keys that a stretch lacks, and not for every key of a
        # list that mostly repeats; int32 also bounds what one group may count.
        for start in range(0, key.size, 1 << 20):
            size = min(key.size - start, <Py_ssize_t>1 << 20)
            group[0] = 0
            group[1] = <int32_t>size
            with nogil:
                misses = _find_hashed(&self.part, group, key_at + start, size, out_at + start)
            if misses and insert:
                self._make_room(self.part.rows + misses)
                with nogil:
                    _append(&self.part, key_at + start, size, out_at + start)
        return ordinals

    def add(self, keys):
        """Return the int32 ordinals of `keys`, giving new ones the next numbers in order."""
        return self._ordinals(keys, True)

    def find(self, keys):
        """Return the int32 ordinals of `keys`, -1 for one that is absent."""
        return self._ordinals(keys, False)

    def keys(self):
        """All keys, int64, by ordinal: a read-only view that shows the keys of this moment."""
        if self.part.rows == 0:
            return np.empty(0, np.int64)
        view = self.key_area.view(np.int64, self.part.rows)
        view.flags.writeable = False
        return view

    def __len__(self):
        return self.part.rows

    @property
    def nbytes(self):
        """Bytes allocated."""
        return self.key_area.nbytes + self.index_area.nbytes
