"""Frozen words that every floor shares: what a table is, where its partitions are, what a run is.

Nothing here does anything but describe itself and check itself; all of it crosses the wire as
MessagePack.
"""

from __future__ import annotations

import difflib
import zlib
from typing import Any, Final, Literal, NamedTuple

import msgspec

from sparkps.errors import InvalidArgument, WrongType

DTYPES: Final = ("float32", "float64", "int64")
#: Partitions move in groups, so that a primary has few backup servers (SEMANTICS §7); a power of
#: two, fixed for ever.
GROUPS: Final = 64
DEFAULT_PARTITIONS: Final = 64
MAX_PARTITIONS: Final = 4096
MAX_WIDTH: Final = 65_536
#: Rows of a partition: their numbers are int32.
MAX_ROWS: Final = 2**31 - 1
#: The largest number of float32.
FLOAT32_MAX: Final = (2 - 2**-23) * 2.0**127
#: Bytes of a table's name.
MAX_NAME: Final = 255
#: Rows of one slice: ``max(1, SLICE_NUMBERS // width)``; part of the protocol, never of a setting.
SLICE_NUMBERS: Final = 16_384
NO_SESSION: Final = 0

DType = Literal["float32", "float64", "int64"]


class InitSpec(msgspec.Struct, frozen=True, array_like=True):
    """What an absent row looks like: a pure function of (seed, key, column).

    ``kind`` is ``constant`` (value a), ``normal`` (mean a, standard deviation b) or ``uniform``
    (from a to b).
    """

    kind: Literal["constant", "normal", "uniform"] = "constant"
    a: float = 0.0
    b: float = 0.0


class OptimizerSpec(msgspec.Struct, frozen=True, array_like=True):
    """An optimizer as it travels: its name, its numbers in order, and a user's own class by
    cloudpickle.
    """

    name: str
    numbers: tuple[tuple[str, float], ...] = ()
    source: bytes | None = None


class TableSpec(msgspec.Struct, frozen=True, array_like=True):
    """What ``ps.table(...)`` was asked for."""

    name: str
    width: int = 1
    dim: int | None = None
    dtype: DType = "float32"
    optimizer: OptimizerSpec | None = None
    init: InitSpec = InitSpec()
    seed: int = 0
    partitions: int = DEFAULT_PARTITIONS
    allow_nonfinite: bool = False

    def check(self) -> TableSpec:
        """Return ``self``, or raise :class:`~sparkps.errors.InvalidArgument` that names the bad
        argument.
        """
        check_name(self.name)
        for name, value, good, reason in (
            ("width", self.width, 1 <= self.width <= MAX_WIDTH, f"must be 1 to {MAX_WIDTH}"),
            (
                "dim",
                self.dim,
                self.dim is None or 1 <= self.dim < 2**62,
                "must be positive, or None for any int64 key",
            ),
            ("dtype", self.dtype, self.dtype in DTYPES, f"must be one of {', '.join(DTYPES)}"),
            (
                "partitions",
                self.partitions,
                1 <= self.partitions <= MAX_PARTITIONS,
                f"must be 1 to {MAX_PARTITIONS}",
            ),
            (
                "partitions",
                self.partitions,
                self.dim is None or self.partitions <= self.dim,
                f"must not exceed dim={self.dim}",
            ),
            (
                "dim",
                self.dim,
                self.dim is None or self.dim <= self.partitions * MAX_ROWS,
                f"{self.partitions} partitions have at most {MAX_ROWS} keys each; "
                "give the table more partitions",
            ),
            (
                "optimizer",
                self.optimizer and self.optimizer.name,
                not (self.optimizer and self.dtype == "int64"),
                "int64 tables count and take no optimizer",
            ),
            (
                "init",
                self.init,
                self.dtype != "float32" or max(abs(self.init.a), abs(self.init.b)) <= FLOAT32_MAX,
                "must fit in float32; use dtype='float64' for larger numbers",
            ),
            ("seed", self.seed, -(2**63) <= self.seed < 2**63, "must fit in 64 bits"),
            (
                "init",
                self.init,
                self.dtype != "int64"
                or (
                    self.init.kind == "constant"
                    and float(self.init.a).is_integer()
                    and abs(self.init.a) < 2**63
                ),
                "int64 tables start from a whole number that fits in 64 bits",
            ),
        ):
            if not good:
                raise InvalidArgument(name=name, value=value, reason=reason)
        return self

    def difference(self, other: TableSpec) -> str:
        """Name what differs from another spec, as ``width 1 != 8``."""
        return ", ".join(
            f"{field} {_shown(getattr(self, field))} != {_shown(getattr(other, field))}"
            for field in self.__struct_fields__
            if getattr(self, field) != getattr(other, field)
        )


