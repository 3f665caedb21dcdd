"""How training shows itself: a bar on a terminal, timed lines in a log file."""

from __future__ import annotations

import logging
from typing import Any

from uqsonet.progress import ProgressBar

LOG = logging.getLogger("uqsonet")


class ProgressDisplay(ProgressBar):
    """The bar of a training, and a log line per trial with each validation."""

    def report(self, iteration: int, rows: list[dict[str, Any]]) -> None:
        """Log one line per trial and show the first trial's numbers beside the bar."""
        for row in rows:
            LOG.info(
                "iteration %d/%d trial %d  %.1f it/s  %.0f s left  %s",
                iteration,
                self._total,
                row["trial"],
                self.rate(iteration),
                self.left(iteration),
                describe(row),
            )
        self.update(iteration, describe(rows[0]))


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
