"""The page of a run, section by section of the paper: which tables and figures stand where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import (
    AblationTable,
    CalibrationFigure,
    Config,
    CostTable,
    LawTable,
    NetworkTable,
    PlacementFigure,
    PlacementTable,
    ScoreTable,
    SpectraFigure,
)
from uqsonet_study.report.names import OWN, problem_about
from uqsonet_study.report.page.html_page import FigureView, Section, TableView, write_page
from uqsonet_study.report.provenance import provenance_of

ACROSS = (
    NetworkTable
    | CostTable
    | AblationTable
    | ScoreTable
    | LawTable
    | PlacementTable
    | PlacementFigure
    | CalibrationFigure
    | SpectraFigure
)
"""What shows several problems beside each other."""


def build_page(
    config: Config,
    captions: Mapping[str, Sequence[str]],
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
    sections = _sections(
        config,
        [_table(path) for path in tables],
        [_figure(path, captions[path.stem]) for path in figures],
    )
    provenance = provenance_of(results, config)
    write_page(sections, pd.read_csv(scorecard), provenance, out, config.scale)


def _figure(path: Path, caption: Sequence[str]) -> FigureView:
    title, text = caption
    return FigureView(path.stem, title, text, path)


def _table(path: Path) -> TableView:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        title = f"tab:{found['name']}. {found['title']}"
        return TableView(found["name"], title, found["caption_html"], found["panels"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a table for the page ({error})") from None


def _sections(
    config: Config, tables: Sequence[TableView], figures: Sequence[FigureView]
) -> list[Section]:
    """Return the model, then a section for each problem, then what concerns several of them."""
    problem_of = {e: config.experiments[e].problem for e in config.selected}
    found = {"model": Section("The model", "")}
    for name in sorted(set(problem_of.values()), key=problem_about):
        section, called = problem_about(name)
        own = ", ".join(e for e in config.selected if problem_of[e] == name)
        title = f"Section {section}: {called}" if section[0].isdigit() else called
        title = f"Own data: {called}" if section == OWN else title
        found[name] = Section(title, f"Experiments: {own}.")
    found["all"] = Section("All problems", "")

    def home(name: str, outputs: Mapping[str, object]) -> str:
        """Return where an output stands. Pictures of data and training are not declared."""
        output = outputs.get(name)
        if isinstance(output, ACROSS):
            return "all"
        experiments = getattr(output, "experiments", [name.rpartition("_")[0]])
        return next((problem_of[e] for e in experiments if e in problem_of), "model")

    for table in tables:
        found[home(table.name, config.tables)].tables.append(table)
    for figure in figures:
        found[home(figure.name, config.figures)].figures.append(figure)
    return [section for section in found.values() if section.tables or section.figures]
