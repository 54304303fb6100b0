import pickle
import subprocess
import sys

import pytest

from sparkps.errors import PSError, ServerLost
from sparkps.wire.userfn import describe, dump_error, dumps, load_error, loads, words


class Odd(Exception):
    """Pickles, and does not come back: the usual trap of a constructor with two arguments."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class Closed(Exception):
    def __reduce__(self) -> str:
        raise TypeError("no")


def test_a_function_of_the_session_travels_by_value() -> None:
    factor = 3
    data = dumps(lambda x: x * factor)
    code = "import sys, pickle; print(pickle.loads(sys.stdin.buffer.read())(14))"
    out = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert out.stdout == b"42\n"
    assert loads(memoryview(data))(2) == 6


@pytest.mark.parametrize(
    "error",
    [ValueError("x", 3), KeyError("k"), KeyboardInterrupt(), ServerLost(server=2, tail="t")],
)
def test_an_error_comes_back_as_itself(error: BaseException) -> None:
    back = load_error(dump_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)


@pytest.mark.parametrize(
    ("error", "text"), [(Odd(1, 2), "Odd: 1 and 2"), (Closed("words"), "Closed: words")]
)
def test_an_error_that_cannot_travel_leaves_its_words(error: Exception, text: str) -> None:
    back = load_error(dump_error(error))
    assert type(back) is PSError
    assert str(back) == text


def test_an_error_whose_class_is_not_here_leaves_its_words() -> None:
    data = dump_error(ValueError("told elsewhere"))
    broken = data.replace(b"ValueError", b"VolueError").replace(b"VolueError: ", b"ValueError: ")
    back = load_error(broken)
    assert type(back) is PSError
    assert str(back) == "ValueError: told elsewhere"


@pytest.mark.parametrize("data", [b"", b"junk", dumps(3)])
def test_what_is_no_error_becomes_one(data: bytes) -> None:
    assert isinstance(load_error(data), PSError)


def test_describe_tells_where() -> None:
    def inner() -> None:
        raise ZeroDivisionError("here")

    try:
        inner()
    except ZeroDivisionError as error:
        text = describe(error)
    assert "in inner" in text
    assert text.endswith("ZeroDivisionError: here")


def test_loads_raises_what_the_bytes_make_it_raise() -> None:
    with pytest.raises(pickle.UnpicklingError):
        loads(b"junk")


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_without_words_still_comes_back_as_itself() -> None:
    assert type(load_error(dump_error(Wordless()))) is Wordless
    assert words(Wordless()) == "Wordless: (its str() fails)"
    assert words(KeyboardInterrupt()) == "KeyboardInterrupt"
