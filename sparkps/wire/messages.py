"""The headers of all messages, as typed MessagePack arrays; ``PROTOCOL.md`` says what each means.

A message is ``[header][buffer...]``. A header is one of the structs below, encoded as ``[tag,
field, ...]``; fields are only ever added at the end, with a default. Buffers are raw little-endian
arrays, named in each struct's docstring. This module holds no rule and no state: what a message
does is told by the cores that handle it.

Three unions close the protocol: what a server takes on a data connection (:data:`ToServer`), what
it answers (:data:`FromServer`), and what passes between the coordinator and everybody else
(:data:`Control`).
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from sparkps.spec import ServerInfo, SessionSpec, TableInfo, TableSpec, View

#: Version of the protocol. Both sides compare it in the first message and refuse another.
VERSION: Final = 1

#: How the rows of a request are named.
PLAIN, ORDINALS, KEYSET = 0, 1, 2

#: Status of one slice in the reply to a write (SEMANTICS §2).
APPLIED, DUPLICATE, GAP, LATE, NOT_MINE, REFUSED = range(6)

#: Kinds of a keyed write. RESTORE sets whole rows, the optimizer's fields included: it has one
#: buffer per field.
PUSH, ASSIGN, RESTORE = 0, 1, 2

#: Kinds of a function call.
REDUCE, APPLY, CONFIGURE = 0, 1, 2


class Message(msgspec.Struct, array_like=True, gc=False):
    """Base of all headers."""


# --- data connections: client -> server
# -------------------------------------------------------------------------


class Hello(Message, tag=1):
    """First message of a data connection. ``ticket`` admits it where the listener asks for one
    (:mod:`sparkps.wire.auth`).
    """

    version: int
    client: bytes
    server: int
    incarnation: int
    ticket: bytes = b""


class Pull(Message, tag=2):
    """Read rows. Buffers: parts int32 (k, 2) = (partition, count); keys int64 (PLAIN) or ordinals
    int32 (ORDINALS).

    KEYSET sends no buffer: ``first`` and ``count`` are the range of the keyset's rows on this
    server that is read. ``ref`` names the vocabulary or keyset. ``session`` 0 reads outside a run
    and sees the last sealed state.
    """

    id: int
    table: int
    session: int
    rank: int
    token: int
    clock: int
    view: int
    mode: int = PLAIN
    ref: bytes = b""
    first: int = 0
    count: int = 0


class Push(Message, tag=3):
    """Write rows. Buffers: slices int64 (k, 6) = (partition, slice, count, prev clock, prev seq,
    prev slice); keys int64 or ordinals int32 or nothing, by ``mode``; values (n, width) of the
    table's dtype.

    In mode KEYSET the rows of a slice are those from ``slice * rows_per_slice`` of its partition in
    the keyset. Keys are distinct within one push of kind PUSH (the client has summed them).
    """

    id: int
    table: int
    session: int
    rank: int
    token: int
    clock: int
    view: int
    seq: int
    mode: int = PLAIN
    ref: bytes = b""
    kind: int = PUSH


class Function(Message, tag=4):
    """Run a function on partitions. Buffers: slices int64 (k, 6), count 0; then the pickled
    (function, arguments).

    ``name`` names a built-in, whose arguments are ``numbers`` and whose one buffer is absent; an
    empty name says that the buffer is a pickle, which only a trusted listener takes. REDUCE ignores
    the position columns. CONFIGURE has the optimizer's new numbers in ``numbers``.
    """

    id: int
    table: int
    session: int
    rank: int
    token: int
    clock: int
    view: int
    seq: int
    kind: int = REDUCE
    name: str = ""
    numbers: dict[str, Any] = {}


class Register(Message, tag=5):
    """Add keys to a vocabulary. Buffers: parts int32 (k, 2); keys int64. ``start`` is the first
    server-local ordinal of this message (a repeat is recognised by it and acknowledged)."""

    id: int
    table: int
    session: int
    rank: int
    token: int
    view: int
    ref: bytes
    start: int


class MakeKeyset(Message, tag=6):
    """Make (a piece of) a keyset. Buffers: parts int32 (k, 2); ordinals int32 in ``vocabulary``, or
    keys int64 if that is empty. ``start`` is the number of the keyset's rows on this server sent
    before; ``total`` all of them."""

    id: int
    table: int
    session: int
    rank: int
    token: int
    view: int
    ref: bytes
    start: int
    total: int
    vocabulary: bytes = b""


class Scan(Message, tag=7):
    """Read whole partitions as of now. Buffers: partitions int32 (k,). Answered by several
    :class:`Chunk`.

    ``fields`` are field numbers; ``keys_only`` leaves the values out; ``count_only`` answers counts
    alone.
    """

    id: int
    table: int
    view: int
    fields: tuple[int, ...] = (0,)
    count_only: bool = False


class Ping(Message, tag=8):
    """Ask whether the connection lives; answered by an empty :class:`Acked`."""

    id: int


ToServer = Hello | Pull | Push | Function | Register | MakeKeyset | Scan | Ping


# --- data connections: server -> client
# -------------------------------------------------------------------------


class Welcome(Message, tag=32):
    """Answer to :class:`Hello`."""

    version: int
    server: int
    incarnation: int
    max_bytes: int


class Rows(Message, tag=33):
    """Answer to :class:`Pull`. Buffer: values (n, width), in the order of the request."""

    id: int


class Acked(Message, tag=34):
    """Answer to a write or a registration. Buffer: one status uint8 per slice, absent when all are
    APPLIED.

    ``code`` and ``fields`` carry the error of the refused slices, if any.
    """

    id: int
    code: str = ""
    fields: dict[str, Any] = {}


class Results(Message, tag=35):
    """Answer to :class:`Function`: statuses uint8 (k,) (empty buffer for REDUCE and when all are
    APPLIED); then the results.

    ``shapes`` holds per partition (partition, [(dtype, shape), ...]) of the arrays in the buffers
    that follow, for built-ins; it is empty when the one buffer is a pickled list of (partition,
    result).
    """

    id: int
    shapes: list[tuple[int, list[tuple[str, tuple[int, ...]]]]] = []


class Chunk(Message, tag=36):
    """A piece of a scan, partitions in ascending order, rows in row order. Buffers: keys int64
    (n,), one per field.

    ``rows`` = (partition, rows in this chunk) pairs; ``more`` says that another chunk follows.
    """

    id: int
    rows: list[tuple[int, int]]
    more: bool


class Refused(Message, tag=37):
    """A typed error for the whole request; the server lives on. ``id`` is 0 when the header could
    not be read.
    """

    id: int
    code: str
    fields: dict[str, Any]


class UnknownRef(Message, tag=38):
    """The vocabulary or keyset ``ref`` is not here (never was, was over the limit, or its partition
    moved).
    """

    id: int
    ref: bytes


class NotMine(Message, tag=39):
    """Some partition of a read is not served here; ``view`` is the newest that this server knows.
    """

    id: int
    view: int


FromServer = Welcome | Rows | Acked | Results | Chunk | Refused | UnknownRef | NotMine


# --- the coordinator and everybody else
# ------------------------------------------------------------------------- Requests carry an ``id``
# and are answered once by Answer or Denied; the others are one-way.


class Join(Message, tag=64):
    """First message of a driver, a worker or a reader. Answered by :class:`Joined`."""

    version: int
    role: str
    host: str = ""
    pid: int = 0


class ServerUp(Message, tag=65):
    """First message of a server, once it listens."""

    version: int
    server: ServerInfo


class Joined(Message, tag=66):
    """Answer to Join and ServerUp. ``now`` is the coordinator's time, which tickets expire by."""

    version: int
    view: View
    heartbeat: float
    now: float = 0.0


