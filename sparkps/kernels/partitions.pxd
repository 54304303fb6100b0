"""The C array of partition descriptors that every kernel of a server works on.

`partitions.pyx` says what it covers. A kernel that takes a `PartitionArray` checks its message with
`groups` and then walks ``at[partition]`` without the GIL. Whoever calls a kernel makes sure
that no other thread grows, opens or closes partitions meanwhile; a server has one such thread.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from sparkps.kernels.buffers cimport Buffer, Kind
from sparkps.kernels.initial cimport Init
from sparkps.kernels.memory cimport Area

cdef enum:
    MAX_FIELDS = 32

# What `find` reads stands first, in one cache line.
cdef struct Partition:
    int64_t* keys             # in row order; NULL in a dense table
    int32_t* index            # see `probing`; never NULL
    uint64_t mask             # slots of the index, less one
    int64_t base              # first key of a dense partition
    int64_t rows              # rows that exist
    bint open                 # whether it is here
    int64_t capacity          # rows that the arrays have room for
    int64_t indexable         # rows that the index takes before it should double
    int64_t log               # number of the last operation
    int64_t generation        # changes when row numbers stop meaning what they meant
    int64_t coming            # scratch of find_or_insert: rows about to be created
    char* fields[MAX_FIELDS]  # one number or one row of numbers per row

cdef struct Field:
    Kind kind
    bint per_row
    Py_ssize_t width     # numbers per row
    Py_ssize_t nbytes    # bytes per row
    double initial       # of every number of a new row; field 0 has `Init` instead

cdef class PartitionArray:
    cdef Partition* at
    cdef Field field_of[MAX_FIELDS]
    cdef Init init
    cdef readonly int64_t partitions
    cdef readonly Py_ssize_t width
    cdef readonly object dtype
    cdef readonly object dim
    cdef readonly int field_count
    cdef public object limit
    cdef bint hashed
    cdef list dtypes
    cdef list areas          # per partition: [field 0, ..., keys, index], or None when not open
    cdef int64_t allocated
    cdef int32_t* scratch    # of sum_rows: zero between calls
    cdef int64_t scratch_rows

    cdef void _empty(self, int64_t p)
    cdef int64_t _dense_rows(self, int64_t p) except -1
    cdef int64_t _capacity(self, int64_t p, int64_t rows)
    cdef Py_ssize_t _row_bytes(self, Py_ssize_t i)
    cdef int _resize(self, int64_t p, Py_ssize_t i, Py_ssize_t nbytes) except -1
    cdef void _adopt(self, int64_t p, Py_ssize_t i, Area area, Py_ssize_t before)
    cdef void _release(self, int64_t p)
    cdef int _fill(
        self, PartitionArray fresh, int64_t p, Buffer key, list sources, int64_t rows) except -1
    cdef void _take_over(self, PartitionArray fresh, int64_t p)

    cdef int check_known(self, int64_t p) except -1
    cdef int check_partition(self, int64_t p) except -1
    cdef int64_t growth(self, int64_t p, int64_t rows) except -1
    cdef int grow(self, int64_t p, int64_t rows, bint double_index=*) except -1
    cdef int admit(self, int64_t nbytes) except -1
    cdef void initialise(self, Partition* part, int64_t first, int64_t last) noexcept nogil
    cdef Field* field_at(self, Py_ssize_t field) except NULL
    cdef int32_t* scratch_for(self, int64_t rows) except NULL
