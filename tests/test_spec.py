"""What a table may be."""

from __future__ import annotations

from typing import Any

import pytest

from sparkps.errors import InvalidArgument, WrongType
from sparkps.spec import MAX_ROWS, InitSpec, OptimizerSpec, TableSpec, check_name


@pytest.mark.parametrize("name", ["w", "a/b c.d", "特征", "é" * 127])
def test_any_printable_name_of_up_to_255_bytes_will_do(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "a" * 256, "é" * 128, "a\nb", "\0", "\ud800", "a" * 10**6])
def test_other_names_are_refused_in_a_few_words(name: str) -> None:
    with pytest.raises(InvalidArgument, match="1 to 255 bytes of printable characters") as caught:
        check_name(name)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", [None, 5, b"w"])
def test_a_name_is_a_string(name: Any) -> None:
    with pytest.raises(WrongType, match=r"a table's name is .*; a string is needed"):
        check_name(name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dim": 64 * MAX_ROWS + 1}, "give the table more partitions"),
        ({"init": InitSpec("constant", 1e300)}, "must fit in float32"),
        ({"dtype": "int64", "init": InitSpec("constant", 0.5)}, "a whole number"),
        ({"dtype": "int64", "init": InitSpec("constant", 1e300)}, "fits in 64 bits"),
        ({"dtype": "int64", "init": InitSpec("constant", float("inf"))}, "a whole number"),
    ],
)
def test_what_no_server_could_hold_is_refused_before_any_is_asked(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        TableSpec("t", **changes).check()


def test_the_difference_of_two_specs_shows_no_pickles() -> None:
    one = TableSpec("t", optimizer=OptimizerSpec("Mine", (("lr", 0.5),), b"x" * 20_000))
    other = TableSpec("t", optimizer=OptimizerSpec("Mine", (("lr", 0.5),), b"y" * 20_000))
    words = one.difference(other)
    assert words.startswith("optimizer Mine(lr=0.5) (pickle ")
    assert len(words) < 100