class Beat(Message, tag=67):
    """Heartbeat of any peer; ``load`` are figures for status and the progress line."""

    load: dict[str, float] = {}


class Answer(Message, tag=68):
    """Answer to a request: its ``result`` as the request says."""

    id: int
    result: Any = None


class Denied(Message, tag=69):
    """A request failed."""

    id: int
    code: str
    fields: dict[str, Any]


class CreateTable(Message, tag=70):
    """-> TableInfo. An existing table of equal spec is returned as it is, another spec is
    TableExists.
    """

    id: int
    spec: TableSpec
    replace: bool = False


class FindTable(Message, tag=71):
    """-> TableInfo or TableNotFound."""

    id: int
    name: str


class ListTables(Message, tag=72):
    """-> list of TableInfo."""

    id: int


class DropTable(Message, tag=73):
    """-> None, when every server has dropped it."""

    id: int
    table: int


class OpenSession(Message, tag=74):
    """-> [session id, token of rank ``size`` (or of rank 0, for a driver session)], when every
    server knows it.
    """

    id: int
    spec: SessionSpec


class CloseSession(Message, tag=75):
    """-> the kept error of a worker, if any, as {"rank", "text", "error" (pickled), "fatal"}, else
    None; when every server refuses the session. ``code``/``fields`` say why it ends, for workers
    that still run."""

    id: int
    session: int
    code: str = ""
    fields: dict[str, Any] = {}


