"""Every error that sparkps raises, and nothing else.

An error keeps its values in ``fields`` and makes its sentence from them, so that it survives
pickling and the wire with nothing lost. A sentence says whose fault it is, what was seen, and what
to do next. Each class also inherits the builtin that a Python user would expect to catch.

::

    PSError
    ├── InvalidArgument (ValueError)        a call's argument is wrong
    │   ├── InvalidSetting                  a setting of spark.sparkps.* is wrong
    │   ├── InvalidKey                      a key outside the table's key space
    │   └── InvalidInput                    a row of the training input is wrong
    ├── WrongType (TypeError)               dtype or Python type of an argument
    ├── TableNotFound (KeyError)
    │   └── TableDropped                    the table of an old handle
    ├── TableExists (ValueError)            another spec under that name
    ├── TableBusy (RuntimeError)            a bsp run owns the table
    ├── NotInRun (RuntimeError)             a write from a task outside ps.run
    ├── ContextExists / ContextStopped / NotPicklable (RuntimeError, TypeError)
    ├── NotEnoughSlots (ValueError)
    ├── PSTimeout (TimeoutError)            a bounded wait ended; it names what it waited for
    │   ├── GangIncomplete
    │   ├── SlotsTaken                      on_epoch waits for its own workers' slots
    │   ├── WorkerStalled
    │   └── RequestTimeout
    ├── ServerLost (ConnectionError)
    ├── CoordinatorLost (ConnectionError)
    │   └── CoordinatorUnreachable          nobody answers there, or with another key
    ├── SessionEnded (RuntimeError)         the run was stopped or failed elsewhere
    ├── TokenLost (RuntimeError)            another task holds this rank now
    ├── MemoryLimit (MemoryError)
    ├── NonDeterministicInput (RuntimeError)
    ├── MalformedRequest (ValueError)       a message that breaks the protocol
    ├── VersionMismatch (RuntimeError)
    ├── FunctionFailed (RuntimeError)       a user's server function or optimizer raised
    ├── FunctionRefused (PermissionError)
    ├── NotAdmitted (PermissionError)       without the application's key, or with a used ticket
    ├── KeyMissing (PermissionError)        a task cannot find the application's key
    ├── SnapshotFailed (OSError) / PathExists (FileExistsError) / BrokenModel (ValueError)
    ├── LaunchFailed (RuntimeError)
    │   ├── ServersMissing (TimeoutError)   fewer servers came than were asked for
    │   └── PortsTaken (OSError)            no port of the range is free
    └── JarMissing (FileNotFoundError)      the package was not built
"""

from __future__ import annotations

from typing import Any, ClassVar

_BY_NAME: dict[str, type[PSError]] = {}


class _Fields(dict[str, Any]):
    """Fields of a sentence; one that was not given shows as ``?`` and never raises."""

    def __missing__(self, key: str) -> str:
        return "?"


class PSError(Exception):
    """Above all errors of sparkps.

    Parameters
    ----------
    **fields
        The values that the sentence is made of. They must be of plain types (numbers, strings,
        lists), since they cross the wire.

    Examples
    --------
    >>> from sparkps.errors import NotEnoughSlots
    >>> print(NotEnoughSlots(asked=4, slots=1))  # doctest: +NORMALIZE_WHITESPACE
    4 workers were asked for and Spark has 1 task slots; ask for at most 1 (workers=1) or give Spark
    more cores
    """

    sentence: ClassVar[str] = "{reason}"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _BY_NAME[cls.__name__] = cls

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)
        self.fields = fields

    def __str__(self) -> str:
        text = self.sentence.format_map(_Fields(self.fields))
        context = self.fields.get("context")
        return f"{text} ({context})" if context else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self).__name__, self.fields))

    def to_wire(self) -> tuple[str, dict[str, Any]]:
        """Return ``(name, fields)``, what :func:`from_wire` needs to make the same error again."""
        return type(self).__name__, self.fields

    def because(self, context: str) -> PSError:
        """Add the caller's context (table, server, number of keys) to the sentence; return
        ``self``.
        """
        before = self.fields.get("context")
        self.fields["context"] = f"{before}; {context}" if before else context
        return self


