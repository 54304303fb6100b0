"""The checks of a message that is grouped by partition; `groups.pyx` says what it covers."""

from sparkps.kernels.buffers cimport Buffer
from sparkps.kernels.partitions cimport PartitionArray

cdef Py_ssize_t check_groups(PartitionArray pa, Buffer parts, Py_ssize_t total) except -1
cdef int check_rows(
    PartitionArray pa, Buffer parts, Buffer rows, bint absent_allowed) except -1