class Continue(Message, tag=76):
    """The driver has run ``on_epoch``: go on with ``params``, or stop after this epoch. -> None."""

    id: int
    session: int
    epoch: int
    params: dict[str, Any] | None = None
    stop: bool = False


class SealAll(Message, tag=77):
    """Driver: seal the session's tables below ``clock`` on all servers. -> None."""

    id: int
    session: int
    clock: int


class SaveTable(Message, tag=78):
    """-> list of manifest entries, one per partition: dicts as the snapshot child reports them."""

    id: int
    table: int
    path: str


class GetStatus(Message, tag=79):
    """-> dict: servers, tables, sessions."""

    id: int


class ServerExited(Message, tag=80):
    """The launcher's waitpid has certified the exit of an incarnation. One-way."""

    server: int
    incarnation: int
    status: str
    tail: str = ""


class Shutdown(Message, tag=81):
    """Stop all servers, then the coordinator. -> None."""

    id: int


class GetView(Message, tag=82):
    """-> View, once ``servers`` servers are up (or at once if 0)."""

    id: int
    servers: int = 0


# worker -> coordinator


class Gather(Message, tag=83):
    """Make the first view when ``servers`` servers are up; where there is no table yet, with all
    that are up. -> View, or why they do not come: a failure that is at most ``since`` seconds old
    (by default, however old).
    """

    id: int
    servers: int
    since: float = math.inf


class RegisterRank(Message, tag=96):
    """A task asks for a rank. Answered by :class:`Granted`, at once or when the holder is gone.

    ``task`` is Spark's number of the task, which grows; ``first`` says that Spark has not tried
    this rank before in this attempt of the stage.
    """

    session: int
    rank: int
    host: str
    pid: int
    task: int
    first: bool = False


class Ready(Message, tag=97):
    """A rank has read its rows: how many batches and rows, and the fingerprint of their hashes."""

    session: int
    rank: int
    token: int
    batches: int
    rows: int
    fingerprint: int


class Tick(Message, tag=98):
    """All writes of the clocks below ``clock`` are acknowledged. ``numbers``: one dict per clock
    since the last tick, as (clock, numbers). ``waiting`` says that the worker blocks until it is
    released. ``epoch_end`` (manual clocks) ends the epoch."""

    session: int
    rank: int
    token: int
    clock: int
    numbers: list[tuple[int, dict[str, Any]]] = []
    waiting: bool = False
    epoch_end: bool = False
    state: bytes = b""


class Finish(Message, tag=99):
    """A rank has done all epochs; ``result`` is what a stand-by of this rank will return."""

    session: int
    rank: int
    token: int
    result: bytes = b""


class Failed(Message, tag=100):
    """A worker's own exception: pickled, and in words. ``fatal`` errors end the session; others
    only this attempt.
    """

    session: int
    rank: int
    token: int
    error: bytes
    text: str
    fatal: bool = False


# coordinator -> worker


class Granted(Message, tag=112):
    """The task holds the rank: resume at ``clock`` with ``state``. ``finished``: the rank is done,
    here is its result.
    """

    session: int
    rank: int
    token: int
    attempt: int
    clock: int
    spec: SessionSpec
    state: bytes = b""
    finished: bool = False
    result: bytes = b""
    last: dict[str, Any] = {}


class GangComplete(Message, tag=113):
    """Every rank has come: read the rows."""

    session: int