_BY_NAME[PSError.__name__] = PSError


def _rebuild(name: str, fields: dict[str, Any]) -> PSError:
    return from_wire(name, fields)


def from_wire(name: str, fields: dict[str, Any]) -> PSError:
    """The one map from wire status to exception; an unknown name becomes a plain
    :class:`PSError`.
    """
    kind = _BY_NAME.get(name)
    if kind is None:
        return PSError(reason=f"{name}: {fields}")
    return kind(**fields)


class InvalidArgument(PSError, ValueError):
    sentence = "{name}={value!r}: {reason}"


class InvalidSetting(InvalidArgument):
    sentence = "setting {name}={value!r}: {reason}"


class InvalidKey(InvalidArgument):
    sentence = "table {table!r}: key {key} at position {index} {reason}"


class InvalidInput(InvalidArgument):
    sentence = "{where}: {reason}"


class WrongType(PSError, TypeError):
    sentence = "{what} is {got}; {expected} is needed"


class TableNotFound(PSError, KeyError):
    sentence = (
        "there is no table {table!r}; the tables here are {known}. A name alone finds a table; "
        "with a property, as ps.table({table!r}, width=1), it makes one"
    )


class TableDropped(TableNotFound):
    sentence = (
        "table {table!r} was dropped, or replaced by another of that name, after this handle was "
        "made; ps.table({table!r}) gives a handle of the one there now"
    )


class TableExists(PSError, ValueError):
    sentence = (
        "table {table!r} exists with another spec ({difference}); use ps.table({table!r}) for the "
        "one there, "
        "or replace=True to drop it and start anew"
    )


class TableBusy(PSError, RuntimeError):
    sentence = (
        "table {table!r} is written by a bsp run (session {session}) and takes no writes from "
        "outside until "
        "that run ends; write inside the run, or after it"
    )


class NotInRun(PSError, RuntimeError):
    sentence = (
        "table {table!r}: {what} was called in a Spark task outside ps.run, where a table handle "
        "only reads "
        "(Spark may run a task twice); write from a step of ps.run, or from the driver"
    )


class ContextExists(PSError, RuntimeError):
    sentence = (
        "this SparkSession has a PSContext already; use PSContext.get_or_create(spark) for it, or "
        "call ps.stop() first"
    )


class ContextStopped(PSError, RuntimeError):
    sentence = "this PSContext was stopped ({reason}); make a new one with PSContext(spark)"


class NotPicklable(PSError, TypeError):
    sentence = (
        "a PSContext cannot be sent to tasks; use a table handle (ps.table(name)) in the function "
        "instead"
    )


class NotEnoughSlots(PSError, ValueError):
    sentence = (
        "{asked} workers were asked for and Spark has {slots} task slots; ask for at most {slots} "
        "(workers={slots}) or give Spark more cores"
    )


class PSTimeout(PSError, TimeoutError):
    sentence = "waited {seconds} s for {what}"


class GangIncomplete(PSTimeout):
    sentence = (
        "{came} of {size} workers came within {seconds} s; {size} free slots are needed at the "
        "same time. "
        "Lower workers=, free the cluster, or raise spark.sparkps.gang.timeout"
    )


class SlotsTaken(PSTimeout):
    sentence = (
        "on_epoch runs a Spark job that has found no free task slot for {seconds} s: the {workers} "
        "workers hold theirs until on_epoch returns. Train with fewer workers, run that job after "
        "ps.run, or raise spark.sparkps.stall.fatal"
    )


class WorkerStalled(PSTimeout):
    sentence = (
        "rank {rank} on {host} (pid {pid}) has been at clock {clock} for {seconds} s and holds "
        "the others back; "
        "see its executor's log, or raise spark.sparkps.stall.fatal"
    )


class RequestTimeout(PSTimeout):
    sentence = (
        "{what}: no answer from {peer} for {seconds} s; it is busy, stopped or cut off. "
        "See {log}, or raise spark.sparkps.request.timeout"
    )


