"""The door of a kernel: what the other modules cimport to read and check their arguments.

See `door.pyx` for what it covers.
"""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t

# One bit per dtype, so that a set of allowed dtypes is an `or` of them.
cdef enum:
    INT32 = 1
    INT64 = 2
    FLOAT32 = 4
    FLOAT64 = 8
    UINT16 = 16
    INTEGERS = INT32 | INT64
    FLOATS = FLOAT32 | FLOAT64
    NUMBERS = INTEGERS | FLOATS


cdef class Buffer:
    cdef Py_buffer view
    cdef object owner
    cdef void* data
    cdef Py_ssize_t rows
    cdef Py_ssize_t width
    cdef int ndim
    cdef int dtype


cdef Buffer read(object array, str name, int dtypes, int ndim=*)
cdef Buffer read_keys(object keys, str name, int dtypes)
cdef Buffer written(object array, str name, int dtypes, int ndim=*)
cdef Buffer empty(int dtype, Py_ssize_t rows, Py_ssize_t width=*)
cdef Buffer like(Buffer model, Py_ssize_t rows)
cdef int same_rows(Buffer a, str a_name, Buffer b, str b_name) except -1
cdef Py_ssize_t first_outside(Buffer indices, Py_ssize_t n) noexcept nogil
cdef int check_indices(Buffer indices, str name, Py_ssize_t n) except -1
