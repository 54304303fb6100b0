"""The memory of one table on one server: its partitions, their rows, and how both grow.

Covers: opening, closing, loading and growing partitions; numpy views of their keys and fields;
initial values; what a partition's numbers (log, generation) are. Does not cover: finding keys
(`index`), moving numbers (`rows`), optimizers (`updates`), exactly-once (`ledger`), and when what
grows by how much (`growth.pxd`).

A table of P partitions is one C array of P descriptors, open here or not. The rows of a partition
are numbered from 0 in the order of their creation, are never removed, and each field is one array
in row order. So memory past the last row is zero for ever, and a row that begins at zero costs
nothing to create.

* A **dense** partition p owns the keys ``p*dim//P .. (p+1)*dim//P - 1``. All its rows exist, and
  the row of a key is ``key - base``: no keys, no index.
* A **hashed** partition keeps its keys in row order, and an index (`probing`) of row numbers.

**Generation.** A row number that was looked up stays right until the generation of its partition
changes, which happens when it is closed or loaded.
"""

import numpy as np

from sparkps.errors import MemoryLimit
from sparkps.kernels.initial import init_values  # noqa: F401  (part of the public face)

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from sparkps.kernels.buffers cimport (
    Buffer, FLOAT32, INT64, itemsize_of, kind_of, readable, shape_of,
)
from sparkps.kernels.growth cimport capacity_for, indexable, slots_for
from sparkps.kernels.hashing cimport hashed_partition, partition_begin, splitmix64
from sparkps.kernels.initial cimport CONSTANT, initial_row, make_init
from sparkps.kernels.memory cimport Area, area_size, new_area
from sparkps.kernels.probing cimport EMPTY, MAX_SLOTS, fill_index, place, settle, tag_of, walk

# The index of a partition without rows: one empty slot, so that `find` needs no special case.
cdef int32_t NO_INDEX = EMPTY

# The index's number among the arrays of a partition, for `memory`: apart from those of the keys and
# fields of all but the widest tables.
cdef int INDEX = 9