class ServerLost(PSError, ConnectionError):
    sentence = (
        "server {server} is lost ({status}), and with it a part of the tables {tables}, which "
        "have no replica. "
        "Its log {log} ends:\n{tail}\nCreate the tables again with replace=True, or load a saved "
        "model"
    )


class CoordinatorLost(PSError, ConnectionError):
    sentence = (
        "the coordinator is lost ({status}); every run has failed with it. Its log {log} "
        "ends:\n{tail}\n"
        "Stop this PSContext and make a new one (with the plugin, a new SparkSession)"
    )


class CoordinatorUnreachable(CoordinatorLost):
    sentence = (
        "no coordinator lets us in at {endpoint} ({status}): does it run there, is that its "
        "address, and is the key its own? python -m sparkps cluster prints both"
    )


class SessionEnded(PSError, RuntimeError):
    sentence = "session {session} has ended: {reason}"


class TokenLost(PSError, RuntimeError):
    sentence = (
        "token {token} no longer holds rank {rank} of session {session}: another task has taken "
        "it over"
    )


class MemoryLimit(PSError, MemoryError):
    sentence = (
        "server {server}: table {table!r} needs {needed} more bytes and {used} of its {limit} "
        "bytes are used; "
        "raise spark.sparkps.server.memory or start more servers"
    )


class NonDeterministicInput(PSError, RuntimeError):
    sentence = (
        "rank {rank}: this attempt read other rows than the one before ({reason}); cache or "
        "checkpoint the "
        "DataFrame so that a retried task reads the same rows"
    )


class MalformedRequest(PSError, ValueError):
    sentence = "malformed request: {reason}"


class VersionMismatch(PSError, RuntimeError):
    sentence = (
        "{peer} speaks protocol version {theirs}, this side {ours}; install the same sparkps "
        "version on the "
        "driver and on every executor"
    )


class FunctionFailed(PSError, RuntimeError):
    sentence = (
        "{what} raised on server {server}, table {table!r}, partition {partition}:\n{traceback}"
    )


class FunctionRefused(PSError, PermissionError):
    sentence = "{what} is refused on this connection: {reason}"


class NotAdmitted(PSError, PermissionError):
    sentence = (
        "{peer} does not admit this connection: {reason}. Only processes that hold the "
        "application's key may connect"
    )


class KeyMissing(PSError, PermissionError):
    sentence = (
        "the key of the application at {coordinator} is not on this host ({looked}). Put it into a "
        "file that only you can read, on every host, and name that in spark.sparkps.key.file "
        "(PSContext.connect(..., key_file=)), or start Spark with the plugin, which hands it on "
        "(python -m sparkps conf prints how)"
    )


class SnapshotFailed(PSError, OSError):
    sentence = "saving table {table!r} to {path} failed: {reason}"


class PathExists(PSError, FileExistsError):
    sentence = "{path} exists; {advice}"


class BrokenModel(PSError, ValueError):
    sentence = "{path} is not a complete saved table: {reason}"


class LaunchFailed(PSError, RuntimeError):
    sentence = (
        "{what} did not start: {reason}. Its log {log} (kept only with spark.sparkps.log.dir) "
        "ends:\n{tail}"
    )


class ServersMissing(LaunchFailed, TimeoutError):
    sentence = (
        "{came} of {asked} servers are up after {seconds} s; each executor has "
        "spark.sparkps.servers.perExecutor of them. Leave servers= unset, raise that, or get more "
        "executors (spark.executor.instances, spark.cores.max); spark.sparkps.start.timeout waits "
        "longer"
    )


class PortsTaken(LaunchFailed, OSError):
    sentence = (
        "no port of {ports} is free on {host}; {needed} are needed for each server on a host and 1 "
        "for the coordinator. Widen spark.sparkps.ports, or unset it to take any free port"
    )


class JarMissing(PSError, FileNotFoundError):
    sentence = (
        "the Spark plugin's jar {path} is missing, so this sparkps was not built. With a JDK on "
        "the path, run `pip install .` in its sources (`pip install -e .` for a checkout)"
    )
