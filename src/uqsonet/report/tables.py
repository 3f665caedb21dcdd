"""The paper's error tables with our numbers beside the paper's, and all of them as one document.

An experiment gives one float with three panels: (a) the paper's evaluation, ours beside the
paper's; (b) the precise evaluation with 95 % intervals; (c) skill over the sensor-free predictor.
Rows are sensor counts; columns follow from the methods that were scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pandas as pd

from uqsonet.config import BASELINES, Config
from uqsonet.errors import DataError
from uqsonet.report.latex import (
    DOCUMENT,
    FLOAT,
    Cell,
    Column,
    escape,
    panel,
    tabular,
    with_interval,
    with_spread,
)
from uqsonet.report.names import FLOOR, METRICS, caption, label, method_title
from uqsonet.report.numbers import Numbers
from uqsonet.report.paper import cells_of
from uqsonet.storage import write_text

ERRORS = ("err_mean", "err_std")
SKILLS = ("skill_mean", "skill_std")
DAGGER = r"$^\dagger$"


def _errors_beside_paper(numbers: Numbers, config: Config) -> list[Column]:
    """Return the columns of panel (a)."""
    chosen = config.experiments[numbers.experiment]
    printed = cells_of(chosen)
    columns = []
    for method in chosen.methods:
        for metric in numbers.metrics("paper", method, ERRORS):
            heads = (escape(method_title(method)), METRICS[metric])
            theirs, ours = [], []
            for m in numbers.counts:
                paper = printed.get((method, m, metric))
                row = numbers.get("paper", method, metric, m)
                better = paper is not None and 100 * row.value < paper.paper
                theirs.append(with_spread(paper.paper, paper.paper_pm) if paper else Cell())
                ours.append(with_spread(100 * row.value, 100 * row.pm, bold=better))
            columns.append(Column((*heads, "paper"), tuple(theirs)))
            columns.append(Column((*heads, "ours"), tuple(ours)))
    for method in (*BASELINES, FLOOR):
        columns += _plain(numbers, "paper", method, ERRORS, below=("",))
    return columns


def _plain(
    numbers: Numbers,
    evaluation: str,
    method: str,
    metrics: Sequence[str],
    scale: float = 100,
    below: tuple[str, ...] = (),
) -> list[Column]:
    """Return columns of values without spread, for predictors that are not trained."""
    return [
        Column(
            (escape(method_title(method)), METRICS[metric], *below),
            tuple(
                Cell(f"${scale * numbers.get(evaluation, method, metric, m).value:.2f}$")
                for m in numbers.counts
            ),
        )
        for metric in metrics
    ]


def _intervals(numbers: Numbers, method: str, metrics: Sequence[str], scale: float) -> list[Column]:
    """Return columns of the precise evaluation with 95 % intervals; no skill is marked."""
    columns = []
    for metric in numbers.metrics("precise", method, metrics):
        cells = []
        for m in numbers.counts:
            row = numbers.get("precise", method, metric, m)
            mark = DAGGER if metric in SKILLS and row.low <= 0 <= row.high else ""
            low, high = scale * row.low, scale * row.high
            cells.append(with_interval(scale * row.value, low, high, mark))
        columns.append(Column((escape(method_title(method)), METRICS[metric]), tuple(cells)))
    return columns


def _panels(numbers: Numbers, config: Config) -> list[tuple[str, list[Column]]]:
    """Return title and columns of each panel."""
    learned = config.experiments[numbers.experiment].methods
    errors, skills = [], []
    for method in (*learned, "cokriging"):
        errors += _intervals(numbers, method, ERRORS, 100)
        skills += _intervals(numbers, method, SKILLS, 1)
    for method in ("sensor_free", FLOOR):
        errors += _plain(numbers, "precise", method, ERRORS)
    skills += _plain(numbers, "precise", FLOOR, SKILLS, scale=1)
    return [
        (
            r"(a) Errors, evaluation ``paper'': mean $\pm$ standard deviation over trials. "
            r"Bold: better than the paper's value.",
            _errors_beside_paper(numbers, config),
        ),
        (r"(b) Errors, evaluation ``precise'', with 95\,\% bootstrap intervals.", errors),
        (
            r"(c) Skill $1 - \mathrm{err}/\mathrm{err}(\text{sensor-free})$, evaluation "
            rf"``precise'', with 95\,\% intervals. {DAGGER}\,Includes zero: no skill is shown.",
            skills,
        ),
    ]


def _records(numbers: Numbers, config: Config) -> pd.DataFrame:
    """Return the numbers of the table in long form, errors in percent, the paper's beside them."""
    chosen = config.experiments[numbers.experiment]
    printed, rows = cells_of(chosen), []
    head = {"experiment": numbers.experiment, "table": chosen.table, "scale": config.scale}
    head |= {"recipe": config.recipe_of(numbers.experiment), "noise_std": chosen.noise_std}
    methods = (*chosen.methods, *BASELINES, FLOOR)
    for evaluation, method in product(("paper", "precise"), methods):
        skills = numbers.metrics(evaluation, method, SKILLS) if method != "sensor_free" else ()
        for metric in (*numbers.metrics(evaluation, method, ERRORS), *skills):
            scale, unit = (100, "percent") if metric in ERRORS else (1, "1")
            for m in numbers.counts:
                found = asdict(numbers.get(evaluation, method, metric, m))
                found |= {key: scale * found[key] for key in ("value", "pm", "low", "high")}
                cell = printed.get((method, m, metric)) if evaluation == "paper" else None
                paper = {"paper": cell.paper, "paper_pm": cell.paper_pm} if cell else {}
                where = {"evaluation": evaluation, "method": method, "sensors": m, "metric": metric}
                rows.append(head | where | {"unit": unit} | found | paper)
    return pd.DataFrame(rows)