@cython.final
cdef class PartitionArray:
    """The partitions of one table that are on this server.

    Parameters
    ----------
    partitions : int
        How many the whole table has (P).
    width : int
        Numbers per row.
    dtype : float32, float64 or int64
        Of the values.
    fields : list of (dtype, per_row, initial)
        Field 0 is the value, ``(dtype, False, 0)``; others are the optimizer's. A `per_row` field
        has one number per row, others `width`; `initial` is what each number of a new row is.
    dim : int, optional
        Size of a dense key space; hashed, any int64, when None.
    init : tuple of (str, float, float)
        What field 0 of a new row is; see `init_values`.
    seed : int
        Of a random `init`.
    limit : int, optional
        Bytes that this table may take; may be changed at any time.

    Raises
    ------
    MemoryLimit
        From whatever would grow past `limit`, before anything has changed.

    Examples
    --------
    >>> table = PartitionArray(4, 1, "float32", [("float32", False, 0.0)], dim=10)
    >>> table.open(1)
    >>> table.keys(1), table.field(1, 0)
    (array([2, 3, 4]), array([0., 0., 0.], dtype=float32))
    """

    def __cinit__(self, int64_t partitions, Py_ssize_t width, dtype, fields, *, dim=None,
                  init=("constant", 0.0, 0.0), seed=0, limit=None):
        cdef Py_ssize_t i
        if not 1 <= partitions < 1 << 31:
            raise ValueError(f"partitions must be positive and fit in int32, not {partitions}")
        if width < 1:
            raise ValueError(f"width must be positive, not {width}")
        if dim is not None and not partitions <= dim < 1 << 62:
            raise ValueError(f"dim must be at least {partitions}, the partitions, not {dim}")
        if not 1 <= len(fields) <= MAX_FIELDS:
            raise ValueError(f"a table has 1 to {MAX_FIELDS} fields, not {len(fields)}")
        self.partitions = partitions
        self.width = width
        self.dtype = np.dtype(dtype)
        self.dim = dim
        self.hashed = dim is None
        self.limit = limit
        self.dtypes = [np.dtype(field[0]) for field in fields]
        self.field_count = len(fields)
        if self.dtypes[0] != self.dtype or fields[0][1]:
            raise ValueError(f"field 0 must be the value: ({self.dtype}, False, 0.0)")
        for i in range(self.field_count):
            self.field_of[i].kind = kind_of(self.dtypes[i])
            self.field_of[i].per_row = fields[i][1]
            self.field_of[i].width = 1 if fields[i][1] else width
            self.field_of[i].nbytes = self.field_of[i].width * itemsize_of(self.field_of[i].kind)
            self.field_of[i].initial = fields[i][2]
        self.init = make_init(init, seed, self.field_of[0].kind)
        self.areas = [None] * partitions
        self.at = <Partition*>calloc(partitions, sizeof(Partition))
        if self.at == NULL:
            raise MemoryError(f"no memory for {partitions} partitions")
        for i in range(partitions):
            self._empty(i)

    def __dealloc__(self):
        free(self.at)
        free(self.scratch)

    cdef int check_known(self, int64_t p) except -1:
        if not 0 <= p < self.partitions:
            raise ValueError(f"partition {p} does not exist; the table has {self.partitions}")
        return 0

    cdef int check_partition(self, int64_t p) except -1:
        self.check_known(p)
        if not self.at[p].open:
            raise ValueError(f"partition {p} is not open on this server")
        return 0

    cdef Field* field_at(self, Py_ssize_t field) except NULL:
        if not 0 <= field < self.field_count:
            raise ValueError(f"field {field} does not exist; the table has {self.field_count}")
        return &self.field_of[field]

    cdef void _empty(self, int64_t p):
        """A descriptor without memory; the log and the generation are the caller's concern."""
        cdef Partition* part = &self.at[p]
        cdef int i
        part.keys = NULL
        part.index = &NO_INDEX
        part.mask = 0
        part.base = 0 if self.hashed else partition_begin(p, self.partitions, self.dim)
        part.rows = part.capacity = part.indexable = part.coming = 0
        for i in range(MAX_FIELDS):
            part.fields[i] = NULL

    cdef int64_t _dense_rows(self, int64_t p) except -1:
        cdef int64_t rows = (
            partition_begin(p + 1, self.partitions, self.dim)
            - partition_begin(p, self.partitions, self.dim)
        )
        if rows >= 1 << 31:
            raise ValueError(f"partition {p} needs {rows} rows; give the table more partitions")
        return rows

    cdef int64_t growth(self, int64_t p, int64_t rows) except -1:
        """Bytes that `grow` adds at its worst moment, when the old index and the new both exist."""
        cdef Partition* part = &self.at[p]
        cdef list areas = self.areas[p]
        cdef Area area
        cdef int64_t added = 0, capacity = self._capacity(p, rows)
        cdef Py_ssize_t i, size
        if rows > part.capacity:
            for i in range(self.field_count + self.hashed):
                size = area_size(capacity * self._row_bytes(i), i)
                area = areas[i]
                added += size if area is None or area.exports else max(0, size - area.nbytes)
        if self.hashed and rows > part.indexable:
            added += area_size(slots_for(p, rows) * <int64_t>sizeof(int32_t), INDEX)
        return added

    cdef int grow(self, int64_t p, int64_t rows, bint double_index=True) except -1:
        """Make room for `rows` in all, or leave the index as it is for now.

        A failure in the middle leaves the partition sound.
        """
        cdef Partition* part = &self.at[p]
        cdef int64_t capacity = self._capacity(p, rows)
        cdef int64_t slots
        cdef Area index, old
        cdef Py_ssize_t i
        if rows > part.capacity:
            for i in range(self.field_count + self.hashed):
                self._resize(p, i, capacity * self._row_bytes(i))
            part.capacity = capacity
        if self.hashed and double_index and rows > part.indexable:
            slots = slots_for(p, rows)
            if slots > MAX_SLOTS:
                raise ValueError(
                    f"partition {p} cannot index {rows} rows; give the table more partitions"
                )
            index = new_area(slots * sizeof(int32_t), INDEX)
            with nogil:
                memset(index.data, 0xFF, slots * sizeof(int32_t))
                fill_index(<int32_t*>index.data, slots - 1, part.keys, part.rows)
            old = self.areas[p][self.field_count + 1]
            self._adopt(p, self.field_count + 1, index, 0 if old is None else old.nbytes)
            part.mask = slots - 1
            part.indexable = indexable(p, slots)
        return 0

    cdef int64_t _capacity(self, int64_t p, int64_t rows):
        """Rows that partition `p` makes room for when it needs `rows`."""
        return capacity_for(p, rows) if self.hashed else rows

    cdef Py_ssize_t _row_bytes(self, Py_ssize_t i):
        return self.field_of[i].nbytes if i < self.field_count else <Py_ssize_t>sizeof(int64_t)

    cdef int _resize(self, int64_t p, Py_ssize_t i, Py_ssize_t nbytes) except -1:
        """Make area `i` of partition `p` hold `nbytes`."""
        cdef Area area = self.areas[p][i]
        cdef Py_ssize_t before = 0 if area is None else area.nbytes
        self._adopt(p, i, new_area(nbytes, i) if area is None else area.grown(nbytes), before)
        return 0

    cdef void _adopt(self, int64_t p, Py_ssize_t i, Area area, Py_ssize_t before):
        """Put `area` in the place of area `i`, which had `before` bytes."""
        self.allocated += area.nbytes - before
        self.areas[p][i] = area
        if i < self.field_count:
            self.at[p].fields[i] = area.data
        elif i == self.field_count:
            self.at[p].keys = <int64_t*>area.data
        else:
            self.at[p].index = <int32_t*>area.data

    cdef int admit(self, int64_t nbytes) except -1:
        if self.limit is not None and self.allocated + nbytes > self.limit:
            raise MemoryLimit(needed=nbytes, used=self.allocated, limit=self.limit)
        return 0

    cdef int32_t* scratch_for(self, int64_t rows) except NULL:
        """Zeroed int32 per row of the largest partition; whoever uses it leaves it zeroed."""
        if rows > self.scratch_rows or self.scratch == NULL:
            free(self.scratch)
            self.scratch_rows = rows + rows // 8
            self.scratch = <int32_t*>calloc(self.scratch_rows, sizeof(int32_t))
            if self.scratch == NULL:
                self.scratch_rows = 0
                raise MemoryError(f"no scratch memory for {rows} rows")
        return self.scratch

    cdef void initialise(self, Partition* part, int64_t first, int64_t last) noexcept nogil:
        """Give the new rows first..last-1 their initial numbers; memory there is still zero."""
        cdef Field* field = &self.field_of[0]
        cdef int64_t row, key, at
        cdef int i
        if self.init.kind != CONSTANT or self.init.a != 0.0:
            for row in range(first, last):
                key = part.keys[row] if self.hashed else part.base + row
                initial_row(
                    &self.init, field.kind, key, field.width, part.fields[0] + row * field.nbytes
                )
        for i in range(1, self.field_count):
            field = &self.field_of[i]
            if field.initial == 0.0:
                continue
            for at in range(first * field.width, last * field.width):
                if field.kind == INT64:
                    (<int64_t*>part.fields[i])[at] = <int64_t>field.initial
                elif field.kind == FLOAT32:
                    (<float*>part.fields[i])[at] = <float>field.initial
                else:
                    (<double*>part.fields[i])[at] = field.initial

    def open(self, int64_t p):
        """Make partition `p` local: empty when hashed, with all its rows initial when dense.

        Does nothing if it is open already.
        """
        cdef int64_t rows
        self.check_known(p)
        if self.at[p].open:
            return
        self.areas[p] = [None] * (self.field_count + 2)
        try:
            if not self.hashed:
                rows = self._dense_rows(p)
                self.admit(self.growth(p, rows))
                self.grow(p, rows)
                self.at[p].rows = rows
                with nogil:
                    self.initialise(&self.at[p], 0, rows)
            self.at[p].open = True
        finally:
            if not self.at[p].open:
                self._release(p)

    def close(self, int64_t p):
        """Free partition `p` and end its generation; nothing if it is not open."""
        self.check_known(p)
        if self.at[p].open:
            self.at[p].open = False
            self.at[p].log = 0
            self.at[p].generation += 1
            self._release(p)

    cdef void _release(self, int64_t p):
        cdef Area area
        for area in self.areas[p]:
            if area is not None:
                self.allocated -= area.nbytes
        self.areas[p] = None
        self._empty(p)

    def load(self, int64_t p, keys, fields):
        """Replace what partition `p` holds, rows in the given order; opens it if need be.

        Parameters
        ----------
        p : int
        keys : int64 array of shape (n,), or None
            Distinct, and of this partition. Dense: all its keys in order, or None.
        fields : list of arrays
            One per field, of its dtype, with n rows.

        Raises
        ------
        ValueError, TypeError
            If anything does not fit; the partition is then as it was, or not open.
        """
        cdef Buffer key = None
        cdef list sources = []
        cdef int64_t rows
        cdef Py_ssize_t i
        cdef bint was_open
        self.check_known(p)
        if len(fields) != self.field_count:
            raise ValueError(f"{len(fields)} fields for a table that has {self.field_count}")
        rows = 0 if self.hashed else self._dense_rows(p)
        if keys is not None:
            key = readable(keys, INT64, "keys")
            if self.hashed:
                rows = key.size
            key.expect_rows(rows, 1)
        elif self.hashed:
            raise ValueError("a hashed partition is loaded with its keys")
        for i in range(self.field_count):
            sources.append(readable(fields[i], self.field_of[i].kind, f"field {i}"))
            (<Buffer>sources[i]).expect_rows(rows, self.field_of[i].width)
        fresh = PartitionArray(
            self.partitions, self.width, self.dtype,
            [(self.dtypes[i], bool(self.field_of[i].per_row), self.field_of[i].initial)
             for i in range(self.field_count)],
            dim=self.dim,
            limit=None if self.limit is None else max(0, self.limit - self.allocated),
        )
        self._fill(fresh, p, key, sources, rows)
        was_open = self.at[p].open
        self._take_over(fresh, p)
        if was_open:
            self.at[p].generation += 1

    cdef int _fill(
        self, PartitionArray fresh, int64_t p, Buffer key, list sources, int64_t rows
    ) except -1:
        """Build the partition beside this table, so that a bad one changes nothing."""
        cdef Partition* part = &fresh.at[p]
        cdef Py_ssize_t i, bad = -1
        fresh.open(p)
        if self.hashed:
            fresh.admit(fresh.growth(p, rows))
            fresh.grow(p, rows)
            bad = _enter(part, <const int64_t*>key.data, rows, p, self.partitions)
        elif key is not None:
            for i in range(rows):
                if (<const int64_t*>key.data)[i] != part.base + i:
                    bad = i
                    break
        if bad >= 0:
            raise ValueError(
                f"keys[{bad}] is {(<const int64_t*>key.data)[bad]}, which is there twice "
                f"or does not belong to partition {p}"
            )
        part.rows = rows
        for i in range(self.field_count):
            if rows:
                memcpy(part.fields[i], (<Buffer>sources[i]).data, rows * self.field_of[i].nbytes)
        return 0

    cdef void _take_over(self, PartitionArray fresh, int64_t p):
        """Move partition `p` of `fresh` here; its log and generation stay ours."""
        cdef int64_t log = self.at[p].log, generation = self.at[p].generation
        if self.at[p].open:
            self._release(p)
        self.at[p] = fresh.at[p]
        self.at[p].log = log
        self.at[p].generation = generation
        self.areas[p] = fresh.areas[p]
        self.allocated += fresh.allocated
        fresh.areas[p] = None

    def is_open(self, int64_t p):
        """Whether partition `p` is local."""
        return 0 <= p < self.partitions and bool(self.at[p].open)

    def open_partitions(self):
        """The local partitions, in order, as an int32 array."""
        return np.array([p for p in range(self.partitions) if self.at[p].open], np.int32)

    def rows(self, int64_t p):
        """How many rows partition `p` has."""
        self.check_partition(p)
        return self.at[p].rows

    def row_count(self, int64_t p):
        """The same as `rows`: what a keyset stamps its misses with."""
        return self.rows(p)

    def count(self):
        """How many rows all local partitions have."""
        cdef int64_t p, total = 0
        for p in range(self.partitions):
            total += self.at[p].rows
        return total

    def keys(self, int64_t p):
        """The keys of partition `p` in row order: int64, a read-only view (dense: made anew)."""
        cdef Partition* part
        self.check_partition(p)
        part = &self.at[p]
        if not self.hashed:
            return np.arange(part.base, part.base + part.rows, dtype=np.int64)
        if part.rows == 0:
            return np.empty(0, np.int64)
        view = (<Area>self.areas[p][self.field_count]).view(np.int64, part.rows)
        view.flags.writeable = False
        return view

    def field(self, int64_t p, Py_ssize_t i):
        """Field `i` of partition `p` as a writable view, (rows,) or (rows, width).

        The view shows the table while the partition does not grow. If it grows or closes, the view
        keeps the memory that it shows, which is then a copy of the past: do not keep views.
        """
        cdef Field* field = self.field_at(i)
        cdef Partition* part
        self.check_partition(p)
        part = &self.at[p]
        shape = shape_of(part.rows, field.width)
        if part.rows == 0:
            return np.empty(shape, self.dtypes[i])
        return (<Area>self.areas[p][i]).view(self.dtypes[i], part.rows * field.width).reshape(shape)

    def log(self, int64_t p):
        """The number of the last operation on partition `p`; 0 before the first."""
        self.check_partition(p)
        return self.at[p].log

    def set_log(self, int64_t p, int64_t log):
        """Set the number of the last operation, as an image or a forwarded operation says."""
        self.check_partition(p)
        self.at[p].log = log

    def logs(self):
        """The log numbers of all P partitions, int64; 0 where not open."""
        return np.array([self.at[p].log for p in range(self.partitions)], np.int64)

    def generation(self, int64_t p):
        """How often the row numbers of partition `p` have lost their meaning."""
        self.check_known(p)
        return self.at[p].generation

    @property
    def nbytes(self):
        """Bytes allocated for keys, indices, fields and scratch; old areas in views not counted."""
        return (
            self.allocated
            + self.partitions * <int64_t>sizeof(Partition)
            + self.scratch_rows * <int64_t>sizeof(int32_t)
        )

    def growth_bytes(self, int64_t p, int64_t extra_rows):
        """Bytes that `extra_rows` more rows in partition `p` may add in the worst case."""
        self.check_partition(p)
        return self.growth(p, self.at[p].rows + extra_rows)

    def reserve(self, int64_t p, int64_t rows):
        """Make room for `rows` rows in all; they are not created. Dense partitions have theirs."""
        self.check_partition(p)
        if self.hashed:
            self.admit(self.growth(p, rows))
            self.grow(p, rows)


cdef Py_ssize_t _enter(
    Partition* part, const int64_t* keys, int64_t rows, int64_t p, int64_t partitions
) noexcept nogil:
    """Enter `keys` as rows 0..rows-1; return the first that is there twice or foreign, or -1."""
    cdef uint64_t hash, slot
    cdef uint32_t tag
    cdef int64_t row
    for row in range(rows):
        if hashed_partition(keys[row], partitions) != p:
            return row
        hash = splitmix64(<uint64_t>keys[row])
        tag = tag_of(hash, part.mask)
        slot = walk(part.index, part.mask, tag, hash & part.mask)
        slot = settle(part.index, part.mask, part.keys, keys[row], tag, slot)
        if part.index[slot] >= 0:
            return row
        part.keys[row] = keys[row]
        place(part.index, part.mask, tag, slot, row)
    return -1
