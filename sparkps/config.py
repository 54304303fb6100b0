"""Every setting of sparkps, once: name, unit, default and reason.

A setting is a field of :class:`Settings`. Its Spark key follows from its name:
``message_max_bytes`` is ``spark.sparkps.message.maxBytes``. Settings come from three places, the
later wins: the defaults here, the ``spark.sparkps.*`` keys of the Spark configuration, and the
options of ``PSContext``. Children get them as JSON with the first line of their stdin, handles
carry them to tasks; nobody reads the environment for a setting.

This file is also the only one that looks at the process environment: to hand a child an environment
without Spark's secrets, and for what Spark itself tells by it (its Python, a task's directories).
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparkps.errors import InvalidSetting
from sparkps.spec import suggest

#: What every key begins with in a Spark configuration.
PREFIX: Final = "spark.sparkps."

_BYTES: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SECONDS: Final = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def parse_bytes(value: Any) -> int:
    """Return a number of bytes from ``1048576``, ``"512m"``, ``"2g"`` or ``"1.5gb"``.

    Examples
    --------
    >>> parse_bytes("2g")
    2147483648
    """
    number, unit = _split(value)
    scale = _BYTES[unit.removesuffix("ib") if unit.endswith("ib") else unit.removesuffix("b")]
    return int(number * scale)


def spark_memory(conf: Mapping[str, str]) -> tuple[int, int]:
    """Return the bytes of an executor's heap and of its ``memoryOverhead``, by Spark's own rules: a
    bare number is MiB; :func:`default_overhead` where none is set.

    Examples
    --------
    >>> heap, overhead = spark_memory({"spark.executor.memory": "2g"})
    >>> heap >> 20, overhead >> 20
    (2048, 384)
    """
    overhead = conf.get("spark.executor.memoryOverhead")
    return _heap(conf), default_overhead(conf) if overhead is None else _mebibytes(overhead)


def is_on(value: str) -> bool:
    """Whether Spark takes a setting's text for true."""
    return value.strip().lower() == "true"


def default_overhead(conf: Mapping[str, str]) -> int:
    """Return the ``memoryOverhead`` that Spark gives an executor of itself, in bytes: a tenth of
    the heap, but at least 384 MiB, unless told otherwise. On Kubernetes a key of its own comes
    second, which Spark sets to 0.4 for Python jobs in cluster mode.

    Examples
    --------
    >>> conf = {"spark.executor.memory": "10g", "spark.executor.memoryOverheadFactor": "0.25"}
    >>> default_overhead(conf) >> 20
    2560
    >>> conf = {"spark.master": "k8s://x", "spark.kubernetes.memoryOverheadFactor": "0.4"}
    >>> default_overhead(conf) >> 20
    409
    """
    of_kubernetes = conf.get("spark.kubernetes.memoryOverheadFactor", "0.1")
    of_master = of_kubernetes if conf.get("spark.master", "").startswith("k8s") else "0.1"
    share = conf.get("spark.executor.memoryOverheadFactor", of_master)
    least = _mebibytes(conf.get("spark.executor.minMemoryOverhead", "384"))
    return max(int(_heap(conf) * float(share)), least)


def _heap(conf: Mapping[str, str]) -> int:
    return _mebibytes(conf.get("spark.executor.memory", "1g"))


def _mebibytes(value: str) -> int:
    text = str(value).strip()
    return parse_bytes(f"{text}m" if text.isdigit() else text)


def counts_memory(master: str) -> bool:
    """Whether a master kills an executor's container, servers included, when it uses more memory
    than it asked for.
    """
    return master.startswith(("yarn", "k8s"))


def parse_seconds(value: Any) -> float:
    """Return seconds from ``30``, ``"30s"``, ``"500ms"``, ``"2min"`` or ``"1h"``.

    Examples
    --------
    >>> parse_seconds("500ms")
    0.5
    """
    number, unit = _split(value)
    return number * _SECONDS[unit]


