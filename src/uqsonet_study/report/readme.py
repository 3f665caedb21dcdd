"""Tables of results in README and docs, made from `published/`: no number is typed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from pathlib import Path

import pandas as pd

from uqsonet_study.config import BASELINES
from uqsonet_study.report.markers import replaced
from uqsonet_study.report.names import method_title
from uqsonet_study.report.paper import paper_cells

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


def ablation_rows(table: pd.DataFrame) -> str:
    """Return a Markdown table of validation skills, from the CSV of the table `ablation`."""
    lines = [
        "| problem | recipe | skill of the mean: average, worst m | skill of the std: average, "
        "worst m | minutes a training |",
        "|---|---|---|---|---|",
    ]
    for problem, recipe, part in _experiments(table):
        found = part.set_index("metric")

        def cell(metric: str, digits: int, found: pd.DataFrame = found) -> str:
            value, pm = (float(x) for x in found.loc[metric, ["value", "pm"]].to_list())
            return f"{value:.{digits}f}" + ("" if isnan(pm) else f" ± {pm:.{digits}f}")

        pairs = [
            f"{cell(metric, 3)}, {cell(f'{metric}_worst', 3)}"
            for metric in ("skill_mean", "skill_std")
        ]
        lines.append("| " + " | ".join([problem, recipe, *pairs, cell("minutes", 1)]) + " |")
    return "\n".join(lines)


def _experiments(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield problem, recipe and rows of each experiment, named by both."""
    for head, part in table.groupby(["experiment", "recipe"], sort=False):
        assert isinstance(head, tuple)
        experiment, recipe = map(str, head)
        yield experiment.removesuffix(f"_{recipe}"), recipe.replace("_", " "), part


def part_rows(table: pd.DataFrame) -> str:
    """Return a Markdown table of errors in percent by m, from the CSV of the table `parts`."""
    lines = ["| problem | recipe | m | mean | std | CRPS gain |", "|---|---|---|---|---|---|"]
    learned = table.loc[~table["method"].isin(BASELINES)]
    for problem, recipe, part in _experiments(learned):
        values = part.pivot_table(index="sensors", columns="metric", values="value")
        cells = [
            ", ".join(f"{value:.1f}" for value in values[metric])
            for metric in ("err_mean", "err_std", "gain_crps")
        ]
        counts = ", ".join(str(m) for m in values.index)
        lines.append("| " + " | ".join([problem, recipe, counts, *cells]) + " |")
    return "\n".join(lines)


def updated(document: str, tables: dict[str, str], name: str = "README.md") -> str:
    """Return a document with the blocks between markers replaced.

    Raises
    ------
    DataError
        If the markers are missing.
    """
    for marker, table in tables.items():
        document = replaced(document, marker, table, name)
    return document


def published_tables(folder: Path) -> dict[str, dict[str, str]]:
    """Return document -> marker -> table for all that is made from `published/`."""
    found = {
        "README.md": {
            "overview": overview_table(pd.read_csv(folder / "scorecard.csv")),
            "results": results_table(pd.read_csv(folder / "summary" / "diffusion1d.csv")),
        }
    }
    for name, rows in (("ablation", ablation_rows), ("parts", part_rows)):
        path = folder / "tables" / f"{name}.csv"
        if path.is_file():
            found.setdefault("docs/model.md", {})[name] = rows(pd.read_csv(path))
    return found
