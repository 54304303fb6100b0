"""Areas of memory that grow; `memory.pyx` says what it covers."""

cdef class Area:
    cdef char* data              # `room` bytes, after `colour` that are left empty
    cdef Py_ssize_t room
    cdef Py_ssize_t colour
    cdef Py_ssize_t nbytes       # allocated
    cdef Py_ssize_t exports

    cdef void _hold(self, void* base, Py_ssize_t size)
    cdef Area grown(self, Py_ssize_t room)
    cdef object view(self, object dtype, Py_ssize_t count)

cdef Area new_area(Py_ssize_t room, int number)
cdef Py_ssize_t area_size(Py_ssize_t room, int number) noexcept nogil
