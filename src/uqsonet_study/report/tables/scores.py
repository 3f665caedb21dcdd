"""Tables of scores: how good whole laws are beside those of both baselines.

CRPS and energy score judge a law by the functions that the sensors were read from, so no reference
posterior enters; the expected CRPS by all samples of a reference posterior. A gain is
``1 - score / score of cokriging`` on the same observation sets. A problem's panel has all its
experiments: with several of one problem, columns go by recipe.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from uqsonet_study.config import BASELINES, BY_REFERENCE, Case, Config, ScoreTable
from uqsonet_study.report.names import METRICS, method_title, problem_title, smoke
from uqsonet_study.report.numbers import Number, Numbers
from uqsonet_study.report.summary import GAINS
from uqsonet_study.report.tables.captions import distinct, tests
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table, digits_of
from uqsonet_study.report.tables.errors import interval_cell
from uqsonet_study.report.tables.records import case_columns, number_columns
from uqsonet_study.report.tables.text import DAGGER, EMPTY, PERCENT, M, Text, bold, plain, text

ABSOLUTE = tuple(GAINS)
"""Scores in the units of u; all others are fractions, printed in percent."""


def scores_table(name: str, config: Config, summary: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    """Return a table of scores and its numbers in long form.

    Raises
    ------
    DataError
        If the summary lacks a number or contradicts the configuration.
    """
    declared = config.tables[name]
    assert isinstance(declared, ScoreTable)
    cases = config.cases_of([e for e in declared.experiments if e in config.selected])
    panels, rows = [], []
    for problem in distinct(case.problem for case in cases):
        own = [case for case in cases if case.problem == problem]
        panel, found = _panel(own, config, summary, declared.metrics)
        panels.append(panel)
        rows += [{"table": f"tab:{name}"} | row for row in found]
    return Table(name, "Scores", _caption(config, cases), tuple(panels)), pd.DataFrame(rows)


def _panel(
    cases: list[Case], config: Config, summary: pd.DataFrame, metrics: Sequence[str]
) -> tuple[Panel, list[dict[str, object]]]:
    """Return the panel of a problem, baselines first, and its numbers."""
    columns, rows = [], []
    for case in cases:
        numbers = Numbers(summary, case.name, config)
        for method in (*(BASELINES if case is cases[0] else ()), *case.methods):
            learned = len(cases) > 1 and method not in BASELINES
            title = config.recipe_of(case.experiment).replace("_", " ") if learned else None
            for metric in metrics:
                label = case.evaluations[0 if metric in BY_REFERENCE else -1]
                if metric not in numbers.metrics(label, method, ["err_mean", metric]):
                    continue
                found = [numbers.get(label, method, metric, m) for m in numbers.counts]
                scale = 1 if metric in ABSOLUTE else 100
                digits = _digits(metric, found)
                cells = []
                for m, number in zip(numbers.counts, found, strict=True):
                    gain = metric in GAINS.values()
                    none = gain and number.low <= 0 <= number.high
                    mark = DAGGER if none else EMPTY
                    cell = Cell(scale * number.value, digits=digits)
                    cells.append(interval_cell(number, scale, mark, digits) if gain else cell)
                    where = dict(evaluation=label, method=method, sensors=m, metric=metric)
                    rows.append(case_columns(config, case) | where | number_columns(number, scale))
                heads = plain(title or method_title(method)), METRICS[metric]
                columns.append(Column(heads, tuple(cells)))
    labels = tuple((plain(m),) for m in cases[0].sensors.counts)
    return Panel(plain(problem_title(cases[0].problem)), (M,), labels, tuple(columns)), rows


def _digits(metric: str, numbers: Sequence[Number]) -> int:
    """Return decimal places: a score's by its size; percent have one, gains below 1 % two."""
    if metric in ABSOLUTE:
        return digits_of([number.value for number in numbers])
    small = all(abs(100 * number.value) < 1 for number in numbers)
    return 2 if metric in GAINS.values() and small else 1


def _caption(config: Config, cases: list[Case]) -> Text:
    return text(
        "{smoke}{title} CRPS (mean over the domain) and energy score, both in the units of the "
        "output and smaller for better laws; gain: by how many percent the score is below "
        "cokriging's, with 95{percent} bootstrap intervals over sets and trials ({dagger}: "
        "includes zero); *: expected under the reference posteriors of the paper's ten sets, not "
        "of single truths; w50, w90, w95: percent of the reference's samples inside the "
        "central bands of that level (c50, c90, c95: of truths), over all points. "
        "{tests}.",
        smoke=smoke(config),
        title=bold(plain("Scores of whole laws.")),
        percent=PERCENT,
        dagger=DAGGER,
        tests=tests(config, cases),
    )