def _shown(value: Any) -> str:
    """A value of a spec in a few words: an optimizer without the pickle of its class."""
    if not isinstance(value, OptimizerSpec):
        return repr(value)
    numbers = ", ".join(f"{name}={number:g}" for name, number in value.numbers)
    source = "" if value.source is None else f" (pickle {zlib.crc32(value.source):08x})"
    return f"{value.name}({numbers}){source}"


def check_name(name: Any) -> str:
    """Return a table's name.

    Raises
    ------
    WrongType
        It is no string.
    InvalidArgument
        It is empty, too long, or has characters that cannot be shown.
    """
    if not isinstance(name, str):
        raise WrongType(what="a table's name", got=type(name).__name__, expected="a string")
    # Half a surrogate pair is not printable and has no bytes, so that is asked first.
    if not name.isprintable() or not 0 < len(name.encode()) <= MAX_NAME:
        raise InvalidArgument(
            name="name",
            value=name if len(name) <= MAX_NAME else f"{name[:20]}...",
            reason=f"a table's name has 1 to {MAX_NAME} bytes of printable characters",
        )
    return name


class TableInfo(msgspec.Struct, frozen=True, array_like=True):
    """A table of the catalogue: its id, never reused, and its spec."""

    id: int
    spec: TableSpec


class ServerInfo(msgspec.Struct, frozen=True, array_like=True):
    """A server that lives or lived. A restarted process is a new id.

    Clients connect to ``data`` (``ipc://...``) on its own host, and from others to ``tcp`` (with a
    ticket) or ``control`` (CURVE), where they are not empty; ``log`` is the path of its log file.
    """

    id: int
    incarnation: int
    data: str
    tcp: str = ""
    pid: int = 0
    host: str = ""
    log: str = ""
    control: str = ""


class View(msgspec.Struct, frozen=True, array_like=True):
    """The numbered answer to "which server is primary of each partition".

    ``owners[g]`` is the server id of group g; ``changed[g]`` the view number at which it last
    changed. A table of P partitions puts partition p in group ``(p * GROUPS // P + id) % GROUPS``
    (see ``sparkps.routing``).
    """

    number: int
    servers: tuple[ServerInfo, ...] = ()
    owners: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()


class Consistency(NamedTuple):
    """A parsed consistency: ``bsp``, ``ssp`` with its staleness, or ``asp``.

    Examples
    --------
    >>> parse_consistency("ssp:3")
    Consistency(mode='ssp', staleness=3)
    """

    mode: str
    staleness: int

    def __str__(self) -> str:
        return f"ssp:{self.staleness}" if self.mode == "ssp" else self.mode


def parse_consistency(text: str) -> Consistency:
    """Parse ``"bsp"``, ``"ssp:3"`` or ``"asp"``; raise :class:`~sparkps.errors.InvalidArgument`
    otherwise.
    """
    reason = 'must be "bsp", "ssp:<staleness>" as in "ssp:3", or "asp"'
    if text in ("bsp", "asp"):
        return Consistency(text, 0)
    mode, _, staleness = str(text).partition(":")
    if mode == "ssp" and staleness.isascii() and staleness.isdigit() and int(staleness) < 2**31:
        return Consistency("ssp", int(staleness))
    raise InvalidArgument(name="consistency", value=text, reason=reason)


class SessionSpec(msgspec.Struct, frozen=True, array_like=True):
    """One training run as the coordinator and the servers know it.

    ``size`` ranks; rank ``size`` is the driver itself (``on_epoch``), whose writes apply at once.
    ``driver=True`` is the session of the driver's own writes outside a run: one rank, 0.
    """

    id: int
    size: int
    consistency: str = "asp"
    epochs: int = 1
    clock_every: Literal["batch", "epoch", "manual"] = "batch"
    barrier_epochs: bool = False
    batch_rows: int = 0
    seed: int = 0
    driver: bool = False


class Position(NamedTuple):
    """The place of a slice in its rank's history: (clock, seq, slice). ``NOWHERE`` comes before
    all.
    """

    clock: int
    seq: int
    slice: int


NOWHERE: Final = Position(-1, -1, -1)


def suggest(word: str, known: list[str]) -> str:
    """``; did you mean 'x'?`` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def no_column(name: str, columns: list[str]) -> str:
    """Why a column cannot be taken that is none of these."""
    return f"there is no such column; there are {', '.join(columns)}{suggest(name, columns)}"


def plain(value: Any) -> Any:
    """A number that msgspec can send: numpy scalars become Python's."""
    return value.item() if hasattr(value, "item") else value
