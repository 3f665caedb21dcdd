"""The README's table of results, made from `published/` so that no number is typed by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from uqsonet.report.markers import replaced
from uqsonet.report.paper import paper_cells


def results_table(summary: pd.DataFrame) -> str:
    """Return a Markdown table of Table 1 from a published summary of `diffusion1d`."""
    cells = paper_cells()
    cells = cells[(cells.table == "tab:1d-pde-error") & (cells.method == "uqsonet")]
    paper = cells.set_index(["sensors", "metric"]).paper
    ours = summary.set_index(["method", "evaluation", "sensors", "metric"])

    def pair(method: str, evaluation: str, sensors: int) -> str:
        found = [
            100 * float(ours.loc[(method, evaluation, sensors, metric), "value"])
            for metric in ("err_mean", "err_std")
        ]
        return " / ".join(f"{value:.1f}" for value in found)

    lines = [
        "| sensors | paper | ours, 10 sets | ours, 200 sets | cokriging | no sensors |",
        "|---|---|---|---|---|---|",
    ]
    for m in sorted(cells.sensors.unique()):
        theirs = f"{paper[m, 'err_mean']:.1f} / {paper[m, 'err_std']:.1f}"
        row = [
            theirs,
            pair("uqsonet", "paper", m),
            pair("uqsonet", "precise", m),
            pair("cokriging", "precise", m),
            pair("sensor_free", "precise", m),
        ]
        lines.append(f"| {m} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def updated(readme: str, table: str) -> str:
    """Return the README with the block between the markers replaced.

    Raises
    ------
    DataError
        If the markers are missing.
    """
    return replaced(readme, "results", table, "README.md")


def published_table(folder: Path) -> str:
    """Return the table made from `published/`."""
    return results_table(pd.read_csv(folder / "summary" / "diffusion1d.csv"))
