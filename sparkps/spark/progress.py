"""The line on a terminal that says how far a run is.

On a terminal one line is rewritten in place a few times a second::

    epoch 3/20 · clock 41 · 1.2 M rows/s · loss 0.3312 · pull 210 MB/s push 98 MB/s · rank 2 is 1
    behind

Where Spark draws its own bar (``spark.ui.showConsoleProgress``), which rewrites the same line, one
whole line is written per epoch instead. Without a terminal, or with
``spark.sparkps.progress=false``, nothing is.

A metric ``rows`` of the step gives rows per second; a ``loss`` is shown per row where ``rows`` is
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TextIO

from sparkps.wire.messages import Progress


class Style(Enum):
    """How progress is shown."""

    NONE = "none"
    LINE = "line"
    EPOCHS = "epochs"


class ProgressLine:
    """Shows the progress of one run.

    Parameters
    ----------
    stream
        Where to write, usually stderr.
    epochs
        Passes over the data that were asked for.
    style
        What to write.
    """

    def __init__(self, stream: TextIO, epochs: int, style: Style) -> None:
        self._stream = stream
        self._epochs = epochs
        self._style = style
        self._done = 0
        self._figures: list[str] = []
        self._width = 0

    def moved(self, progress: Progress) -> None:
        """Some clock was acknowledged."""
        if self._style is not Style.LINE:
            return
        epoch = min(self._done + 1, self._epochs)
        parts = [f"epoch {epoch}/{self._epochs}", f"clock {progress.clock}", *self._figures]
        load = progress.load
        if "pull_bytes" in load or "push_bytes" in load:
            pull, push = load.get("pull_bytes", 0.0), load.get("push_bytes", 0.0)
            parts.append(f"pull {short(pull)}B/s push {short(push)}B/s")
        if progress.clock > progress.slowest:
            lag = progress.clock - progress.slowest
            parts.append(f"rank {progress.slowest_rank} is {lag} behind")
        self._rewrite(" · ".join(parts))

    def epoch_ended(self, metrics: Mapping[str, Any]) -> None:
        """All ranks have ended an epoch; ``metrics`` are its sums."""
        self._done += 1
        self._figures = _figures(metrics)
        text = " · ".join([f"epoch {self._done}/{self._epochs}", *self._figures])
        if self._style is Style.LINE:
            self._rewrite(text)
        elif self._style is Style.EPOCHS:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def close(self) -> None:
        """Leave the terminal at the beginning of an empty line."""
        if self._width:
            self._rewrite("")
            self._stream.write("\r")
            self._stream.flush()

    def _rewrite(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)


def _figures(metrics: Mapping[str, Any]) -> list[str]:
    rows, loss, seconds = (_number(metrics.get(name)) for name in ("rows", "loss", "seconds"))
    figures = []
    if rows and seconds:
        figures.append(f"{short(rows / seconds).strip()} rows/s")
    if loss is not None:
        figures.append(f"loss {loss / rows if rows else loss:.4g}")
    return figures


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def short(number: float) -> str:
    """Return a number with a unit's prefix, as ``1.2 M``.

    Examples
    --------
    >>> short(1_234_567), short(950)
    ('1.2 M', '950 ')
    """
    if number < 1000:
        return f"{number:.0f} "
    power = min(3, int(len(str(int(number))) - 1) // 3)
    return f"{number / 1000**power:.1f} {' kMG'[power]}"


def style(stream: TextIO, *, wanted: bool, sparks_bar: bool) -> Style:
    """Return how progress is to be shown on ``stream``."""
    if not wanted or not stream.isatty():
        return Style.NONE
    return Style.EPOCHS if sparks_bar else Style.LINE