def _split(value: Any) -> tuple[float, str]:
    if isinstance(value, bool):
        raise ValueError(value)
    if isinstance(value, (int, float)):
        return float(value), ""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", str(value))
    if match is None:
        raise ValueError(value)
    return float(match[1]), match[2].lower()


def _parse_bool(value: Any) -> bool:
    return value if isinstance(value, bool) else _TRUTH[str(value).strip().lower()]


def _parse_int(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(value)
    return value if isinstance(value, int) else int(str(value).strip())


def _parse_ports(value: Any) -> str:
    first, dash, last = str(value).partition("-")
    return f"{int(first)}-{int(last)}" if dash else str(int(first))


def _good_ports(value: str) -> bool:
    first, last = port_range(value)
    return (first, last) == (0, 0) or 1 <= first <= last < 2**16


def port_range(value: str) -> tuple[int, int]:
    """Return the first and the last port of the setting ``ports``; (0, 0) is any.

    Examples
    --------
    >>> port_range("7000-7099"), port_range("7000"), port_range("0")
    ((7000, 7099), (7000, 7000), (0, 0))
    """
    first, _, last = value.partition("-")
    return int(first), int(last or first)


def _parse_path(value: Any) -> str:
    """Absolute: tasks run in other directories than the driver."""
    return os.path.abspath(os.path.expanduser(value)) if value else ""


class _Kind:
    """How a setting is read, what it must be, and how the docs call its unit."""

    def __init__(
        self, unit: str, parse: Callable[[Any], Any], good: Callable[[Any], bool], must: str
    ) -> None:
        self.unit, self.parse, self.good, self.must = unit, parse, good, must


def _one_of(*words: str) -> _Kind:
    must = f"must be {', '.join(words[:-1])} or {words[-1]}"
    return _Kind("text", str, lambda value: value in words, must)


_FLAG = _Kind("true or false", _parse_bool, lambda _: True, "must be true or false")
_TEXT = _Kind("text", str, bool, "must not be empty")
_PATH = _Kind("path", _parse_path, bool, "must not be empty")
_COUNT = _Kind("number", _parse_int, lambda v: 1 <= v <= 1024, "must be a whole number, 1 to 1024")
_FEW = _Kind("number", _parse_int, lambda v: 1 <= v <= 64, "must be a whole number, 1 to 64")
_NUMBER = _Kind("number", _parse_int, lambda v: 0 <= v < 2**63, "must be a whole number from 0")
_SIZE = _Kind(
    "bytes", parse_bytes, lambda v: v >= 2**16, "must be bytes as in 65536, 64m or 2g, at least 64k"
)
_TIME = _Kind(
    "seconds",
    parse_seconds,
    lambda v: 0 < v < math.inf,
    "must be a positive time as in 30, 30s, 500ms or 2min",
)
_DELAY = _Kind("milliseconds", float, lambda v: 0 <= v < 10_000, "must be 0 to 10000 milliseconds")
_PORTS = _Kind("ports", _parse_ports, _good_ports, "must be 0, or a range as in 7000-7099")
_LAUNCH = _one_of("auto", "plugin", "local", "external")
_SECURITY = _one_of("auth", "encrypt", "none")


def _setting(default: Any, kind: _Kind, doc: str, *, start: bool = False) -> Any:
    """A field; ``start``: servers or the coordinator need it when they start."""
    return dataclasses.field(default=default, metadata={"kind": kind, "doc": doc, "start": start})


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings, checked. ``Settings.load`` reads them, ``describe`` tells about them.

    Examples
    --------
    >>> settings = Settings.load({"spark.sparkps.server.memory": "2g"}, servers=3)
    >>> settings.server_memory, settings.servers
    (2147483648, 3)
    >>> Settings.load({"spark.sparkps.port": "7"})
    Traceback (most recent call last):
    sparkps.errors.InvalidSetting: setting port='7': there is no such setting; did you mean 'ports'?
    """

    servers: int | None = _setting(
        None,
        _COUNT,
        "Server processes. Unset, on a local master: one per four task slots, at least 1, at most "
        "8: a server is one thread, and clients need cores too. Unset, beside executors: those of "
        "the executors that Spark was asked for. A context waits for so many.",
    )
    servers_per_executor: int = _setting(
        1,
        _FEW,
        "Server processes beside each executor, with the plugin. A server is one thread: more of "
        "them serve more than four task slots.",
        start=True,
    )
    launch: str = _setting(
        "auto",
        _LAUNCH,
        "Who starts the servers: `plugin` the Spark plugin, beside the executors; `local` the "
        "driver, as its children; `external` somebody else (see `coordinator`). `auto`: external "
        "if a coordinator is given, else the plugin where it is loaded, else local on a local "
        "master. On another master `local` needs `key.file`.",
    )
    coordinator: str | None = _setting(
        None,
        _TEXT,
        "Address of the coordinator of an external cluster, as `python -m sparkps cluster` prints "
        "it.",
    )
    key_file: str | None = _setting(
        None,
        _PATH,
        "File with the key of an external cluster (or of servers beside the driver of a cluster), "
        "readable by its user only, at this path on the driver's and on every executor's host (a "
        "relative one is the driver's).",
    )
    security: str = _setting(
        "auth",
        _SECURITY,
        "`auth`: only holders of the application's key can connect; control traffic and server "
        "functions are encrypted, rows are not. `encrypt`: everything between hosts is. `none`: "
        "neither, for benchmarks. With the plugin the default is `encrypt` where Spark's own "
        "network encryption is on.",
        start=True,
    )
    bind_host: str | None = _setting(
        None,
        _TEXT,
        "Address to listen on. Unset: the executor's own, and the driver's for the coordinator; "
        "without the plugin, local sockets only. `0.0.0.0` is all interfaces.",
        start=True,
    )
    advertise_host: str | None = _setting(
        None,
        _TEXT,
        "Name or address by which others reach all processes of this application, where it is not "
        "what they listen on. Where hosts of a standalone cluster differ, set "
        "`SPARKPS_ADVERTISE_HOST` in each one's `spark-env.sh`, which goes before this.",
        start=True,
    )
    ports: str = _setting(
        "0",
        _PORTS,
        "Ports to listen on: `0` takes any free ones, `7000-7099` one of these. A server takes "
        "two, the coordinator one.",
        start=True,
    )
    server_memory: int | None = _setting(
        None,
        _SIZE,
        "Memory that one server may use; a write beyond it is refused with MemoryLimit. Unset: "
        "half of the machine's memory over the servers, so that Spark keeps the other half.",
        start=True,
    )
    executor_linger: float = _setting(
        20.0,
        _TIME,
        "Under dynamic allocation: how long an executor is kept for the next table, when its "
        "servers have started or the last table on them was dropped. One with a table is kept "
        "anyway.",
        start=True,
    )
    message_max_bytes: int = _setting(
        4 * 2**20,
        _SIZE,
        "Largest message; requests are split at it. Small enough that no message holds a server's"
        " loop for more than some milliseconds, large enough that its fixed cost vanishes.",
        start=True,
    )
    window_bytes: int = _setting(
        32 * 2**20,
        _SIZE,
        "Bytes in flight from one client to one server; beyond, calls wait (back-pressure).",
    )
    keysets_max_bytes: int = _setting(
        2**30,
        _SIZE,
        "Memory of the vocabularies and keysets of one table and session on one server. When it "
        "is full nothing is evicted (epochs scan in a cycle); the rest goes by plain keys.",
        start=True,
    )
    prepared_max_bytes: int = _setting(
        4 * 2**30,
        _SIZE,
        "Memory of one worker's prepared batches; beyond, their arrays go to a memory-mapped file.",
    )
    heartbeat: float = _setting(
        1.0,
        _TIME,
        "How often every process tells the coordinator it lives.",
        start=True,
    )
    dead: float = _setting(
        10.0,
        _TIME,
        "Silence after which a process counts as dead: ten heartbeats, so that a long pause of a "
        "garbage collector is not a death.",
        start=True,
    )
    stall_warn: float = _setting(
        30.0,
        _TIME,
        "A worker that keeps others waiting so long is named.",
        start=True,
    )
    stall_fatal: float = _setting(
        300.0,
        _TIME,
        "A worker that keeps others waiting so long ends the run.",
        start=True,
    )
    gang_timeout: float = _setting(
        120.0,
        _TIME,
        "From the first worker of a run that comes to the last; then the run fails.",
        start=True,
    )
    request_timeout: float = _setting(
        60.0,
        _TIME,
        "A request without any progress for so long fails and names the silent process.",
    )
    start_timeout: float = _setting(
        60.0,
        _TIME,
        "For the coordinator and the servers to be ready. They take half a second of CPU each; a "
        "loaded machine takes longer.",
    )
    stop_timeout: float = _setting(
        5.0, _TIME, "For children to leave by themselves at stop; then they are killed."
    )
    log_dir: str | None = _setting(
        None,
        _TEXT,
        "Where the log files of the children go and stay. Unset: in the private directory that is "
        "removed at stop; errors carry the last lines.",
        start=True,
    )
    progress: bool = _setting(True, _FLAG, "Show a line that says how far a run is, on a terminal.")
    model_local_bytes: int = _setting(
        256 * 10**6,
        _SIZE,
        "Fitted models up to this size are fetched, larger ones written to model.dir.",
    )
    model_dir: str | None = _setting(
        None, _TEXT, "Directory of fitted models that are too large to fetch."
    )
    rows_dir: str | None = _setting(
        None,
        _TEXT,
        "Directory for the rows that `step.finish` returns, shared by the driver and all workers. "
        "Unset: a private one on the driver's host, enough where all are on one host.",
    )
    python: str | None = _setting(
        None,
        _TEXT,
        "Python of the coordinator and the servers. Unset: they run with the driver's; beside "
        "executors servers run with that of tasks.",
        start=True,
    )
    faults_delay_ms: float = _setting(
        0.0,
        _DELAY,
        "For tests: hold every message back for a random time up to this.",
        start=True,
    )
    faults_seed: int = _setting(0, _NUMBER, "For tests: the seed of injected delays.", start=True)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            kind: _Kind = field.metadata["kind"]
            try:
                parsed = kind.parse(value)
                good = kind.good(parsed)
            except (ValueError, KeyError, TypeError, OverflowError):
                good = False
            if not good:
                raise InvalidSetting(name=_key(field.name), value=value, reason=kind.must)
            object.__setattr__(self, field.name, parsed)
        for low, high in (
            ("heartbeat", "dead"),
            ("stall_warn", "stall_fatal"),
            ("message_max_bytes", "window_bytes"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise InvalidSetting(
                    name=_key(low),
                    value=getattr(self, low),
                    reason=f"must not exceed {_key(high)}={getattr(self, high)}",
                )

    @classmethod
    def load(cls, mapping: Mapping[str, Any] | None = None, **overrides: Any) -> Settings:
        """Read settings.

        Parameters
        ----------
        mapping
            A Spark configuration; keys without the prefix ``spark.sparkps.`` are other people's and
            ignored.
        **overrides
            Settings by field name (``server_memory="2g"``); ``None`` leaves the setting as it is.

        Raises
        ------
        InvalidSetting
            For an unknown key (the nearest known one is suggested), or a value out of its range.
        """
        names = {_key(field.name): field.name for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in (mapping or {}).items():
            if not key.startswith(PREFIX):
                continue
            short = key[len(PREFIX) :]
            if short not in names:
                raise _unknown(short, value, list(names))
            values[names[short]] = value
        for name, value in overrides.items():
            if name not in names.values():
                raise _unknown(name, value, list(names.values()))
            if value is not None:
                values[name] = value
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, as plain values that JSON can hold."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Make the settings again that :meth:`to_dict` gave."""
        return cls.load(None, **values)

    def to_conf(self) -> dict[str, str]:
        """Return what differs from the defaults, as keys and values of a Spark configuration."""
        return {PREFIX + _key(name): str(value) for name, value in self.to_dict().items()}

    def at_start(self, other: Settings) -> list[str]:
        """Return the keys of settings that servers and the coordinator need when they start, and
        that differ in ``other``.
        """
        return [
            PREFIX + _key(field.name)
            for field in dataclasses.fields(self)
            if field.metadata["start"] and getattr(self, field.name) != getattr(other, field.name)
        ]

    @classmethod
    def describe(cls) -> str:
        """Return the table of all settings for the docs, in Markdown."""
        lines = ["| key | unit | default | meaning |", "|---|---|---|---|"]
        for field in dataclasses.fields(cls):
            kind: _Kind = field.metadata["kind"]
            default = "unset" if field.default is None else str(field.default)
            if isinstance(field.default, bool):
                default = default.lower()
            key, meaning = PREFIX + _key(field.name), field.metadata["doc"]
            lines.append(f"| `{key}` | {kind.unit} | {default} | {meaning} |")
        return "\n".join(lines)


def _key(name: str) -> str:
    """``message_max_bytes`` -> ``message.maxBytes``."""
    first, *rest = name.split("_")
    if not rest:
        return first
    return f"{first}.{rest[0]}{''.join(word.capitalize() for word in rest[1:])}"


def _unknown(name: str, value: Any, known: list[str]) -> InvalidSetting:
    return InvalidSetting(
        name=name, value=value, reason=f"there is no such setting{suggest(name, known)}"
    )


#: One thread for every library that would start its own: servers are single-threaded by design.
_THREADS: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "ARROW_NUM_THREADS",
)
#: Spark's own secrets (py4j's, the shuffle's); the user's (for an object store, say) are needed to
#: save models.
_SECRET: Final = re.compile(r"^_?SPARK.*SECRET|^PYSPARK_GATEWAY")


