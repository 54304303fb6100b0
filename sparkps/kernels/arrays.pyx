"""Values of a message: moved into and out of the order of a sort, and searched for NaN.

Covers: take and put along the first axis, and the check for numbers that are not finite. Unlike
numpy's `take`, indexed assignment and `isfinite` they make no temporary array, name the first bad
index, and write nothing when there is one; `put` is also twice as fast.
Does not cover: rows of a table, which are addressed by partition (`rows`), and sums (`keys`).
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from sparkps.kernels.door cimport (
    FLOAT32, FLOAT64, INTEGERS, NUMBERS, Buffer, check_indices, read, same_rows, written,
)

# Only the size of an item matters to a move, so floats travel as words of their size.
ctypedef fused word_t:
    uint32_t
    uint64_t

ctypedef fused index_t:
    int32_t
    int64_t


cdef void _take(
    const word_t* values, const index_t* order, Py_ssize_t n, Py_ssize_t width, word_t* out
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef const word_t* row
    if width == 1:
        for i in range(n):
            out[i] = values[order[i]]
        return
    for i in range(n):
        row = values + order[i] * width
        for j in range(width):
            out[i * width + j] = row[j]


cdef void _put(
    const word_t* values, const index_t* order, Py_ssize_t n, Py_ssize_t width, word_t* out
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef word_t* row
    if width == 1:
        for i in range(n):
            out[order[i]] = values[i]
        return
    for i in range(n):
        row = out + order[i] * width
        for j in range(width):
            row[j] = values[i * width + j]


cdef int _same_kind(Buffer values, Buffer out) except -1:
    if values.dtype != out.dtype:
        raise TypeError(f"out must have the dtype of values, {values.owner.dtype}, not "
                        f"{out.owner.dtype}")
    if values.ndim != out.ndim or values.width != out.width:
        raise ValueError(f"values and out must have rows of one shape, not {values.width} and "
                         f"{out.width} numbers")
    return 0


def take(values, order, out):
    """``out[i] = values[order[i]]``, row by row.

    Parameters
    ----------
    values : array of float32, float64, int64 or int32, shape (m,) or (m, width)
    order : array of int32 or int64, shape (n,)
        In 0..m-1.
    out : ndarray of the dtype of `values`, shape (n,) or (n, width)

    Raises
    ------
    ValueError
        An index out of range, named with its place; nothing has been written then.
    """
    cdef Buffer values_ = read(values, "values", NUMBERS, 0)
    cdef Buffer order_ = read(order, "order", INTEGERS)
    cdef Buffer out_ = written(out, "out", NUMBERS, 0)
    cdef Py_ssize_t n = order_.rows
    cdef Py_ssize_t width = values_.width
    _same_kind(values_, out_)
    same_rows(order_, "order", out_, "out")
    check_indices(order_, "order", values_.rows)
    cdef bint narrow = order_.view.itemsize == 4
    with nogil:
        if values_.view.itemsize == 4:
            if narrow:
                _take(<uint32_t*>values_.data, <int32_t*>order_.data, n, width,
                      <uint32_t*>out_.data)
            else:
                _take(<uint32_t*>values_.data, <int64_t*>order_.data, n, width,
                      <uint32_t*>out_.data)
        elif narrow:
            _take(<uint64_t*>values_.data, <int32_t*>order_.data, n, width, <uint64_t*>out_.data)
        else:
            _take(<uint64_t*>values_.data, <int64_t*>order_.data, n, width, <uint64_t*>out_.data)


def put(values, order, out):
    """``out[order[i]] = values[i]``, row by row and in order: of two equal places the last wins.

    Parameters
    ----------
    values : array of float32, float64, int64 or int32, shape (n,) or (n, width)
    order : array of int32 or int64, shape (n,)
        In 0..m-1.
    out : ndarray of the dtype of `values`, shape (m,) or (m, width)

    Raises
    ------
    ValueError
        An index out of range, named with its place; nothing has been written then.
    """
    cdef Buffer values_ = read(values, "values", NUMBERS, 0)
    cdef Buffer order_ = read(order, "order", INTEGERS)
    cdef Buffer out_ = written(out, "out", NUMBERS, 0)
    cdef Py_ssize_t n = order_.rows
    cdef Py_ssize_t width = values_.width
    _same_kind(values_, out_)
    same_rows(order_, "order", values_, "values")
    check_indices(order_, "order", out_.rows)
    cdef bint narrow = order_.view.itemsize == 4
    with nogil:
        if values_.view.itemsize == 4:
            if narrow:
                _put(<uint32_t*>values_.data, <int32_t*>order_.data, n, width,
                     <uint32_t*>out_.data)
            else:
                _put(<uint32_t*>values_.data, <int64_t*>order_.data, n, width,
                     <uint32_t*>out_.data)
        elif narrow:
            _put(<uint64_t*>values_.data, <int32_t*>order_.data, n, width, <uint64_t*>out_.data)
        else:
            _put(<uint64_t*>values_.data, <int64_t*>order_.data, n, width, <uint64_t*>out_.data)


cdef Py_ssize_t _first_nonfinite(const word_t* words, Py_ssize_t n) noexcept nogil:
    """The first word whose exponent bits are all ones. By blocks whose inner loop has no exit,
    because only such a loop becomes SIMD code."""
    cdef word_t exponent
    cdef Py_ssize_t begin, i, end
    cdef word_t bad
    if word_t is uint32_t:
        exponent = 0x7F800000
    else:
        exponent = <uint64_t>0x7FF0000000000000
    for begin in range(0, n, 1024):
        end = min(begin + 1024, n)
        bad = 0
        for i in range(begin, end):
            bad |= (words[i] & exponent) == exponent
        if bad:
            for i in range(begin, end):
                if (words[i] & exponent) == exponent:
                    return i
    return -1


def any_nonfinite(values):
    """The flat index of the first NaN or infinity, or -1.

    Parameters
    ----------
    values : array of float32, float64, int64 or int32, shape (n,) or (n, width)
        Integers are always finite.

    Returns
    -------
    int
        Row ``index // width``, column ``index % width``; -1 when all are finite.
    """
    cdef Buffer values_ = read(values, "values", NUMBERS, 0)
    cdef Py_ssize_t n = values_.rows * values_.width
    cdef Py_ssize_t bad = -1
    with nogil:
        if values_.dtype == FLOAT32:
            bad = _first_nonfinite(<uint32_t*>values_.data, n)
        elif values_.dtype == FLOAT64:
            bad = _first_nonfinite(<uint64_t*>values_.data, n)
    return bad
