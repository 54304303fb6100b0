"""What a row holds before anything was written to it.

Covers: the three kinds of initial value, as pure functions of (seed, key, column). Does not cover:
the other fields of a table, which begin at a constant each.

A row that does not exist yet reads as the row that its first write would create, whoever asks and
in whatever order, so no generator with a state will do. Each key has a SplitMix64 stream of its own
(Steele, Lea and Flood 2014), begun at ``splitmix64(splitmix64(seed) ^ key)``; its word ``i`` is
``splitmix64(begin + i * gamma)``. Column c takes words 2c and 2c + 1, for every dtype and width.

* uniform: ``a + (b - a) * u`` with u in [0, 1) of 53 bits;
* normal: Box and Muller (1958), ``a + b * sqrt(-2 ln u) * cos(2 pi v)``, in float64 and with libm
  only, then rounded to the table's dtype. The bits are those of one libm on one CPU family.
"""

import numpy as np

from libc.stdint cimport int64_t, uint64_t

from sparkps.kernels.buffers cimport (
    Buffer, INT64, Kind, itemsize_of, kind_of, readable, shape_of, writable,
)
from sparkps.kernels.hashing cimport splitmix64


cdef Init make_init(object init, object seed, Kind kind) except *:
    """Read ``(kind, a, b)`` of a table of dtype `kind`."""
    cdef Init made
    name, a, b = init
    if name == "constant":
        made.kind = CONSTANT
    elif name == "normal":
        made.kind = NORMAL
    elif name == "uniform":
        made.kind = UNIFORM
    else:
        raise ValueError(f"init is constant, normal or uniform, not {name!r}")
    if kind == INT64 and (made.kind != CONSTANT or a != int(a)):
        raise ValueError(f"an int64 table begins at a whole number, not at {init!r}")
    made.a = a
    made.b = b
    made.whole = int(a) if kind == INT64 else 0
    made.stream = splitmix64(<uint64_t>(int(seed) & 0xFFFF_FFFF_FFFF_FFFF))
    return made


def init_values(init, seed, keys, Py_ssize_t width, dtype):
    """What the rows of `keys` hold before anything was written to them.

    Parameters
    ----------
    init : tuple of (str, float, float)
        ``("constant", c, 0)``, ``("normal", mean, std)`` or ``("uniform", low, high)``.
    seed : int
        The table's seed; any 64 bits.
    keys : int64 array of shape (n,)
    width : int
        Numbers per row.
    dtype : float32, float64 or int64
        int64 takes a whole constant only.

    Returns
    -------
    ndarray of shape (n,) when width is 1, else (n, width)
        A pure function of (seed, key, column); the head of this file has the formulas.

    Examples
    --------
    >>> import numpy as np
    >>> init_values(("constant", 0.5, 0), 0, np.array([7, -7]), 1, "float32")
    array([0.5, 0.5], dtype=float32)
    """
    cdef Kind kind = kind_of(np.dtype(dtype))
    cdef Init made = make_init(init, seed, kind)
    cdef Buffer key = readable(keys, INT64, "keys")
    if width < 1:
        raise ValueError(f"width must be positive, not {width}")
    values = np.empty(shape_of(key.size, width), dtype)
    cdef Buffer out = writable(values, kind, "values")
    cdef Py_ssize_t i, step = width * itemsize_of(kind)
    with nogil:
        for i in range(key.size):
            initial_row(
                &made, kind, (<const int64_t*>key.data)[i], width, <char*>out.data + i * step
            )
    return values
