"""Tables of bands: how wide the predicted standard deviations are beside the reference's.

The paper's appendix on the deep ensemble prints no numbers, so these stand beside its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from uqsonet_study.config import BandTable, Case, Config
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.names import FLOOR, METRICS, method_title
from uqsonet_study.report.numbers import Numbers
from uqsonet_study.report.tables.captions import budget, noise, opening, tests
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table, digits_of
from uqsonet_study.report.tables.errors import interval_cell
from uqsonet_study.report.tables.records import ERRORS, case_columns, number_columns
from uqsonet_study.report.tables.text import (
    HUNDREDTHS,
    L2,
    PERCENT,
    PLUS_MINUS,
    STD,
    M,
    Text,
    plain,
    quoted,
    text,
)

WIDTH, NARROWER = "mean_std", "narrower"


def bands_table(name: str, config: Config, summary: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    """Return a table of bands and its numbers in long form, errors and shares in percent."""
    table = config.tables[name]
    assert isinstance(table, BandTable)
    cases = config.cases_of([e for e in table.experiments if e in config.selected])
    panels, rows = [], []
    for case in cases:
        numbers = Numbers(summary, case.name, config)
        where = text(" Case {name}.", name=case.name) if len(cases) > 1 else plain("")
        panels += _panels(case, numbers, where)
        head = {"table": f"tab:{name}"} | case_columns(config, case)
        rows += [head | row for row in _rows(case, numbers)]
    methods = ", ".join(method_title(method) for method in cases[0].methods)
    return Table(name, f"Bands of {methods}", _caption(config, cases), tuple(panels)), pd.DataFrame(
        rows
    )


def _caption(config: Config, cases: Sequence[Case]) -> Text:
    return text(
        "{opening} Is the predicted spread narrower than the reference's? Relative {L2} errors "
        "({scale}), mean width (the mean of {std} over the domain), its ratio to the reference's, "
        "and the share of the domain where the predicted {std} is below the reference's. The "
        "paper, which prints no numbers here, calls the bands of the deep ensemble consistently "
        "narrower: that means a ratio below 1 and a share near 100{percent} for every {m}; a "
        "calibrated spread has a ratio near 1 and a share near 50{percent}. {noise}; {budget}. "
        "{tests}.",
        opening=opening(config, cases),
        L2=L2,
        scale=HUNDREDTHS,
        std=STD,
        percent=PERCENT,
        m=M,
        noise=noise(cases),
        budget=budget(config, cases),
        tests=tests(config, cases),
    )


def _panels(case: Case, numbers: Numbers, where: Text) -> list[Panel]:
    last = case.evaluations[-1]
    titles = {
        "paper": text(
            "Errors, evaluation {label}: mean {pm} standard deviation over trials (a single "
            "ensemble has none).{where}",
            label=quoted("paper"),
            pm=PLUS_MINUS,
            where=where,
        ),
        "precise": text(
            "Errors, evaluation {label}, with 95{percent} bootstrap intervals.{where}",
            label=quoted("precise"),
            percent=PERCENT,
            where=where,
        ),
    }
    widths = text(
        "Widths, evaluation {label}, with 95{percent} bootstrap intervals.{where}",
        label=quoted(last),
        percent=PERCENT,
        where=where,
    )
    found = [(titles[label], _errors(case, numbers, label)) for label in case.evaluations]
    labels = tuple((plain(m),) for m in numbers.counts)
    return [
        Panel(title, (M,), labels, tuple(columns))
        for title, columns in [*found, (widths, _widths(case, numbers, last))]
    ]


def _errors(case: Case, numbers: Numbers, label: TestEvaluation) -> list[Column]:
    columns = []
    for method in case.methods:
        for metric in numbers.metrics(label, method, ERRORS):
            cells = []
            for m in numbers.counts:
                row = numbers.get(label, method, metric, m)
                spread = Cell(100 * row.value, 100 * row.pm)
                cells.append(spread if label == "paper" else interval_cell(row, 100))
            heads = plain(method_title(method)), METRICS[metric]
            columns.append(Column(heads, tuple(cells)))
    return columns


def _widths(case: Case, numbers: Numbers, label: TestEvaluation) -> list[Column]:
    reference = [numbers.get(label, FLOOR, WIDTH, m).value for m in numbers.counts]
    digits = digits_of(reference)
    cells = tuple(Cell(value, digits=digits) for value in reference)
    columns = [Column((plain("Reference"), plain("width")), cells)]
    for method in _with_spread(case, numbers, label):
        title = plain(method_title(method))
        widths = [numbers.get(label, method, WIDTH, m) for m in numbers.counts]
        below = [numbers.get(label, method, NARROWER, m) for m in numbers.counts]
        ratios = [width.value / of for width, of in zip(widths, reference, strict=True)]
        for head, cells in (
            (plain("width"), [interval_cell(width, 1, digits=digits) for width in widths]),
            (plain("ratio"), [Cell(ratio) for ratio in ratios]),
            (text("narrower, %"), [interval_cell(share, 100, digits=1) for share in below]),
        ):
            columns.append(Column((title, head), tuple(cells)))
    return columns


def _with_spread(case: Case, numbers: Numbers, label: TestEvaluation) -> list[str]:
    """Return the methods that have a spread: a deterministic one has no band."""
    return [m for m in case.methods if WIDTH in numbers.metrics(label, m, ("err_mean", WIDTH))]


def _rows(case: Case, numbers: Numbers) -> list[dict[str, Any]]:
    """Return the numbers in long form; widths have the reference's beside them."""
    rows = []
    for label in case.evaluations:
        of = {m: numbers.get(label, FLOOR, WIDTH, m).value for m in numbers.counts}
        for method in (*case.methods, FLOOR):
            among = (*ERRORS, WIDTH, NARROWER)
            for metric in numbers.metrics(label, method, among):
                for m in numbers.counts:
                    where = dict(evaluation=label, method=method, sensors=m, metric=metric)
                    found = numbers.get(label, method, metric, m)
                    scale = 1 if metric == WIDTH else 100
                    ratio = {"ratio_to_reference": found.value / of[m]} if metric == WIDTH else {}
                    rows.append(where | number_columns(found, scale) | ratio)
    return rows
