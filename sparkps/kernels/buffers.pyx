"""The door of the kernels: how an array comes in.

Covers: taking any buffer (numpy array, bytes, memoryview, zmq frame), checking its dtype, shape and
contiguity once, and handing a kernel an aligned pointer that is valid while the `Buffer` lives.
Does not cover: what the numbers mean; each kernel checks its own ranges.

* Inputs may be read-only. One that is not aligned, as ``np.frombuffer`` on a small network frame
  mostly is not, is copied here, so that the loops behind may be compiled for aligned data.
* A source without a dtype of its own (bytes, a frame) is raw little-endian numbers of the wanted
  dtype. An array *has* a dtype and is taken at its word: uint8 is never read as int64.
* Outputs must be writable and aligned: copying back would hide a mistake of the caller.

`PyObject_GetBuffer` is called by hand because a typed memoryview argument costs about twice as
much, and a message of ten keys should not spend its time at the door. Kernels are written for
little-endian hosts, like the wire.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_RECORDS_RO, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef Py_ssize_t itemsize_of(Kind kind) noexcept nogil:
    """Bytes of one number of `kind`; also the alignment that it needs."""
    if kind == UINT8:
        return 1
    return 4 if kind == FLOAT32 or kind == INT32 else 8


cdef str name_of(Kind kind):
    """The numpy name of `kind`, for error sentences."""
    return ("another dtype", "float32", "float64", "int64", "int32", "uint8")[<int>kind]


cdef tuple shape_of(Py_ssize_t rows, Py_ssize_t width):
    """The numpy shape of `rows` rows: (rows,) for one number each, else (rows, width)."""
    if width == 1:
        return (rows,)
    return (rows, width)


cdef Kind kind_of(object dtype) except OTHER:
    """The `Kind` of a dtype that a field may have; TypeError for any other."""
    cdef str name = str(dtype)
    if name == "float32":
        return FLOAT32
    if name == "float64":
        return FLOAT64
    if name == "int64":
        return INT64
    raise TypeError(f"a field is float32, float64 or int64, not {name}")


cdef Kind _kind_of_view(const Py_buffer* view) noexcept nogil:
    """Read the struct-module format: numpy writes 'l' for an aligned int64, '=q' for another."""
    cdef const char* form = view.format
    if form == NULL:
        return UINT8
    if form[0] == b"=" or form[0] == b"<" or form[0] == b"@":
        form += 1
    if form[0] == 0 or form[1] != 0:
        return OTHER
    if form[0] == b"f":
        return FLOAT32
    if form[0] == b"d":
        return FLOAT64
    if form[0] == b"l" or form[0] == b"q" or form[0] == b"i":
        return INT64 if view.itemsize == 8 else INT32
    if form[0] == b"B":
        return UINT8
    return OTHER


@cython.final
@cython.freelist(16)
cdef class Buffer:
    """One checked array: `data` is aligned, C-contiguous and holds `size` numbers.

    `length` is the extent of the first dimension; raw bytes and flat arrays have one dimension.
    """

    def __dealloc__(self):
        PyBuffer_Release(&self.view)
        free(self.copy)

    cdef int expect_rows(self, Py_ssize_t rows, Py_ssize_t width) except -1:
        """Hold `rows` rows of `width` numbers, as (rows, width) or flat as off the wire."""
        if self.size != rows * width or (self.ndim > 1 and self.length != rows):
            raise ValueError(
                f"{self.name} holds {self.size} numbers in {self.length} rows, "
                f"expected {rows} rows of {width}"
            )
        return 0


cdef int _open(Buffer buffer, object source, Kind kind) except -1:
    """Fill `buffer` from `source`; alignment and read-only are the caller's concern."""
    cdef Py_ssize_t itemsize = itemsize_of(kind)
    cdef Kind found
    if not PyObject_CheckBuffer(source):
        raise TypeError(f"{buffer.name} must be an array or a buffer, not {type(source).__name__}")
    PyObject_GetBuffer(source, &buffer.view, PyBUF_RECORDS_RO)
    if buffer.view.ndim < 1:
        raise ValueError(f"{buffer.name} must have at least one dimension")
    if not PyBuffer_IsContiguous(&buffer.view, b"C"):
        raise ValueError(f"{buffer.name} must be C-contiguous")
    found = _kind_of_view(&buffer.view)
    if found == kind:
        buffer.size = buffer.view.len // itemsize
        buffer.length = buffer.view.shape[0]
        buffer.ndim = buffer.view.ndim
    elif found == UINT8 and not hasattr(source, "dtype"):
        if buffer.view.len % itemsize:
            raise ValueError(
                f"{buffer.name} has {buffer.view.len} bytes, not a whole number of {name_of(kind)}"
            )
        buffer.size = buffer.length = buffer.view.len // itemsize
        buffer.ndim = 1
    else:
        raise TypeError(
            f"{buffer.name} must be {name_of(kind)}, not {getattr(source, 'dtype', 'other')}"
        )
    buffer.data = buffer.view.buf
    return 0


cdef Buffer readable(object source, Kind kind, str name):
    """Take `source` as an input of `kind`; an unaligned one is copied."""
    cdef Buffer buffer = Buffer.__new__(Buffer)
    buffer.name = name
    _open(buffer, source, kind)
    if buffer.size and (<uintptr_t>buffer.data) & <uintptr_t>(itemsize_of(kind) - 1):
        buffer.copy = malloc(buffer.view.len)
        if buffer.copy == NULL:
            raise MemoryError(f"no {buffer.view.len} bytes for a copy of {name}")
        memcpy(buffer.copy, buffer.data, buffer.view.len)
        buffer.data = buffer.copy
    return buffer


cdef Buffer writable(object target, Kind kind, str name):
    """Take `target` as an output of `kind`."""
    cdef Buffer buffer = Buffer.__new__(Buffer)
    buffer.name = name
    _open(buffer, target, kind)
    if buffer.view.readonly:
        raise ValueError(f"{name} is read-only, and the result belongs there")
    if buffer.size and (<uintptr_t>buffer.data) & <uintptr_t>(itemsize_of(kind) - 1):
        raise ValueError(f"{name} is not aligned to {itemsize_of(kind)} bytes")
    return buffer
