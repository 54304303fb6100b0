"""A watch over ``on_epoch``: does it run a Spark job that waits for what waits for it?

While ``on_epoch`` runs in the driver, the workers wait for it and hold their task slots. A Spark
job of it that finds no free slot waits for them, and both would wait for ever. The watch warns once
``on_epoch`` has taken ``stall.warn`` seconds; a stage without a single running task for
``stall.fatal`` seconds ends the run. An ``on_epoch`` that merely takes long is left alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from sparkps import _log
from sparkps.config import Settings
from sparkps.errors import SlotsTaken

#: Seconds between two looks at Spark's stages.
_LOOK: Final = 1.0

_logger = _log.get("run")


class SlotWatch:
    """A context manager around one call of ``on_epoch``.

    Parameters
    ----------
    spark_context
        Whose stages are looked at.
    settings
        ``stall.warn`` and ``stall.fatal``.
    workers
        How many wait, for the messages.
    end
        Ends the run with an error; called in the watch's own thread, at most once.

    Attributes
    ----------
    error : SlotsTaken or None
        What it has ended the run with.
    """

    def __init__(
        self,
        spark_context: Any,
        settings: Settings,
        workers: int,
        end: Callable[[SlotsTaken], None],
    ) -> None:
        self._tracker = spark_context.statusTracker()
        self._settings = settings
        self._workers = workers
        self._end = end
        self.error: SlotsTaken | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="on_epoch watch", daemon=True)

    def __enter__(self) -> SlotWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()

    def _watch(self) -> None:
        settings = self._settings
        if self._over.wait(settings.stall_warn):
            return
        _logger.warning(
            "on_epoch has been running for %g s while %d workers wait for it and hold their task "
            "slots. If it runs a Spark job and no other slot is free, the run ends after %g s of "
            "that: train with fewer workers, or run that job after ps.run",
            settings.stall_warn,
            self._workers,
            settings.stall_fatal,
        )
        began = time.monotonic()
        while not self._over.wait(min(_LOOK, settings.stall_fatal / 4)):
            if not self._starves():
                began = time.monotonic()
            elif (seconds := time.monotonic() - began) >= settings.stall_fatal:
                self.error = SlotsTaken(seconds=round(seconds), workers=self._workers)
                self._end(self.error)
                return

    def _starves(self) -> bool:
        """Whether a stage has tasks to do and none of them runs."""
        stages = [self._tracker.getStageInfo(s) for s in self._tracker.getActiveStageIds()]
        return any(
            stage is not None
            and stage.numActiveTasks == 0
            and stage.numCompletedTasks < stage.numTasks
            for stage in stages
        )
