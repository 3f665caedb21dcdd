"""A progress bar on a terminal where somebody watches; timed lines in a log file."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LOG = logging.getLogger("uqsonet")

SKILLS = {
    "skill_mean_": "skill of mean",
    "skill_std_": "skill of std",
    "over_cokriging_": "over cokriging",
}
"""How columns of a log begin that have a number of sensors at their end, and what they are."""


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


class TrainingDisplay(ProgressBar):
    """The bar of a training, and a log line with each validation."""

    def report(self, iteration: int, row: dict[str, Any]) -> None:
        """Log one line, and show its numbers beside the bar."""
        LOG.info(
            "iteration %d/%d trial %d  %.1f it/s  %.0f s left  %s",
            iteration,
            self._total,
            row["trial"],
            self.rate(iteration),
            self.left(iteration),
            describe(row),
        )
        self.update(iteration, describe(row))


def describe(row: dict[str, Any]) -> str:
    """Return loss terms and skills of a logged row in one short line."""
    hidden = {"trial", "iteration", "seconds", "learning_rate"}
    parts = [
        f"{k} {v:.4g}"
        for k, v in row.items()
        if k not in hidden and not k.startswith(tuple(SKILLS))
    ]
    for start, name in SKILLS.items():
        found = [f"{k.removeprefix(start)}:{v:.2f}" for k, v in row.items() if k.startswith(start)]
        if found:
            parts.append(f"{name} " + " ".join(found))
    return "  ".join(parts)