def child_environment(path: list[str] | None = None) -> dict[str, str]:
    """Return this process's environment for a child: no secrets, one thread, modules found where we
    find them.

    Parameters
    ----------
    path
        Directories for ``PYTHONPATH``; by default this interpreter's ``sys.path``, so that the
        modules of a user's optimizers and server functions can be imported there.
    """
    # The one place that reads it (see above).
    inherited = os.environ  # noqa: TID251
    environment = {name: value for name, value in inherited.items() if not _SECRET.search(name)}
    environment.update(dict.fromkeys(_THREADS, "1"))
    entries = [os.path.abspath(entry) for entry in (sys.path if path is None else path)]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))
    environment["PYTHONUNBUFFERED"] = "1"
    # ``-m`` shall not look for modules in the working directory first (since Python 3.11).
    environment["PYTHONSAFEPATH"] = "1"
    return environment


def spark_python() -> str:
    """Return the Python that Spark is told to run tasks with by the environment; empty if it is
    not.
    """
    return os.environ.get("PYSPARK_PYTHON", "")  # noqa: TID251


def driver_python() -> str:
    """Return the Python that Spark is told to run drivers with by the environment; empty if it is
    not.
    """
    return os.environ.get("PYSPARK_DRIVER_PYTHON", "")  # noqa: TID251


def host_for_others() -> str:
    """Return what the environment of this host says of how others reach it; empty if nothing."""
    return os.environ.get("SPARKPS_ADVERTISE_HOST", "")  # noqa: TID251


def java_home() -> str:
    """Return what the environment says of where Java is; empty if it says nothing."""
    return os.environ.get("JAVA_HOME", "")  # noqa: TID251


def executor_directory() -> str:
    """Return the first private directory of the executor that this task runs in; empty outside of
    tasks.
    """
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]  # noqa: TID251
