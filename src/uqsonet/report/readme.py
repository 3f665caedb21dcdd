"""The README's tables of results, made from `published/` so that no number is typed by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from uqsonet.report.markers import replaced
from uqsonet.report.names import method_title
from uqsonet.report.paper import paper_cells

TITLES = {
    "tab:1d-pde-error": "1D diffusion",
    "tab:1d-pde-addnoise-error": "1D diffusion, noise 0.1 to 1",
    "tab:2d-pde-error": "2D Poisson, noise 0 to 1",
    "tab:1d-sde-error": "1D SDE",
    "tab:2d-sde-error": "2D SDE, cut lines",
    "tab:2d-ns-error": "Navier-Stokes",
}


def overview_table(card: pd.DataFrame) -> str:
    """Return a Markdown table of all published tables of errors, from their scorecard."""
    lines = [
        "| table | method | cells | at or below the paper | mean: paper, ours, cokriging "
        "| std: paper, ours, cokriging |",
        "|---|---|---|---|---|---|",
    ]
    run = card[card["precise"].notna()]
    for table, method in dict.fromkeys(zip(run["table"], run["method"], strict=True)):
        part = run[(run["table"] == table) & (run["method"] == method)]
        whole = (card["table"] == table) & (card["method"] == method)
        good = (part["precise"] <= part["paper"]).tolist()
        row = [TITLES[table], method_title(method), str(whole.sum())]
        row.append(f"{sum(good)} of {len(good)}")
        for metric in ("err_mean", "err_std"):
            some = part[part["metric"] == metric]
            averages = some[["paper", "precise", "precise_cokriging"]].mean()
            row.append(", ".join(f"{value:.1f}" for value in averages) if len(some) else "--")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


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


def updated(readme: str, tables: dict[str, str]) -> str:
    """Return the README with the blocks between markers replaced.

    Raises
    ------
    DataError
        If the markers are missing.
    """
    for name, table in tables.items():
        readme = replaced(readme, name, table, "README.md")
    return readme


def published_tables(folder: Path) -> dict[str, str]:
    """Return the tables made from `published/` by the names of their markers."""
    return {
        "overview": overview_table(pd.read_csv(folder / "scorecard.csv")),
        "results": results_table(pd.read_csv(folder / "summary" / "diffusion1d.csv")),
    }