def error_table(
    summary: pd.DataFrame, experiment: str, config: Config, out_tex: Path, out_csv: Path
) -> None:
    """Write the LaTeX table of an experiment and its numbers as CSV.

    Parameters
    ----------
    summary : DataFrame
        As `uqsonet.report.summary.summarise` returns it.
    experiment : str
    config : Config
        Gives methods (columns), sensor counts (rows), label and caption.
    out_tex, out_csv : Path
        The CSV holds the same numbers unrounded, errors in percent.

    Raises
    ------
    DataError
        If the summary lacks a number or contradicts the configuration.
    """
    numbers = Numbers(summary, experiment, config)
    labels = [f"{m}" for m in numbers.counts]
    panels = [
        panel(title, tabular("$m$", labels, columns)) for title, columns in _panels(numbers, config)
    ]
    text = FLOAT % {
        "caption": caption(config, experiment),
        "label": label(config, experiment),
        "panels": "\n".join(panels),
    }
    write_text(out_tex, text)
    records = _records(numbers, config)
    write_text(out_csv, records.to_csv(index=False, float_format="%.12g", lineterminator="\n"))


def all_tables(tables: Sequence[Path], out: Path) -> None:
    """Write one document that holds every table and compiles by itself, and one CSV beside it.

    Parameters
    ----------
    tables : sequence of Path
        Files of `error_table`, each with its CSV of the same name beside it.
    out : Path
        The `.tex` file; the CSV gets the same name.
    """
    bodies, records = [], []
    for path in tables:
        try:
            bodies.append(Path(path).read_text(encoding="utf-8").strip())
            records.append(pd.read_csv(Path(path).with_suffix(".csv"), dtype=str))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: table or its CSV cannot be read ({error})") from None
    write_text(out, DOCUMENT % {"tables": "\n\\clearpage\n".join(bodies)})
    merged = pd.concat(records, ignore_index=True)
    write_text(out.with_suffix(".csv"), merged.to_csv(index=False, lineterminator="\n"))
