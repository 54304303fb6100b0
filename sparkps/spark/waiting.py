"""A watch over ``on_epoch``: does it run a Spark job that waits for what waits for it?

While ``on_epoch`` runs in the driver, the workers wait for it and hold their task slots. A Spark
job of it that finds no free slot waits for them, and both would wait for ever. The watch warns once
``on_epoch`` has taken ``stall.warn`` seconds; jobs of it without a single running task for
``stall.fatal`` seconds end the run. An ``on_epoch`` that merely takes long is left alone. So are
jobs of other threads: its own carry a tag.
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
    tag
        The job tag of the thread that calls ``on_epoch``. It is set once for a run: a call to the
        JVM in each epoch would cost time, and be where Ctrl-C strikes.
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
        tag: str,
        end: Callable[[SlotsTaken], None],
    ) -> None:
        self._context = spark_context
        self._settings = settings
        self._workers = workers
        self._end = end
        self.error: SlotsTaken | None = None
        self._tag = tag
        self._over = threading.Event()
        self._lock = threading.Lock()
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
        with self._lock:
            self._over.set()

    def _watch(self) -> None:
        try:
            self._look_on()
        except Exception:  # py4j's errors have no common class; without a watch, on_epoch goes on
            _logger.exception("the watch over on_epoch has ended")

    def _look_on(self) -> None:
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
                with self._lock:
                    if self._over.is_set():
                        return
                    self.error = SlotsTaken(seconds=round(seconds), workers=self._workers)
                    self._end(self.error)
                return

    def _starves(self) -> bool:
        """Whether a job of on_epoch has a stage with tasks to do, and none of its tasks runs."""
        tracker = self._context.statusTracker()
        jobs = self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag)
        infos = [tracker.getJobInfo(job) for job in jobs]
        active = set(tracker.getActiveStageIds())
        stages = [
            tracker.getStageInfo(stage)
            for info in infos
            if info is not None
            for stage in info.stageIds
            if stage in active
        ]
        waiting = [s for s in stages if s is not None and s.numCompletedTasks < s.numTasks]
        return bool(waiting) and all(stage.numActiveTasks == 0 for stage in waiting)
