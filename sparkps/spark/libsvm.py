"""Reading libsvm text into the columns that the estimators take, with errors that name the file and
the line.

A line is ``label index:value index:value ...``. The rules, the same for training and scoring:

* Indices are 1-based unless ``base=0`` is asked for, and come out 0-based. An index below the base
  is refused, and so is one beyond ``features``, when that is given.
* A bare index has the value 1. Indices may stand in any order; one that stands twice in a row
  counts with the sum of its values. Text after ``#`` is a comment; empty lines are skipped.
* Labels -1 and +1 become 0 and 1 with ``binary=True``; a file that mixes -1 with 0 is refused.

Spark reads the text, so any path, compression and number of files that it knows will do. The tokens
are split and cast by Arrow's kernels; only a bad line is looked at by Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyspark.sql import functions as F

from sparkps.errors import InvalidArgument, InvalidInput
from sparkps.spark.arguments import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "label double, features array<bigint>, values array<float>"


def read_libsvm(
    spark: SparkSession,
    path: str | list[str],
    *,
    base: int = 1,
    features: int | None = None,
    binary: bool = True,
) -> DataFrame:
    """Read libsvm files.

    Parameters
    ----------
    spark : SparkSession
    path : str or list of str
        Files or directories, as ``spark.read.text`` takes them; compressed ones too.
    base : {1, 0}
        The index of the first feature in the files.
    features : int, optional
        Number of features: a higher index is refused.
    binary : bool
        Map labels -1 and +1 to 0 and 1, and refuse any other label.

    Returns
    -------
    DataFrame
        ``label double, features array<bigint>`` (0-based) ``, values array<float>``.

    Raises
    ------
    InvalidInput
        When the frame is read, for a bad line: it names the file, the line and what is wrong.
    """
    if base not in (0, 1):
        raise InvalidArgument(name="base", value=base, reason="must be 1 or 0")
    use_this_python(spark)
    lines = spark.read.text(path).select(F.col("value"), F.input_file_name().alias("file"))

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _parse(batch.column(0), batch.column(1), base, features, binary)

    return lines.mapInArrow(parse, SCHEMA)


def _parse(
    lines: pa.Array, files: pa.Array, base: int, features: int | None, binary: bool
) -> pa.RecordBatch:
    text = pc.utf8_trim_whitespace(pc.replace_substring_regex(lines, "#.*", ""))
    filled = pc.not_equal(text, "")
    text, files = text.filter(filled), files.filter(filled)
    tokens = pc.utf8_split_whitespace(text)
    offsets = tokens.offsets.to_numpy().astype(np.int64) - tokens.offsets[0].as_py()
    flat = tokens.flatten()
    first = np.zeros(len(flat), np.bool_)
    first[offsets[:-1]] = True
    rows = np.repeat(np.arange(len(text)), np.diff(offsets))

    labels = _cast(flat.filter(pa.array(first)), pa.float64())
    pairs = flat.filter(pa.array(~first))
    pair_rows = rows[~first]
    has_value = pc.match_substring(pairs, ":")
    pieces = pc.split_pattern(pairs, ":", max_splits=1)
    indices = _cast(pc.list_element(pieces, 0), pa.int64()) if len(pairs) else np.zeros(0, np.int64)
    values = np.ones(len(pairs), np.float64)
    given = has_value.to_numpy(zero_copy_only=False)
    if given.any():
        values[given] = _cast(pc.list_element(pieces.filter(has_value), 1), pa.float64())

    def refuse(bad: np.ndarray, of_rows: np.ndarray, reason: str) -> None:
        if bad.any():
            at = int(of_rows[np.flatnonzero(bad)[0]])
            file, line = files[at].as_py(), text[at].as_py()
            raise InvalidInput(
                name="line",
                value=line,
                where=f"{file}, line {_line_number(file, line)}",
                reason=reason,
            )

    every = np.arange(len(text))
    refuse(np.isnan(labels), every, "the label is not a number")
    refuse(indices == _NOT_A_NUMBER, pair_rows, "an index is not a whole number")
    refuse(~np.isfinite(values), pair_rows, "a value is not a finite number")
    if base == 1:
        refuse(
            indices == 0, pair_rows, "index 0 in a file that should be 1-based; read it with base 0"
        )
    refuse(indices < base, pair_rows, f"an index is below {base}")
    if features is not None:
        over = indices - base >= features
        highest = int(indices.max(initial=0))
        refuse(
            over, pair_rows, f"index {highest} is beyond the {features} features that were declared"
        )
    if binary:
        refuse((labels != 0) & (np.abs(labels) != 1), every, "the label is not 0, 1 or -1")
        minus, zero = labels == -1, labels == 0
        if minus.any():
            refuse(
                zero, every, "label 0 in a file with labels -1; they must be 0 and 1, or -1 and +1"
            )
        labels = np.where(minus, 0.0, labels)
    counts = np.bincount(pair_rows, minlength=len(text))
    starts = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(labels),
            pa.ListArray.from_arrays(starts, pa.array(indices - base)),
            pa.ListArray.from_arrays(starts, pa.array(values.astype(np.float32))),
        ],
        names=["label", "features", "values"],
    )


#: Stands for text that is no number; below any legal index.
_NOT_A_NUMBER = np.iinfo(np.int64).min


def _cast(tokens: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Numbers of text tokens; one that is none becomes NaN or :data:`_NOT_A_NUMBER`."""
    tokens = pc.utf8_ltrim(tokens, "+")
    try:
        numbers = pc.cast(tokens, kind)
    except pa.ArrowInvalid:
        pattern = (
            r"^-?\d+$" if pa.types.is_integer(kind) else r"^-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
        )
        good = pc.match_substring_regex(tokens, pattern)
        numbers = pc.cast(pc.if_else(good, tokens, pa.scalar(None, pa.string())), kind)
        missing = _NOT_A_NUMBER if pa.types.is_integer(kind) else float("nan")
        numbers = pc.fill_null(numbers, missing)
    array: np.ndarray = numbers.to_numpy(zero_copy_only=False)
    return array


def _line_number(file: str, line: str) -> str:
    """The number of the first such line in ``file``, counted from 1; ``?`` where the file cannot be
    read again.
    """
    try:
        filesystem, path = fs.FileSystem.from_uri(file)
        with filesystem.open_input_stream(path) as raw:
            for number, text in enumerate(raw.read().decode().splitlines(), 1):
                if text.partition("#")[0].strip() == line:
                    return str(number)
    except (OSError, ValueError, NotImplementedError):
        pass
    return "?"
