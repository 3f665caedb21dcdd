"""Table of section 4.1 from runs with gaps (`beyond.gaps`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet_study.report.printing import PERCENT, Panel, Table, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.write import write_files
from uqsonet_study.settings import Gaps

COLUMNS = ["seen", "sensors", "metric", "unit", "value", "pm"]
METRICS = {"mean": f"mean,{PERCENT}", "std": f"std,{PERCENT}"}


def write_gaps(config: Gaps, scale: str, answers: Sequence[Path], tables: Path) -> None:
    """Write table ``gaps`` into a folder, from a file for each number of points."""
    read = (read_numbers(path, COLUMNS, "value") for path in answers)
    found = pd.concat(read, ignore_index=True).astype({"seen": str})
    about = {"table": "tab:gaps", "experiment": "gaps", "scale": scale, "recipe": ""}

    def text(record: Any) -> str:
        return text_of(record.value, record.pm, digits=1)

    rows = {count: str(count) for count in sorted(set(found["sensors"]))}
    titles = {str(seen): f"{seen} of 201" for seen in config.seen} | {"all": "all, cokriging"}
    cells = pivot(found, {"seen": titles, "metric": METRICS}, rows, text, "$m$")
    caption = (
        "(section 4.1, beyond the paper). Relative $L_2$ error of mean and std of $u$ given $m$ "
        f"exact sensors of $k$, ± its standard error over {config.sets} sets. Of each of "
        f"{config.training} runs, $\\log k$ and $u$ are read at so many random points, with noise "
        "of 2 \\% of their std; cokriging has complete runs."
    )
    table = Table("gaps", "Runs with gaps.", caption, (Panel("", cells),))
    write_files(table, found.assign(**about), scale, tables)
