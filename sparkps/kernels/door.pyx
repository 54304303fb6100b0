"""The door of a kernel: arguments are read and checked here, once; the loops then run unchecked.

Covers: the pointer, length, width and dtype of an array argument; refusing other dtypes, other
numbers of dimensions and arrays that are not C-contiguous; copying a readable array that is not
aligned (a view into a small network frame); allocating results; the range check of an index array.
Does not cover: what the numbers mean, which each kernel checks itself.

Why not typed memoryviews: acquiring one costs 0.3 µs and a fused dispatch several µs, in kernels
that often see 10 keys. A `Buffer` costs 0.15 µs, takes read-only memory, and one `if` on its
`dtype` selects the loop. It goes through the buffer protocol, not numpy's C API, so that building
needs no numpy headers and any exporter (array, memoryview, frame) is welcome.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from libc.stdint cimport INT32_MAX, uintptr_t

import numpy as np

cdef object _np_empty = np.empty
cdef object _INT32 = np.dtype(np.int32)
cdef object _INT64 = np.dtype(np.int64)
cdef object _FLOAT32 = np.dtype(np.float32)
cdef object _FLOAT64 = np.dtype(np.float64)
cdef object _UINT16 = np.dtype(np.uint16)


@cython.final
@cython.freelist(16)
cdef class Buffer:
    """An array argument or result, held until the kernel returns: `data` has `rows` * `width`
    elements of `dtype`; `width` is 1 for one dimension. `owner` is the Python array."""

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef int _dtype(Py_buffer* view) noexcept:
    """The bit of the buffer's dtype, or 0 for one that no kernel takes."""
    cdef const char* code = view.format
    if code == NULL:
        return 0
    if code[0] == b"@" or code[0] == b"=" or code[0] == b"<":
        code += 1
    if code[0] == 0 or code[1] != 0:
        return 0
    if code[0] == b"q" or code[0] == b"l" or code[0] == b"i":
        # C's int, long and long long have other sizes elsewhere; the size decides.
        if view.itemsize == 8:
            return INT64
        return INT32 if view.itemsize == 4 else 0
    if code[0] == b"f":
        return FLOAT32
    if code[0] == b"d":
        return FLOAT64
    return UINT16 if code[0] == b"H" else 0


cdef object _np_dtype(int dtype):
    if dtype == INT64:
        return _INT64
    if dtype == INT32:
        return _INT32
    if dtype == FLOAT32:
        return _FLOAT32
    return _FLOAT64 if dtype == FLOAT64 else _UINT16


cdef str _dtype_names(int dtypes):
    return " or ".join(
        str(_np_dtype(bit)) for bit in (INT32, INT64, FLOAT32, FLOAT64, UINT16) if bit & dtypes
    )


cdef Buffer _acquire(object array, str name, int dtypes, int ndim, int flags):
    cdef Buffer buffer = Buffer.__new__(Buffer)
    cdef int axis
    if not PyObject_CheckBuffer(array):
        raise TypeError(f"{name} must be an array, not {type(array).__name__}")
    try:
        PyObject_GetBuffer(array, &buffer.view, PyBUF_ND | PyBUF_FORMAT | flags)
    except (ValueError, BufferError) as error:
        need = "writable and C-contiguous" if flags else "C-contiguous"
        raise ValueError(f"{name} must be {need}: {error}") from None
    buffer.dtype = _dtype(&buffer.view)
    if not buffer.dtype & dtypes:
        got = getattr(array, "dtype", None) or f"buffer format {buffer.view.format!r}"
        raise TypeError(f"{name} must be {_dtype_names(dtypes)}, not {got}")
    buffer.ndim = buffer.view.ndim
    if not 1 <= buffer.ndim <= 2 or (ndim and buffer.ndim != ndim):
        need = f"{ndim}" if ndim else "1 or 2"
        raise ValueError(f"{name} must have {need} dimensions, not {buffer.ndim}")
    if buffer.ndim == 2 and buffer.view.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column")
    buffer.data = buffer.view.buf
    buffer.rows = buffer.view.shape[0]
    buffer.width = 1 if buffer.ndim == 1 else buffer.view.shape[1]
    buffer.owner = array
    return buffer


