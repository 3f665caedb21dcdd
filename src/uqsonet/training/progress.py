"""How training shows itself: a bar on a terminal, timed lines in a log file."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LOG = logging.getLogger("uqsonet")


class ProgressDisplay:
    """A progress bar where somebody watches; elsewhere the log lines suffice.

    Parameters
    ----------
    title : str
    total, done : int
        Iterations in all, and those of an earlier session.
    bar : bool
        Draw the bar if the error stream is a terminal. Several jobs on one terminal would
        overwrite each other, so the workflow draws bars only when it runs one job at a time.
    """

    def __init__(self, title: str, total: int, done: int, bar: bool = True) -> None:
        self._total, self._first, self._start = total, done, time.monotonic()
        self._bar: Progress | None = None
        if bar and sys.stderr.isatty():
            from rich.console import Console

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[rate]:.0f} it/s"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(title, total=total, completed=done, rate=0.0, note="")

    def __enter__(self) -> ProgressDisplay:
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

    def rate(self, iteration: int) -> float:
        """Return iterations per second in this session."""
        return (iteration - self._first) / max(time.monotonic() - self._start, 1e-9)

    def update(self, iteration: int) -> None:
        """Move the bar."""
        if self._bar:
            self._bar.update(self._task, completed=iteration, rate=self.rate(iteration))

    def report(self, iteration: int, rows: list[dict[str, Any]]) -> None:
        """Log one line per trial and show the first trial's numbers beside the bar."""
        rate = self.rate(iteration)
        left = (self._total - iteration) / rate if rate else float("inf")
        for row in rows:
            LOG.info(
                "iteration %d/%d trial %d  %.1f it/s  %.0f s left  %s",
                iteration,
                self._total,
                row["trial"],
                rate,
                left,
                describe(row),
            )
        if self._bar:
            self._bar.update(self._task, completed=iteration, rate=rate, note=describe(rows[0]))


def describe(row: dict[str, Any]) -> str:
    """Return loss terms and skills of a logged row in one short line."""
    hidden = {"trial", "iteration", "seconds", "learning_rate"}
    parts = [f"{k} {v:.4g}" for k, v in row.items() if k not in hidden and "skill" not in k]
    for kind in ("mean", "std"):
        start = f"skill_{kind}_"
        found = [f"{k.removeprefix(start)}:{v:.2f}" for k, v in row.items() if k.startswith(start)]
        if found:
            parts.append(f"skill of {kind} " + " ".join(found))
    return "  ".join(parts)
