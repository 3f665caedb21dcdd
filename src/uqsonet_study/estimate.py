"""What a run will cost, from what the jobs of a published full run took.

`minutes.csv` holds core-minutes of a job by stage, for simulations also by problem. A run with
other numbers of iterations, sets or samples takes as much longer or shorter.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from uqsonet_study.config import Config
from uqsonet_study.pipeline import Plan

FOLDERS = {
    "data": "simulate",
    "sensors": "sensors",
    "reference": "reference",
    "train": "train",
    "law": "law",
    "scores": "evaluate",
}
"""Folder of results -> the stage that writes there."""


@dataclass(frozen=True)
class Cost:
    """Work left in one stage."""

    stage: str
    # jobs whose outputs are missing, and all of them
    jobs: int
    total: int
    minutes: float  # of one core


def estimate(config: Config, left: Collection[str] | None = None) -> list[Cost]:
    """Return the work left, stage by stage.

    Parameters
    ----------
    left : collection of str, optional
        Files that are to be made; by default all that do not exist.
    """
    with Path(__file__).with_name("minutes.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    measured = {(row["stage"], row["problem"]): float(row["core_minutes"]) for row in rows}
    found = list[Cost]()
    files = sorted(Plan(config).files())
    for folder, stage in FOLDERS.items():
        mine = [file for file in files if file.startswith(f"{config.results}/{folder}/")]
        lacking = [f for f in mine if (f in left if left is not None else not Path(f).exists())]
        minutes = [
            measured.get((stage, Path(file).stem), measured.get((stage, ""), 0.0))
            for file in lacking
        ]
        if mine or stage != "law":
            found.append(Cost(stage, len(lacking), len(mine), sum(minutes)))
    return found


def report_of(config: Config, costs: list[Cost], cores: int) -> list[str]:
    """Return lines that say what is left."""
    if not any(cost.jobs for cost in costs):
        return [f"Nothing is left in {config.results}/."]
    lines = [f"Work left in {config.results}/, as long as jobs of the published run took:"]
    lines += [
        f"  {cost.stage:10} {cost.jobs:5} of {cost.total:5} jobs {cost.minutes:8.1f} core-minutes"
        for cost in costs
    ]
    total = sum(cost.minutes for cost in costs)
    return [
        *lines,
        f"About {total / 60:.2f} core-hours, at best {total / cores:.0f} minutes on {cores} cores. "
        "For less: fewer `trials`, `sets` or `iterations` in config.yaml, or",
        "`--configfile config/smoke.yaml` for everything in minutes.",
    ]
