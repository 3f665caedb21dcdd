"""What the default run takes, stage by stage: as it was measured, or else by an estimate.

    python -m benchmarks.default_run published/default_run.csv

This reads the logs of a finished run in `results`, before other experiments use that folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from benchmarks.rows import Row
from benchmarks.timing import hardware
from benchmarks.workloads import configuration
from uqsonet.files import write_text
from uqsonet_study.estimate import estimate
from uqsonet_study.pipeline import Plan
from uqsonet_study.report.provenance import stage_costs

COSTS = Path("published/default_run.csv")
"""Of the last default run: stage, jobs, core-minutes, and GiB of the largest job."""


def record(results: Path, path: Path) -> None:
    """Write what the stages of a run took: time of the processor, so other work does not count."""
    found = stage_costs(results, configuration("tuned"))
    if "evaluate" not in found:
        raise SystemExit(f"{results}: no finished default run")
    rows = [
        {
            "stage": stage,
            "jobs": cost["jobs"],
            "core_minutes": round(60 * cost["processor_hours"], 1),
            "gib": round(cost["peak_memory_mib"] / 1024, 1),
        }
        for stage, cost in found.items()
    ]
    write_text(path, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


def rows(quick: bool) -> list[Row]:
    """Return the core-minutes of the stages, and their sum.

    They are those of the last default run that was recorded. If none was, they are what `uqsonet
    estimate` says, and the rows say so.
    """
    if COSTS.is_file():
        how, recorded = "default run", pd.read_csv(COSTS).to_dict("records")
        costs = [(c["stage"], c["jobs"], float(c["core_minutes"])) for c in recorded]
    elif quick:
        return []
    else:
        how = "default run, estimated"
        found = estimate(configuration("tuned"), Plan(configuration("tuned")).files())
        costs = [(c.stage, c.total, c.minutes) for c in found]
    machine, unit = hardware(1), "core-min"
    lines = [Row(f"{how}, {stage}: {jobs} jobs", machine, m, unit) for stage, jobs, m in costs if m]
    return [*lines, Row(f"{how}, sum of the stages", machine, sum(c[2] for c in costs), unit)]


if __name__ == "__main__":
    record(Path("results"), Path(sys.argv[1]))
