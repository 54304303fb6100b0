"""The ledger of exactly-once: which slices of a rank's writes a partition has accepted.

Covers: what the slices of a message count, deciding about them, and moving "applied" up at a seal.
Does not cover: staging, acknowledging, replicating, saving; nor the order of sessions and tokens.

Every slice has a **position** (clock, seq, slice) and names its **predecessor**, the position that
this attempt of the rank sent before to the same partition. Positions are compared like tuples, and
"none" is before all. One (session, rank) has on one table one ledger, an int64 array [P, 8]; seq
and slice share a number, ``seq << 32 | slice``:

====== ======================================================================================
column what
====== ======================================================================================
0, 1   the last position *accepted*: applied, or staged
2      the log number of the operation that accepted it
3, 4   the last position *applied*
5, 6   the last position accepted of an earlier clock than column 0
7      spare
====== ======================================================================================

For each slice, in the order of the message, the first of these that holds decides:

1. its partition is not open here: **NOT_MINE**;
2. its position is not after the accepted one: **DUPLICATE**, to be acknowledged when column 2 is;
3. its clock was sealed and the ledger does not know it: **LATE**;
4. its predecessor is after the accepted one: **GAP**, something before it is missing; and so are,
   by their predecessors, all later slices for that partition;
5. **ACCEPTED**: the partition's log goes up by one, and the ledger says so.

A rank may write clock c while clocks < c are still unsealed, but is never further ahead. So when
the seal of clock c asks what was accepted before c, the answer is column 0 if that is of an earlier
clock, and else column 5.
"""

import numpy as np

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from sparkps.kernels.buffers cimport Buffer, INT32, INT64, UINT8, readable, writable
from sparkps.kernels.partitions cimport Partition, PartitionArray

cdef enum Status:
    ACCEPTED_, DUPLICATE_, GAP_, LATE_, NOT_MINE_

# The same for Python; these numbers are part of the wire.
ACCEPTED = <int>ACCEPTED_
DUPLICATE = <int>DUPLICATE_
GAP = <int>GAP_
LATE = <int>LATE_
NOT_MINE = <int>NOT_MINE_

# One partition's line of a ledger, and one line of a message's slices: as the arrays hold them.
cdef struct Line:
    int64_t clock
    int64_t place
    int64_t log
    int64_t applied_clock
    int64_t applied_place
    int64_t before_clock
    int64_t before_place
    int64_t spare

cdef struct Slice:
    int64_t partition
    int64_t number
    int64_t count
    int64_t prev_clock
    int64_t prev_seq
    int64_t prev_number

cdef enum:
    LINE_COLUMNS = 8
    SLICE_COLUMNS = 6

cdef int64_t MAX_SEQ = 1 << 31    # so that (seq, slice) packs into a positive int64
cdef int64_t MAX_SLICE = 1 << 32


cdef inline bint _after(
    int64_t clock, int64_t place, int64_t than_clock, int64_t than_place
) noexcept nogil:
    """Whether one position comes after another."""
    return clock > than_clock or (clock == than_clock and place > than_place)


cdef inline int64_t _place(int64_t seq, int64_t number) noexcept nogil:
    """``seq << 32 | slice``, and -1 for none."""
    return -1 if seq < 0 else (seq << 32) | number


cdef inline Status _decide(
    Partition* part, Line* line, const Slice* asked, int64_t clock, int64_t seq,
    const int64_t* sealed, bint staged
) noexcept nogil:
    """The rules above for one slice."""
    cdef int64_t place = _place(seq, asked.number)
    if not part.open:
        return NOT_MINE_
    if not _after(clock, place, line.clock, line.place):
        return DUPLICATE_
    if sealed != NULL and clock < sealed[asked.partition]:
        return LATE_
    if _after(asked.prev_clock, _place(asked.prev_seq, asked.prev_number), line.clock, line.place):
        return GAP_
    if clock > line.clock:
        line.before_clock = line.clock
        line.before_place = line.place
    part.log += 1
    line.clock = clock
    line.place = place
    line.log = part.log
    if not staged:
        line.applied_clock = clock
        line.applied_place = place
    return ACCEPTED_


cdef int _check_slice(PartitionArray pa, const Slice* asked, Py_ssize_t i) except -1:
    """Refuse what no client that keeps to the protocol sends."""
    if not 0 <= asked.partition < pa.partitions:
        raise ValueError(
            f"slices[{i}] names partition {asked.partition}; the table has {pa.partitions}"
        )
    if not 0 <= asked.number < MAX_SLICE:
        raise ValueError(f"slices[{i}] has the number {asked.number}, outside 0..2^32-1")
    if (
        asked.prev_clock < -1
        or not -1 <= asked.prev_seq < MAX_SEQ
        or not -1 <= asked.prev_number < MAX_SLICE
    ):
        raise ValueError(
            f"slices[{i}] has the predecessor "
            f"{(asked.prev_clock, asked.prev_seq, asked.prev_number)}, which is no position"
        )
    return 0


