"""Areas of memory that grow without being copied, and never move under whoever looks at them.

Covers: zeroed memory, growing it, and numpy views of it. Does not cover: what is stored in it.

* An area of 64 KiB or more is mapped from the kernel and grows by `mremap`, which moves page tables
  and not bytes: a field of a gigabyte grows in microseconds, and at no time are there two of it.
  Small areas come from the C heap: a table of 64 empty partitions should not take 300 mappings.
  Without Linux all come from the heap, and growing may copy.
* What has never been written is zero, and in a mapped area costs no memory until it is.
* Mapped areas begin at page boundaries, so the same row of two fields would have the same address
  modulo 4096, and a CPU that compares only those bits takes a load from one for dependent on a
  store to the other: momentum on 100k random rows took 1.9 ms instead of 0.5. So areas are
  *coloured*: each array of a partition leaves another multiple of 448 bytes empty before it.
* While a numpy view of an area lives, the area is *exported* and does not move. Growing it then
  gives a new area with a copy of the bytes; the old one lives until its last view dies, and the
  views keep showing what they showed.
"""

import numpy as np

cimport cython
from libc.string cimport memcpy

cdef extern from *:
    """
    #ifdef __linux__
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/mman.h>
    #endif
    #include <stdlib.h>
    #include <string.h>

    /* Below this, the heap: a page per array would outweigh what small tables hold. */
    #define SPARKPS_MAPPED 65536
    /* Mapped sizes are whole pages; 4 KiB even where pages are larger (the kernel rounds up). */
    #define SPARKPS_PAGE 4096

    static size_t sparkps_area_size(size_t bytes) {
    #ifdef __linux__
        if (bytes >= SPARKPS_MAPPED)
            return (bytes + SPARKPS_PAGE - 1) & ~(size_t)(SPARKPS_PAGE - 1);
    #endif
        return (bytes + 63) & ~(size_t)63;
    }

    static void *sparkps_area_new(size_t size) {
    #ifdef __linux__
        if (size >= SPARKPS_MAPPED) {
            void *data = mmap(NULL, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            return data == MAP_FAILED ? NULL : data;
        }
    #endif
        return calloc(size ? size : 1, 1);
    }

    static void sparkps_area_free(void *data, size_t size) {
    #ifdef __linux__
        if (data != NULL && size >= SPARKPS_MAPPED) {
            munmap(data, size);
            return;
        }
    #endif
        (void)size;
        free(data);
    }

    /* NULL when there is no memory; the old area is then untouched. */
    static void *sparkps_area_grow(void *data, size_t old, size_t size) {
        char *grown;
    #ifdef __linux__
        if (old >= SPARKPS_MAPPED) {
            void *moved = mremap(data, old, size, MREMAP_MAYMOVE);
            return moved == MAP_FAILED ? NULL : moved;
        }
        if (size >= SPARKPS_MAPPED) {
            grown = (char *)sparkps_area_new(size);
            if (grown != NULL) {
                memcpy(grown, data, old);
                free(data);
            }
            return grown;
        }
    #endif
        grown = (char *)realloc(data, size);
        if (grown != NULL)
            memset(grown + old, 0, size - old);
        return grown;
    }
    """
    size_t _area_size "sparkps_area_size"(size_t nbytes) noexcept nogil
    void* _area_new "sparkps_area_new"(size_t size) noexcept nogil
    void _area_free "sparkps_area_free"(void* data, size_t size) noexcept nogil
    void* _area_grow "sparkps_area_grow"(void* data, size_t old, size_t size) noexcept nogil

cdef Py_ssize_t ONE = 1
cdef Py_ssize_t COLOUR = 448  # whole cache lines; its multiples by 1 to 9 are apart modulo 4096


cdef Py_ssize_t area_size(Py_ssize_t room, int number) noexcept nogil:
    """The bytes that an area takes for `room` usable ones, as array `number` of a partition."""
    return <Py_ssize_t>_area_size(<size_t>(room + number * COLOUR))


cdef Area new_area(Py_ssize_t room, int number):
    """A zeroed area with at least `room` bytes, coloured as array `number` of a partition."""
    cdef Area area = Area.__new__(Area)
    cdef Py_ssize_t size = area_size(room, number)
    cdef void* base = _area_new(size)
    if base == NULL:
        raise MemoryError(f"no {size} bytes for a table")
    area.colour = number * COLOUR
    area._hold(base, size)
    return area


@cython.final
cdef class Area:
    """`room` bytes at `data`; a writable buffer of bytes for whoever makes a view."""

    def __dealloc__(self):
        if self.data != NULL:
            _area_free(self.data - self.colour, self.nbytes)

    def __getbuffer__(self, Py_buffer* view, int flags):
        view.buf = self.data
        view.obj = self
        view.len = self.room
        view.itemsize = 1
        view.format = b"B"
        view.ndim = 1
        view.shape = &self.room
        view.strides = &ONE
        view.suboffsets = NULL
        view.internal = NULL
        view.readonly = 0
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    cdef void _hold(self, void* base, Py_ssize_t size):
        self.data = <char*>base + self.colour
        self.nbytes = size
        self.room = size - self.colour

    cdef Area grown(self, Py_ssize_t room):
        """An area of at least `room` that begins with these bytes: this one unless exported."""
        cdef int number = self.colour // COLOUR
        cdef Py_ssize_t size = area_size(room, number)
        cdef Area copied
        cdef void* base
        if room <= self.room:
            return self
        if self.exports:
            copied = new_area(room, number)
            memcpy(copied.data, self.data, self.room)
            return copied
        base = _area_grow(self.data - self.colour, self.nbytes, size)
        if base == NULL:
            raise MemoryError(f"no {size} bytes for a table")
        self._hold(base, size)
        return self

    cdef object view(self, object dtype, Py_ssize_t count):
        """The first `count` numbers as a numpy array, which exports the area while it lives."""
        return np.frombuffer(self, dtype, count)
