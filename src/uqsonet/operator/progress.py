"""A progress bar on a terminal where somebody watches; elsewhere log lines suffice."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """Counts work done, its rate and the time left, and draws them if asked to.

    Parameters
    ----------
    title : str
    total, done : int
        Units of work in all, and those of an earlier session.
    bar : bool
        Draw the bar if the error stream is a terminal. Several jobs on one terminal would
        overwrite each other, so the workflow draws bars only when it runs one job at a time.
    unit : str
        What is counted, short.
    """

    def __init__(
        self, title: str, total: int, done: int = 0, bar: bool = True, unit: str = "it"
    ) -> None:
        self._total, self._first, self._start = total, done, time.monotonic()
        self._bar: Progress | None = None
        if bar and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn(f"{{task.fields[rate]:.0f}} {unit}/s"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(title, total=total, completed=done, rate=0.0, note="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def rate(self, done: int) -> float:
        """Return units per second in this session."""
        return (done - self._first) / max(time.monotonic() - self._start, 1e-9)

    def left(self, done: int) -> float:
        """Return the seconds that the rest will take at this session's rate."""
        rate = self.rate(done)
        return (self._total - done) / rate if rate else float("inf")

    def update(self, done: int, note: str | None = None) -> None:
        """Move the bar; the note beside it stays unless there is a new one."""
        if self._bar:
            fields: dict[str, Any] = {"rate": self.rate(done)} | (
                {} if note is None else {"note": note}
            )
            self._bar.update(self._task, completed=done, **fields)