def groups(slices):
    """The groups of a message that its slices make, and its rows.

    Parameters
    ----------
    slices : int64 array of shape (k, 6)
        As for `check`.

    Returns
    -------
    parts : ndarray of int32, shape (k, 2)
        (partition, count) of each slice: what the kernels of a table take.
    total : int
        The sum of the counts.

    Raises
    ------
    ValueError
        For a partition or a count that is negative or does not fit in int32.

    Notes
    -----
    One call, for the column arithmetic of numpy takes four times as long on the 64 slices of a
    usual message, and the checks come on top.
    """
    cdef Buffer wanted = readable(slices, INT64, "slices")
    cdef Py_ssize_t i, k = wanted.size // SLICE_COLUMNS
    cdef object parts = np.empty((k, 2), np.int32)
    cdef Buffer out = writable(parts, INT32, "parts")
    cdef const Slice* asked = <const Slice*>wanted.data
    cdef int32_t* part = <int32_t*>out.data
    cdef int64_t total = 0
    wanted.expect_rows(k, SLICE_COLUMNS)
    for i in range(k):
        if not (0 <= asked[i].partition <= INT32_MAX and 0 <= asked[i].count <= INT32_MAX):
            raise ValueError(
                f"slices[{i}] counts {asked[i].count} rows of partition {asked[i].partition}"
            )
        part[2 * i] = <int32_t>asked[i].partition
        part[2 * i + 1] = <int32_t>asked[i].count
        total += asked[i].count
    return parts, total


def check(PartitionArray pa not None, ledger, slices, int64_t clock, int64_t seq, sealed,
          bint staged, status):
    """Decide about each slice of a message, in order, and enter the accepted ones.

    Parameters
    ----------
    pa : PartitionArray
        Its partitions' log numbers go up.
    ledger : int64 array of shape (P, 8)
        Of the (session, rank) that sent the message; changed in place.
    slices : int64 array of shape (k, 6)
        partition, slice, count, and the predecessor's clock, seq, slice (-1, -1, -1 for none).
    clock, seq : int
        Of the write.
    sealed : int64 array of shape (P,), or None
        The first clock of the session that each partition has not sealed.
    staged : bool
        Whether accepted slices are staged for a seal, and not applied now.
    status : uint8 array of shape (k,)
        Receives ACCEPTED, DUPLICATE, GAP, LATE or NOT_MINE for each slice.

    Returns
    -------
    int
        How many were accepted.

    Raises
    ------
    ValueError
        For numbers that are no position; nothing has changed then.
    """
    cdef Buffer book = writable(ledger, INT64, "ledger")
    cdef Buffer wanted = readable(slices, INT64, "slices")
    cdef Buffer answer = writable(status, UINT8, "status")
    cdef Buffer seals = None
    cdef const int64_t* sealed_at = NULL
    cdef Line* lines = <Line*>book.data
    cdef const Slice* asked = <const Slice*>wanted.data
    cdef uint8_t* answers = <uint8_t*>answer.data
    cdef Py_ssize_t i, k = wanted.size // SLICE_COLUMNS, accepted = 0
    book.expect_rows(pa.partitions, LINE_COLUMNS)
    wanted.expect_rows(k, SLICE_COLUMNS)
    answer.expect_rows(k, 1)
    if clock < 0 or not 0 <= seq < MAX_SEQ:
        raise ValueError(f"clock {clock} and seq {seq} are no position")
    if sealed is not None:
        seals = readable(sealed, INT64, "sealed")
        seals.expect_rows(pa.partitions, 1)
        sealed_at = <const int64_t*>seals.data
    for i in range(k):
        _check_slice(pa, &asked[i], i)
    with nogil:
        for i in range(k):
            answers[i] = _decide(
                &pa.at[asked[i].partition], &lines[asked[i].partition], &asked[i], clock, seq,
                sealed_at, staged,
            )
            accepted += answers[i] == ACCEPTED_
    return accepted


def applied_up_to(ledger, parts, int64_t clock):
    """At the seal of a clock: what was accepted of earlier clocks is applied now.

    Parameters
    ----------
    ledger : int64 array of shape (P, 8)
        Changed in place; applied positions never go back.
    parts : int32 array of shape (k,)
        The partitions that are sealed.
    clock : int
        Staged writes of clocks before it have been applied.

    Raises
    ------
    ValueError
        If a rank was more than one clock ahead, so that the ledger cannot tell; nothing has changed
        for that partition and those after it.
    """
    cdef Buffer book = writable(ledger, INT64, "ledger")
    cdef Buffer part = readable(parts, INT32, "parts")
    cdef const int32_t* p = <const int32_t*>part.data
    cdef Py_ssize_t i, partitions = book.size // LINE_COLUMNS
    cdef int64_t before_clock, before_place
    cdef Line* line
    book.expect_rows(partitions, LINE_COLUMNS)
    for i in range(part.size):
        if not 0 <= p[i] < partitions:
            raise ValueError(f"parts[{i}] is {p[i]}, but the ledger has {partitions} partitions")
        line = <Line*>book.data + p[i]
        before_clock, before_place = line.clock, line.place
        if before_clock >= clock:
            before_clock, before_place = line.before_clock, line.before_place
        if before_clock >= clock:
            raise ValueError(
                f"partition {p[i]} accepted clocks {line.before_clock} and {line.clock} "
                f"before clock {clock} was sealed"
            )
        if _after(before_clock, before_place, line.applied_clock, line.applied_place):
            line.applied_clock = before_clock
            line.applied_place = before_place
