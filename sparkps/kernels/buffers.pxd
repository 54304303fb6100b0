"""What the doors of the kernels share; `buffers.pyx` says what it covers."""

from cpython.buffer cimport Py_buffer

cdef enum Kind:
    OTHER, FLOAT32, FLOAT64, INT64, INT32, UINT8

cdef class Buffer:
    cdef Py_buffer view
    cdef void* copy
    cdef void* data
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t length
    cdef readonly int ndim
    cdef readonly str name

    cdef int expect_rows(self, Py_ssize_t rows, Py_ssize_t width) except -1

cdef Buffer readable(object source, Kind kind, str name)
cdef Buffer writable(object target, Kind kind, str name)
cdef Kind kind_of(object dtype) except OTHER
cdef Py_ssize_t itemsize_of(Kind kind) noexcept nogil
cdef str name_of(Kind kind)
cdef tuple shape_of(Py_ssize_t rows, Py_ssize_t width)
