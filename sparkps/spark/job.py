"""A Spark action in the background, so that the thread that called ``ps.run`` is free for the run's
events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import DataFrame, Row


class SparkJob:
    """Collects a small DataFrame in a thread of its own, which inherits the caller's Spark
    properties.

    Parameters
    ----------
    frame
        What to collect.
    tag
        Marks the jobs of this action; :meth:`cancel` cancels exactly those.
    description
        For Spark's UI.
    not_of
        A tag of the calling thread that the jobs of this action do not inherit, or None.
    when_done
        Called in that thread at the end, good or bad.

    Attributes
    ----------
    rows
        What was collected; None before that.
    error
        What Spark raised, if it did.
    """

    def __init__(
        self,
        frame: DataFrame,
        tag: str,
        description: str,
        not_of: str | None,
        when_done: Callable[[], None],
    ) -> None:
        self._frame = frame
        self._tag = tag
        self._description = description
        self._not_of = not_of
        self._when_done = when_done
        self.rows: list[Row] | None = None
        self.error: Exception | None = None
        self._thread = InheritableThread(target=self._collect, daemon=True, name=f"{tag}-job")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def cancel(self) -> None:
        """Ask Spark to end the action; its tasks may work on for some seconds."""
        context = self._context()
        if context._jsc is not None:
            context.cancelJobsWithTag(self._tag)

    def join(self, seconds: float) -> bool:
        """Wait for the end; return whether it has come. What never began has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _collect(self) -> None:
        try:
            context = self._context()
            if self._not_of is not None:
                context.removeJobTag(self._not_of)
            context.addJobTag(self._tag)
            context.setJobDescription(self._description)
            self.rows = self._frame.collect()
        except Exception as error:  # noqa: BLE001 - Spark's and py4j's errors have no common class; it is raised later
            self.error = error
        finally:
            self._when_done()

    def _context(self) -> Any:
        return self._frame.sparkSession.sparkContext
