"""The page of a run, section by section of the paper: which tables and figures stand where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from uqsonet.errors import DataError
from uqsonet.problems import get_problem
from uqsonet_study.config import (
    AblationTable,
    CalibrationFigure,
    Config,
    CostTable,
    NetworkTable,
    ScoreTable,
    SpectraFigure,
)
from uqsonet_study.report.page.html_page import FigureView, Section, TableView, write_page
from uqsonet_study.report.page.readings import load_readings
from uqsonet_study.report.provenance import provenance_of

Captions = Mapping[str, Sequence[str]]
"""Name of a figure -> its title and caption."""


def build_page(
    config: Config,
    captions: Captions,
    results: Path,
    tables: Sequence[Path],
    figures: Sequence[Path],
    scorecard: Path,
    out: Path,
) -> None:
    """Write `report.html` of a run.

    Parameters
    ----------
    config : Config
    captions : mapping of str to (title, caption)
        Of every figure, by file name without suffix.
    results : Path
        Folder of results, whose logs say what each stage took.
    tables : sequence of Path
        JSON files of `uqsonet_study.report.tables.write`.
    figures : sequence of Path
        PNG files.
    scorecard : Path
    out : Path

    Raises
    ------
    DataError
        If a file is missing or cannot be read.
    """
    views = [_table(path) for path in tables]
    pictures = {path.stem: _figure(path, captions[path.stem]) for path in figures}
    write_page(
        _sections(config, views, pictures),
        pd.read_csv(scorecard),
        provenance_of(results, config),
        load_readings(),
        out,
        config.scale,
    )


def _figure(path: Path, caption: Sequence[str]) -> FigureView:
    title, text = caption
    return FigureView(path.stem, title, text, path)


def _table(path: Path) -> TableView:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        panels = tuple((title, table) for title, table in found["panels"])
        title = f"tab:{found['name']}. {found['title']}"
        return TableView(found["name"], title, found["caption_html"], panels)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a table for the page ({error})") from None


def _sections(
    config: Config, tables: Sequence[TableView], figures: Mapping[str, FigureView]
) -> list[Section]:
    """Return a section for each problem, then one for what concerns several of them."""
    shown = {e: config.experiments[e].problem for e in config.selected}
    across = NetworkTable | CostTable | AblationTable | ScoreTable
    whole = [name for name, table in config.tables.items() if isinstance(table, across)]
    drawn = {name: figure for name, figure in config.figures.items() if name in figures}
    together = CalibrationFigure | SpectraFigure
    several = [name for name, figure in drawn.items() if isinstance(figure, together)]
    found = []
    for name in sorted(set(shown.values()), key=lambda name: get_problem(name).section):
        own = [e for e, problem in shown.items() if problem == name]
        problem = get_problem(name)

        def concerns(output: object, own: list[str] = own) -> bool:
            return any(e in own for e in getattr(output, "experiments", ()))

        ours = [v for v in tables if v.name not in whole and concerns(config.tables[v.name])]
        plots = [figures[n] for n, f in drawn.items() if n not in several and concerns(f)]
        plots += [view for n, view in figures.items() if n.rpartition("_")[0] in own]
        title = f"Section {problem.section}: {problem.title}"
        experiments = "Experiments: " + ", ".join(own) + "."
        found.append(Section(title, experiments, tuple(ours), tuple(plots)))
    rest = tuple(view for view in tables if view.name in whole)
    if rest or several:
        plots = tuple(figures[name] for name in several)
        found.append(Section("All problems", "", rest, plots))
    return found
