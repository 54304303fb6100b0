"""libsvm lines: what they mean, and what is said about bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkps.errors import InvalidArgument, InvalidInput
from sparkps.spark.libsvm import _parse, read_libsvm


def parse(*lines: str, file: str = "file:///nowhere", **options: Any) -> list[dict[str, Any]]:
    wanted = {"base": 1, "features": None, "binary": True} | options
    texts = pa.array(lines, pa.string())
    return _parse(texts, pa.array([file] * len(lines), pa.string()), **wanted).to_pylist()


def test_indices_come_out_0_based_and_in_their_order() -> None:
    assert parse("1 7:1 3:.5") == [{"label": 1.0, "features": [6, 2], "values": [1.0, 0.5]}]
    assert parse("1 7:1", base=0)[0]["features"] == [7]


def test_bare_indices_plus_signs_comments_and_empty_lines_are_understood() -> None:
    rows = parse("+1 +3 5:+2 # seven", "", "# nothing", "-1")
    assert rows == [
        {"label": 1.0, "features": [2, 4], "values": [1.0, 2.0]},
        {"label": 0.0, "features": [], "values": []},
    ]


def test_labels_may_be_any_number_where_they_are_not_classes() -> None:
    assert [row["label"] for row in parse("-1 1:1", "2.5 1:1", binary=False)] == [-1.0, 2.5]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x 1:1", "the label is not a number"),
        ("2 1:1", "the label is not 0, 1 or -1"),
        ("1 a:1", "an index is not a whole number"),
        ("1 1.5:1", "an index is not a whole number"),
        ("1 1:", "a value is not a finite number"),
        ("1 1:nan", "a value is not a finite number"),
        ("1 1:2:3", "a value is not a finite number"),
        ("1 0:1", "index 0 in a file that should be 1-based; read it with base 0"),
        ("1 -3:1", "an index is below 1"),
        ("1 5:1", "index 5 is beyond the 4 features that were declared"),
    ],
)
def test_a_bad_line_is_refused_with_its_file_and_number(
    line: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows"
    lines = ["1 1:1", "", "0 2:1", line]
    path.write_text("\n".join(lines))
    with pytest.raises(InvalidInput, match=f"rows, line 4: {words}"):
        parse(*lines, file=path.as_uri(), features=4)


def test_labels_0_and_minus_1_do_not_mix() -> None:
    with pytest.raises(InvalidInput, match="label 0 in a file with labels -1"):
        parse("-1 1:1", "0 1:1")


def test_no_other_base_is_known() -> None:
    with pytest.raises(InvalidArgument, match="base=2"):
        read_libsvm(None, "x", base=2)  # type: ignore[arg-type]
