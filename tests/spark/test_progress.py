from __future__ import annotations

import io

import pytest

from sparkps.spark.progress import ProgressLine, Style, style
from sparkps.wire.messages import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line(kind: Style) -> tuple[ProgressLine, io.StringIO]:
    stream = io.StringIO()
    return ProgressLine(stream, 20, kind), stream


def test_a_line_says_epoch_clock_rate_loss_traffic_and_who_is_slow() -> None:
    progress, stream = line(Style.LINE)
    progress.epoch_ended({"loss": 795_000.0, "rows": 2_400_000, "seconds": 2.0})
    progress.moved(Progress(1, 41, 40, 2, {"pull_bytes": 210e6, "push_bytes": 98e6}))
    assert stream.getvalue().split("\r")[-1].rstrip() == (
        "epoch 2/20 · clock 41 · 1.2 M rows/s · loss 0.3312 · "
        "pull 210.0 MB/s push 98.0 MB/s · rank 2 is 1 behind"
    )


def test_a_shorter_line_covers_the_longer_one_before_it() -> None:
    progress, stream = line(Style.LINE)
    progress.moved(Progress(1, 1_000_000, 1, 0))
    progress.moved(Progress(1, 2, 2, 0))
    before, last = stream.getvalue().split("\r")[1:]
    assert len(last) == len(before)
    progress.close()
    assert stream.getvalue().endswith("\r")


def test_with_sparks_own_bar_there_is_one_whole_line_per_epoch() -> None:
    progress, stream = line(Style.EPOCHS)
    progress.moved(Progress(1, 2, 1, 0))
    progress.epoch_ended({"loss": 0.5, "mine": 3})
    progress.close()
    assert stream.getvalue() == "epoch 1/20 · loss 0.5\n"


def test_nothing_is_shown_where_nobody_looks() -> None:
    progress, stream = line(Style.NONE)
    progress.moved(Progress(1, 2, 1, 0))
    progress.epoch_ended({})
    progress.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("stream", "wanted", "bar", "expected"),
    [
        (Terminal(), True, False, Style.LINE),
        (Terminal(), True, True, Style.EPOCHS),
        (Terminal(), False, False, Style.NONE),
        (io.StringIO(), True, False, Style.NONE),
    ],
)
def test_the_style_follows_the_terminal_the_setting_and_sparks_bar(
    stream: io.StringIO, wanted: bool, bar: bool, expected: Style
) -> None:
    assert style(stream, wanted=wanted, sparks_bar=bar) is expected