cdef inline bint _aligned(Buffer buffer) noexcept:
    return <uintptr_t>buffer.data % <uintptr_t>buffer.view.itemsize == 0


cdef Buffer read(object array, str name, int dtypes, int ndim=1):
    """A readable argument; `ndim` 0 means one or two dimensions. Unaligned memory is copied."""
    cdef Buffer buffer = _acquire(array, name, dtypes, ndim, 0)
    if not _aligned(buffer):
        return _acquire(np.array(array), name, dtypes, ndim, 0)
    return buffer


cdef Buffer read_keys(object keys, str name, int dtypes):
    """A readable argument whose places fit in int32, as orders and inverses have them."""
    cdef Buffer buffer = read(keys, name, dtypes)
    if buffer.rows > INT32_MAX:
        raise ValueError(f"{name} has {buffer.rows} entries; one call takes up to 2^31 - 1")
    return buffer


cdef Buffer written(object array, str name, int dtypes, int ndim=1):
    """An argument that the kernel writes to: never copied, so it must be aligned."""
    cdef Buffer buffer = _acquire(array, name, dtypes, ndim, PyBUF_WRITABLE)
    if not _aligned(buffer):
        raise ValueError(f"{name} must be aligned to its {buffer.view.itemsize}-byte items")
    return buffer


cdef Buffer empty(int dtype, Py_ssize_t rows, Py_ssize_t width=0):
    """A new uninitialised array, (rows,) or with `width` > 0 (rows, width)."""
    cdef object shape = rows
    if width:
        shape = (rows, width)
    return _acquire(_np_empty(shape, _np_dtype(dtype)), "result", NUMBERS | UINT16, 0, 0)


cdef Buffer like(Buffer model, Py_ssize_t rows):
    """A new uninitialised array of the model's dtype and dimensions, with `rows` rows."""
    return empty(model.dtype, rows, 0 if model.ndim == 1 else model.width)


cdef int same_rows(Buffer a, str a_name, Buffer b, str b_name) except -1:
    """Raise ValueError unless both have as many rows."""
    if a.rows != b.rows:
        raise ValueError(f"{a_name} has {a.rows} rows but {b_name} has {b.rows}")
    return 0


ctypedef fused index_t:
    int32_t
    int64_t


cdef Py_ssize_t _first_outside(index_t* indices, Py_ssize_t count, Py_ssize_t n) noexcept nogil:
    """The position of the first index that is not in 0..n-1, or -1. By blocks whose inner loop
    has no exit, because only such a loop becomes SIMD code."""
    cdef Py_ssize_t begin, i, end
    cdef int bad
    cdef index_t top
    if index_t is int32_t:
        # An n beyond the type bounds nothing: 2^31 - 1 is then the largest index that exists.
        top = <int32_t>(min(n, <Py_ssize_t>1 << 31) - 1)
    else:
        top = n - 1
    for begin in range(0, count, 1024):
        end = min(begin + 1024, count)
        bad = 0
        for i in range(begin, end):
            bad |= (indices[i] < 0) | (indices[i] > top)
        if bad:
            for i in range(begin, end):
                if indices[i] < 0 or indices[i] > top:
                    return i
    return -1


cdef Py_ssize_t first_outside(Buffer indices, Py_ssize_t n) noexcept nogil:
    """The flat position of the first of the int32 or int64 `indices` outside 0..n-1, or -1."""
    cdef Py_ssize_t count = indices.rows * indices.width
    if indices.dtype == INT32:
        return _first_outside(<int32_t*>indices.data, count, n)
    return _first_outside(<int64_t*>indices.data, count, n)


cdef int check_indices(Buffer indices, str name, Py_ssize_t n) except -1:
    """Raise ValueError, naming the first bad one, unless all `indices` are in 0..n-1."""
    cdef Py_ssize_t bad
    with nogil:
        bad = first_outside(indices, n)
    if bad >= 0:
        value = indices.owner[bad]
        raise ValueError(f"{name}[{bad}] is {value}, outside 0..{n - 1}")
    return 0
