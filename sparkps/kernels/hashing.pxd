"""The hash that places keys, and the two rules that turn a key into a partition.

Covers: splitmix64, key -> partition for hashed and for dense tables, key -> slot of an index, and
the counter-based random words that new rows are made of. All inline, all pure, all without the GIL.
Does not cover: hashing of rows (Spark's xxhash64 does that) and fingerprints of streams (`keys`).

A hashed key's partition comes from the *top* bits of its hash, ``(hash * P) >> 64``; the slot of an
index inside that partition comes from the *low* ones. All keys of a partition agree in the top
bits, so an index that used them too would pile its keys up in 1/P of its slots.
"""

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    """
    #ifndef SPARKPS_HASHING
    #define SPARKPS_HASHING
    #include <stdint.h>

    #if defined(__GNUC__)
    #define SPARKPS_PREFETCH(address) __builtin_prefetch((const void *)(address))
    #else
    #define SPARKPS_PREFETCH(address) ((void)(address))
    #endif

    /* Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014); the
       constants are Vigna's public-domain splitmix64.c. A bijection of the 64-bit words. */
    static inline uint64_t sparkps_splitmix64(uint64_t x) {
        x += UINT64_C(0x9E3779B97F4A7C15);
        x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
        return x ^ (x >> 31);
    }

    static inline int64_t sparkps_hashed_partition(int64_t key, int64_t P) {
        return (int64_t)(((unsigned __int128)sparkps_splitmix64((uint64_t)key)
                          * (uint64_t)P) >> 64);
    }

    /* p*dim//P <= key  <=>  p*dim < (key+1)*P  <=>  p <= ((key+1)*P - 1) // dim. The largest such p
       is the owner. A 128-bit division costs several times a 64-bit one, hence the short way. */
    static inline int64_t sparkps_dense_partition(int64_t key, int64_t P, int64_t dim) {
        uint64_t product;
        if (!__builtin_mul_overflow((uint64_t)key + 1, (uint64_t)P, &product))
            return (int64_t)((product - 1) / (uint64_t)dim);
        return (int64_t)(((unsigned __int128)((uint64_t)key + 1) * (uint64_t)P - 1)
                         / (uint64_t)dim);
    }

    static inline int64_t sparkps_partition_begin(int64_t p, int64_t P, int64_t dim) {
        return (int64_t)((unsigned __int128)(uint64_t)p * (uint64_t)dim / (uint64_t)P);
    }
    #endif
    """
    uint64_t _splitmix64 "sparkps_splitmix64"(uint64_t x) noexcept nogil
    int64_t _hashed_partition "sparkps_hashed_partition"(int64_t key, int64_t P) noexcept nogil
    int64_t _dense_partition "sparkps_dense_partition"(
        int64_t key, int64_t P, int64_t dim) noexcept nogil
    int64_t _partition_begin "sparkps_partition_begin"(
        int64_t p, int64_t P, int64_t dim) noexcept nogil
    void prefetch "SPARKPS_PREFETCH"(const void* address) noexcept nogil


cdef inline uint64_t splitmix64(uint64_t x) noexcept nogil:
    """The splitmix64 hash of one 64-bit word."""
    return _splitmix64(x)


cdef inline int64_t hashed_partition(int64_t key, int64_t P) noexcept nogil:
    """The partition of `key` in a hashed table of `P`: ``(splitmix64(key) * P) >> 64``."""
    return _hashed_partition(key, P)


cdef inline int64_t dense_partition(int64_t key, int64_t P, int64_t dim) noexcept nogil:
    """The p with ``p*dim//P <= key < (p+1)*dim//P``; the caller has checked 0 <= key < dim."""
    return _dense_partition(key, P, dim)


cdef inline int64_t partition_begin(int64_t p, int64_t P, int64_t dim) noexcept nogil:
    """The first key of dense partition `p`: ``p*dim//P``, exact for every int64 `dim`."""
    return _partition_begin(p, P, dim)


cdef inline uint64_t index_slot(int64_t key, uint64_t mask) noexcept nogil:
    """Where the search for `key` begins in an index of ``mask + 1`` slots: the hash's low bits."""
    return _splitmix64(<uint64_t>key) & mask
