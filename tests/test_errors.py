"""Errors: the tree, the sentences, and the ways they travel."""

from __future__ import annotations

import pickle
import re

import pytest

from sparkps import errors
from sparkps.errors import PSError, from_wire

CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PSError) and kind is not PSError
]

SENTENCES = [
    (
        errors.InvalidArgument(name="width", value=0, reason="must be 1 to 65536"),
        "width=0: must be 1 to 65536",
    ),
    (
        errors.InvalidSetting(name="tcp", value="x", reason="must be true or false"),
        "setting tcp='x': must be true or false",
    ),
    (
        errors.InvalidKey(table="t", key=-1, index=3, reason="is negative"),
        "table 't': key -1 at position 3 is negative",
    ),
    (
        errors.InvalidInput(where="a.libsvm:7", reason="index 0 in a 1-based file"),
        "a.libsvm:7: index 0 in a 1-based file",
    ),
    (
        errors.WrongType(what="keys", got="float64", expected="an integer type"),
        "keys is float64; an integer type is needed",
    ),
    (
        errors.TableNotFound(table="t", known="u, v"),
        "there is no table 't'; the tables here are u, v. A name alone finds a table; with a "
        "property, as ps.table('t', width=1), it makes one",
    ),
    (
        errors.NotEnoughSlots(asked=4, slots=1),
        "4 workers were asked for and Spark has 1 task slots; ask for at most 1 "
        "(workers=1) or give Spark more cores",
    ),
    (errors.PSTimeout(seconds=3, what="a run"), "waited 3 s for a run"),
    (
        errors.GangIncomplete(came=12, size=16, seconds=120),
        "12 of 16 workers came within 120 s; 16 free slots are needed at the same time. "
        "Lower workers=, free the cluster, or raise spark.sparkps.gang.timeout",
    ),
    (errors.SessionEnded(session=7, reason="it was closed"), "session 7 has ended: it was closed"),
    (errors.MalformedRequest(reason="no header"), "malformed request: no header"),
]

BUILTINS = {
    errors.InvalidArgument: ValueError,
    errors.WrongType: TypeError,
    errors.TableNotFound: KeyError,
    errors.TableExists: ValueError,
    errors.PSTimeout: TimeoutError,
    errors.ServerLost: ConnectionError,
    errors.CoordinatorLost: ConnectionError,
    errors.MemoryLimit: MemoryError,
    errors.PathExists: FileExistsError,
    errors.SnapshotFailed: OSError,
    errors.FunctionRefused: PermissionError,
    errors.LaunchFailed: RuntimeError,
}


@pytest.mark.parametrize(("error", "sentence"), SENTENCES, ids=lambda value: type(value).__name__)
def test_sentences(error, sentence):
    assert str(error) == sentence


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickle_and_the_wire_with_all_that_it_says(kind):
    names = set(re.findall(r"{(\w+)", kind.sentence))
    error = kind(**{name: f"<{name}>" for name in names}).because("in a pull")
    for copy in (pickle.loads(pickle.dumps(error)), from_wire(*error.to_wire())):
        assert type(copy) is kind
        assert copy.fields == error.fields
        assert str(copy) == str(error)
    assert all(f"<{name}>" in str(error) for name in names)
    assert str(error).endswith(" (in a pull)")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_sentence_with_a_missing_value_still_reads(kind):
    assert "?" in str(kind()) or "{" not in kind.sentence


@pytest.mark.parametrize(("kind", "builtin"), BUILTINS.items(), ids=lambda kind: kind.__name__)
def test_each_error_is_the_builtin_that_one_would_catch(kind, builtin):
    assert issubclass(kind, builtin)
    with pytest.raises(builtin):
        raise kind()


def test_an_unknown_error_of_a_newer_version_is_kept_readable():
    assert str(from_wire("Novelty", {"a": 1})) == "Novelty: {'a': 1}"


def test_contexts_add_up():
    error = errors.MalformedRequest(reason="r").because("table 't'").because("server 1")
    assert str(error) == "malformed request: r (table 't'; server 1)"


def test_the_tree_in_the_docstring_names_every_error():
    for kind in CLASSES:
        assert kind.__name__ in (errors.__doc__ or "")


def test_a_plain_error_survives_pickle_and_the_wire_too():
    error = PSError(reason="why")
    assert str(pickle.loads(pickle.dumps(error))) == str(from_wire(*error.to_wire())) == "why"
