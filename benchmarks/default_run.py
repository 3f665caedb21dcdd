"""What the default run took, stage by stage.

    python -m benchmarks.default_run published/default_run.csv

This reads the logs of a finished run in `results`, before other experiments use that folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from benchmarks.rows import Row
from benchmarks.timing import hardware
from uqsonet.storage.files import write_text
from uqsonet_study.report.provenance import stage_costs

COSTS = Path("published/default_run.csv")
"""Of the last default run: stage, jobs, core-minutes, and GiB of the largest job."""


def record(results: Path, path: Path) -> None:
    """Write what the stages of a run took: time of the processor, so other work does not count."""
    rows = [
        {
            "stage": stage,
            "jobs": cost["jobs"],
            "core_minutes": round(60 * cost["processor_hours"], 1),
            "gib": round(cost["peak_memory_mib"] / 1024, 1),
        }
        for stage, cost in stage_costs(results).items()
    ]
    write_text(path, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


def rows(quick: bool) -> list[Row]:
    """Return the core-minutes of the last default run, as they were recorded, and their sum."""
    del quick
    machine, unit = hardware(1), "core-min"
    total = "default run, sum of the stages"
    if not COSTS.is_file():
        return [Row(total, machine, None, unit, f"{COSTS} is missing")]
    costs = pd.read_csv(COSTS).to_dict("records")
    minutes = [float(cost["core_minutes"]) for cost in costs]
    found = [
        Row(f"default run, {cost['stage']}: {cost['jobs']} jobs", machine, each, unit)
        for cost, each in zip(costs, minutes, strict=True)
    ]
    return [*found, Row(total, machine, sum(minutes), unit)]


if __name__ == "__main__":
    record(Path("results"), Path(sys.argv[1]))
