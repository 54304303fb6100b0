"""Frozen words that every floor shares: what a table is, where its partitions are, what a run is.

Nothing here does anything but describe itself and check itself; all of it crosses the wire as
MessagePack.
"""

from __future__ import annotations

import difflib
from typing import Any, Final, Literal, NamedTuple

import msgspec

from sparkps.errors import InvalidArgument

DTYPES: Final = ("float32", "float64", "int64")
#: Partitions move in groups, so that a primary has few backup servers (SEMANTICS §7); a power of
#: two, fixed for ever.
GROUPS: Final = 64
DEFAULT_PARTITIONS: Final = 64
MAX_PARTITIONS: Final = 4096
MAX_WIDTH: Final = 65_536
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
        for name, value, good, reason in (
            (
                "name",
                self.name,
                0 < len(self.name.encode()) <= 255 and self.name.isprintable(),
                "a table's name has 1 to 255 bytes of printable characters",
            ),
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
                "optimizer",
                self.optimizer and self.optimizer.name,
                not (self.optimizer and self.dtype == "int64"),
                "int64 tables count and take no optimizer",
            ),
            ("seed", self.seed, -(2**63) <= self.seed < 2**63, "must fit in 64 bits"),
            (
                "init",
                self.init,
                self.dtype != "int64"
                or (self.init.kind == "constant"
                and self.init.a == int(self.init.a)),
                "int64 tables start from a whole number",
            ),
        ):
            if not good:
                raise InvalidArgument(name=name, value=value, reason=reason)
        return self

    def difference(self, other: TableSpec) -> str:
        """Name what differs from another spec, as ``width 1 != 8``."""
        return ", ".join(
            f"{field} {getattr(self, field)!r} != {getattr(other, field)!r}"
            for field in self.__struct_fields__
            if getattr(self, field) != getattr(other, field)
        )


class TableInfo(msgspec.Struct, frozen=True, array_like=True):
    """A table of the catalogue: its id, never reused, and its spec."""

    id: int
    spec: TableSpec


class ServerInfo(msgspec.Struct, frozen=True, array_like=True):
    """A server that lives or lived. A restarted process is a new id.

    ``data`` is the endpoint that clients connect to (``ipc://...`` or ``tcp://127.0.0.1:port``);
    ``log`` the path of its log file.
    """

    id: int
    incarnation: int
    data: str
    tcp: str = ""
    pid: int = 0
    host: str = ""
    log: str = ""


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


def plain(value: Any) -> Any:
    """A number that msgspec can send: numpy scalars become Python's."""
    return value.item() if hasattr(value, "item") else value
