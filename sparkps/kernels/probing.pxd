"""The open-addressed index: key -> row number, by linear probing.

Covers: how an index is probed and filled. Does not cover: who owns the memory and when it grows.

An index is a power of two of int32 slots; `mask` is their number less one. A slot is empty (-1) or
holds the number of a row, whose key stands in a separate array of keys in row order. Keys are not
repeated in the index: that keeps it at 4 bytes a slot, but a look at a slot says nothing without a
second, distant look at the key. So the bits that the row number leaves free carry a *tag*, further
bits of the key's hash: an index of 2^k slots holds fewer than 2^k rows, hence the low k bits of a
slot are the row and the 31 - k above are the tag. With 2^17 slots a foreign key passes for ours
once in 16,384, and a collision costs a neighbouring slot instead of a cache miss.

The slot comes from the low bits of the hash and the tag from bits 24 + k and up, so they do not
overlap; the top bits chose the partition and are of no use here (see `hashing`).
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from sparkps.kernels.hashing cimport prefetch, splitmix64

cdef enum:
    BLOCK = 32  # keys in flight: enough to hide a miss to memory, few enough for the L1 cache
    EMPTY = -1
    MAX_SLOTS = 1 << 30


cdef inline uint32_t tag_of(uint64_t hash, uint64_t mask) noexcept nogil:
    """The tag of `hash`, in place: bits above `mask`, sign bit zero."""
    return <uint32_t>((hash >> 24) & <uint64_t>0x7FFFFFFF & ~mask)


cdef inline uint64_t walk(
    const int32_t* index, uint64_t mask, uint32_t tag, uint64_t slot
) noexcept nogil:
    """The first slot, from `slot` on, that is empty or bears `tag`."""
    cdef int32_t entry
    while True:
        slot &= mask
        entry = index[slot]
        if entry < 0 or (<uint32_t>entry ^ tag) <= mask:
            return slot
        slot += 1


cdef inline uint64_t settle(
    const int32_t* index, uint64_t mask, const int64_t* keys, int64_t key, uint32_t tag,
    uint64_t slot
) noexcept nogil:
    """The slot of `key`, or the empty one where it belongs; `slot` came from `walk`."""
    while index[slot] >= 0 and keys[index[slot] & mask] != key:
        slot = walk(index, mask, tag, slot + 1)
    return slot


cdef inline void place(
    int32_t* index, uint64_t mask, uint32_t tag, uint64_t slot, int64_t row
) noexcept nogil:
    """Write `row` into its slot."""
    index[slot] = <int32_t>(tag | <uint32_t>row)


cdef inline void fill_index(
    int32_t* index, uint64_t mask, const int64_t* keys, int64_t rows
) noexcept nogil:
    """Enter the first `rows` of `keys`, which are distinct, into an empty index."""
    cdef uint64_t hash, slot
    cdef int64_t row
    for row in range(rows):
        if row + BLOCK < rows:
            prefetch(&index[splitmix64(<uint64_t>keys[row + BLOCK]) & mask])
        hash = splitmix64(<uint64_t>keys[row])
        slot = hash & mask
        while index[slot] >= 0:
            slot = (slot + 1) & mask
        place(index, mask, tag_of(hash, mask), slot, row)