class Begin(Message, tag=114):
    """Every rank is ready: ``clocks`` per epoch (0: manual), ``rows`` of each rank; train.

    Start in ``epoch`` at ``clock`` (which may be later than what Granted said: with manual clocks
    all ranks go on at the largest clock). It is sent when that clock is open, so nothing need be
    waited for. ``last`` are the sums of the clock before; ``stop`` says that the driver has stopped
    the run: no epoch is left to train.
    """

    session: int
    clocks: int
    rows: tuple[int, ...]
    params: dict[str, Any] = {}
    epoch: int = 0
    clock: int = 0
    last: dict[str, Any] = {}
    stop: bool = False


class Released(Message, tag=115):
    """Go past the barrier at ``clock``: bsp with the sums of the clock before; ends of epochs with
    new params.
    """

    session: int
    clock: int
    sums: dict[str, Any] = {}
    params: dict[str, Any] | None = None
    stop: bool = False


class Slowest(Message, tag=116):
    """The slowest acknowledged clock, published when it moves."""

    session: int
    clock: int


class Ended(Message, tag=117):
    """The session is over; nothing about it follows. An empty ``code`` is a good end (told to the
    driver only).
    """

    session: int
    code: str = ""
    fields: dict[str, Any] = {}
    error: bytes = b""


class TokenGone(Message, tag=118):
    """The sender's token was passed on; it becomes a stand-by."""

    session: int
    rank: int
    token: int


# coordinator -> driver


class EpochEnded(Message, tag=128):
    """All ranks have ended ``epoch``; ``metrics`` are the sums, with ``epoch`` and ``seconds``.
    ``wait`` says that a Continue is expected. In bsp, everything below ``clock`` is sealed on all
    servers."""

    session: int
    epoch: int
    metrics: dict[str, Any]
    wait: bool
    clock: int = 0


class Progress(Message, tag=129):
    """How far a run is, at most a few times a second."""

    session: int
    clock: int
    slowest: int
    slowest_rank: int
    load: dict[str, float] = {}


class Warned(Message, tag=130):
    """Something that the user should see: a stalled worker, a lost attempt."""

    session: int
    text: str


class ServerDown(Message, tag=131):
    """To everyone: a server is lost, with what was in it: the tables that had a partition there,
    and their ids.
    """

    server: int
    status: str
    tail: str
    log: str
    tables: list[str]
    ids: list[int] = []


# coordinator -> server: commands, answered once by Done with the same op


class SetView(Message, tag=144):
    op: int
    view: View


class AddTable(Message, tag=145):
    op: int
    info: TableInfo


class RemoveTable(Message, tag=146):
    op: int
    table: int


class AddSession(Message, tag=147):
    op: int
    spec: SessionSpec


class RemoveSession(Message, tag=148):
    """Refuse the session from now on, then drop its ledgers, staged writes, vocabularies and
    keysets.
    """

    op: int
    session: int


class SetToken(Message, tag=149):
    """Accept only ``token`` for the rank from now on."""

    op: int
    session: int
    rank: int
    token: int


class Seal(Message, tag=150):
    op: int
    session: int
    clock: int


class Snapshot(Message, tag=151):
    """Write every local partition of the table to files under ``path``; Done carries their manifest
    entries.
    """

    op: int
    table: int
    path: str


class Leave(Message, tag=152):
    """Exit."""

    op: int


class Done(Message, tag=153):
    """A command is done, or failed."""

    op: int
    result: Any = None
    code: str = ""
    fields: dict[str, Any] = {}


class NewView(Message, tag=154):
    """To clients: the view has changed."""

    view: View


Control = (
    Join
    | ServerUp
    | Joined
    | Beat
    | Answer
    | Denied
    | CreateTable
    | FindTable
    | ListTables
    | DropTable
    | OpenSession
    | CloseSession
    | Continue
    | SealAll
    | SaveTable
    | GetStatus
    | ServerExited
    | Shutdown
    | GetView
    | Gather
    | RegisterRank
    | Ready
    | Tick
    | Finish
    | Failed
    | Granted
    | GangComplete
    | Begin
    | Released
    | Slowest
    | Ended
    | TokenGone
    | EpochEnded
    | Progress
    | Warned
    | ServerDown
    | SetView
    | AddTable
    | RemoveTable
    | AddSession
    | RemoveSession
    | SetToken
    | Seal
    | Snapshot
    | Leave
    | Done
    | NewView
)
