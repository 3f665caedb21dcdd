"""Tables of errors: (a) ours beside the paper's, (b) with intervals, (c) skill, baselines in each.

Rows are sensor counts or noise levels. The other coordinate, the cut line and the method make
groups of columns, in the paper's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from uqsonet.problems import get_problem
from uqsonet_study.config import Config
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.names import BRIEF, FLOOR, METRICS, method_title
from uqsonet_study.report.numbers import Number
from uqsonet_study.report.tables.captions import budget, noise, opening, tests
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table
from uqsonet_study.report.tables.places import UNTRAINED, Group, Places
from uqsonet_study.report.tables.records import ERRORS, SKILLS, error_records
from uqsonet_study.report.tables.text import (
    DAGGER,
    EMPTY,
    HUNDREDTHS,
    L2,
    PERCENT,
    PLUS_MINUS,
    M,
    Text,
    U,
    plain,
    quoted,
    text,
)


def errors_table(name: str, config: Config, summary: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    """Return a table of errors and its numbers in long form, errors in percent.

    Raises
    ------
    DataError
        If the summary lacks a number or contradicts the configuration.
    """
    places = Places(name, config, summary)
    titles = {
        "paper": text(
            "Errors, evaluation {label}: mean {pm} standard deviation over trials. "
            "Bold: better than the paper's value.",
            label=quoted("paper"),
            pm=PLUS_MINUS,
        ),
        "precise": text(
            "Errors, evaluation {label}, with 95{percent} bootstrap intervals.",
            label=quoted("precise"),
            percent=PERCENT,
        ),
        "skill": text(
            "Skill 1 {minus} err / err(sensor-free), evaluation {label}, with 95{percent} "
            "intervals. {dagger} Includes zero: no skill is shown.",
            minus=Text("$-$", "−"),
            label=quoted("precise"),
            percent=PERCENT,
            dagger=DAGGER,
        ),
    }
    columns = {
        "paper": [*_beside_paper(places), *_plain(places, "paper", UNTRAINED, depth=1)],
        "precise": [
            *_intervals(places, ERRORS, 100),
            *_plain(places, "precise", ("sensor_free", FLOOR)),
        ],
        "skill": [*_intervals(places, SKILLS, 1), *_plain(places, "precise", (FLOOR,), SKILLS, 1)],
    }
    digits = max(len(f"{row:g}".partition(".")[2]) for row in places.rows)
    labels = tuple((plain(f"{row:.{digits}f}"),) for row in places.rows)
    panels = [
        Panel(titles[key], (places.corner,), labels, tuple(found))
        for key, found in columns.items()
        if found
    ]
    title = get_problem(places.cases[0].problem).title
    return Table(name, title, _caption(places), tuple(panels)), error_records(places)


def _caption(places: Places) -> Text:
    lines = any(case.cut_lines for case in places.cases)
    return text(
        "{opening} Relative {L2} errors of the conditional mean and standard deviation of {u} "
        "against the reference, {scale}, given {m} sensors{lines}. {noise}; {budget}. {tests}.",
        opening=opening(places.config, places.cases),
        L2=L2,
        u=U,
        scale=HUNDREDTHS,
        m=M,
        lines=", on grid lines and on the whole domain" if lines else "",
        noise=noise(places.cases),
        budget=budget(places.config, places.cases),
        tests=tests(places.config, places.cases),
    )


def _groups(places: Places, metrics: Sequence[str]) -> list[Group]:
    """Return the groups of columns; skill is measured on the whole domain alone."""
    return [group for group in places.groups if metrics is not SKILLS or not group.line]


def _heads(
    places: Places, method: str, group: Group, metrics: Sequence[str] = ERRORS
) -> tuple[Text, ...]:
    title = places.title(group, _groups(places, metrics))
    return (plain(method_title(method)), *((title,) if title else ()))


def _column(heads: Sequence[Text], cells: Iterable[Cell]) -> list[Column]:
    """Return the column, nothing where all its cells are empty."""
    found = tuple(cells)
    there = any(cell.value is not None for cell in found)
    return [Column(tuple(heads), found)] if there else []


def _beside_paper(places: Places) -> list[Column]:
    columns = []
    for method in places.methods:
        for group in places.groups:
            for metric in ERRORS:
                heads = (*_heads(places, method, group), METRICS[metric])
                theirs, ours = [], []
                for row in places.rows:
                    paper = places.paper(method, metric, group, row)
                    found = places.number("paper", method, metric, group, row)
                    theirs.append(Cell(paper.paper, paper.paper_pm) if paper else Cell())
                    ours.append(_with_spread(found, paper and paper.paper))
                columns += _column((*heads, plain("paper")), theirs)
                columns += _column((*heads, plain("ours")), ours)
    return columns


def _with_spread(found: Number | None, paper: float | None) -> Cell:
    if found is None:
        return Cell()
    better = paper is not None and 100 * found.value < paper
    return Cell(100 * found.value, 100 * found.pm, bold=better)


def _plain(
    places: Places,
    label: TestEvaluation,
    methods: Sequence[str],
    metrics: Sequence[str] = ERRORS,
    scale: float = 100,
    depth: int = 0,
) -> list[Column]:
    """Return columns of values without spread, with `depth` empty headings below."""
    columns = []
    for method in methods:
        for group in _groups(places, metrics):
            for metric in metrics:
                numbers = [places.number(label, method, metric, group, row) for row in places.rows]
                cells = [Cell(scale * found.value) if found else Cell() for found in numbers]
                head = BRIEF.get(metric, METRICS[metric])
                heads = _heads(places, method, group, metrics)
                columns += _column((*heads, head, *depth * (EMPTY,)), cells)
    return columns


def _intervals(places: Places, metrics: Sequence[str], scale: float) -> list[Column]:
    """Return columns of the precise evaluation with 95 % intervals; no skill is marked."""
    columns = []
    for method in (*places.methods, "cokriging"):
        for group in _groups(places, metrics):
            for metric in metrics:
                cells = []
                for row in places.rows:
                    found = places.number("precise", method, metric, group, row)
                    mark = found and metrics is SKILLS and found.low <= 0 <= found.high
                    cells.append(interval_cell(found, scale, DAGGER if mark else EMPTY))
                heads = _heads(places, method, group, metrics)
                columns += _column((*heads, METRICS[metric]), cells)
    return columns


def interval_cell(found: Number | None, scale: float, mark: Text = EMPTY, digits: int = 2) -> Cell:
    """Return a number with its interval, an empty cell for None."""
    if found is None:
        return Cell()
    ends = scale * found.low, scale * found.high
    return Cell(scale * found.value, interval=ends, mark=mark, digits=digits)
