"""How training shows itself: a bar on a terminal, timed lines in a log file."""

from __future__ import annotations

import logging
from typing import Any

from uqsonet.operator.progress import ProgressBar

LOG = logging.getLogger("uqsonet")

SKILLS = {
    "skill_mean_": "skill of mean",
    "skill_std_": "skill of std",
    "over_cokriging_": "over cokriging",
}
"""How columns of a log begin that have a number of sensors at their end, and what they are."""


class ProgressDisplay(ProgressBar):
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
