"""A leash that needs no interpreter: it ends a process that a user's function keeps from hearing
that its parent is gone.

A server's own leash is a Python thread, which waits for the interpreter as long as a function holds
it (a regular expression that goes astray, a foreign call). This one never takes it.
"""

from libc.errno cimport EINTR, errno
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport _exit, rmdir, unlink

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)


def hold(int fd, int milliseconds, bytes socket, bytes directory):
    """Wait for the end of a pipe; then give the process some time, remove a socket and the directory
    it is in (if nothing else is), and end the process with status 1. For a daemon thread.

    Parameters
    ----------
    fd
        The reading end. It is not read, so that others may.
    milliseconds
        What the process has to leave by itself.
    """
    cdef pollfd pipe
    cdef const char *name = socket
    cdef const char *parent = directory
    cdef int heard
    cdef long long end, left
    pipe.fd, pipe.events, pipe.revents = fd, 0, 0  # its end is told whatever is asked for
    with nogil:
        while True:
            heard = poll(&pipe, 1, -1)
            if heard > 0 or (heard < 0 and errno != EINTR):
                break
        end = now() + milliseconds
        left = milliseconds
        while left > 0:
            poll(NULL, 0, <int>left)  # a signal may end it early
            left = end - now()
        unlink(name)
        rmdir(parent)
        _exit(1)


cdef long long now() noexcept nogil:
    """Milliseconds of a clock that only goes on."""
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <long long>time.tv_sec * 1000 + time.tv_nsec // 1000000
