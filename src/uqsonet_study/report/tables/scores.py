"""Tables of scores: how good whole laws are beside those of all baselines.

CRPS and energy score judge a law by the functions that the sensors were read from, so no reference
posterior enters; the expected CRPS by all samples of a reference posterior. A gain is
``1 - score / score of cokriging`` on the same observation sets. A problem's panel has all its
experiments: with several of one problem, columns go by recipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from uqsonet_study import BASELINES
from uqsonet_study.cases import Row, Study
from uqsonet_study.config import BY_REFERENCE
from uqsonet_study.report.names import METRICS, method_title, problem_title
from uqsonet_study.report.printing import PERCENT, Panel, Table, digits_of, pivot, text_of
from uqsonet_study.report.summary import GAINS
from uqsonet_study.report.tables.captions import distinct, tests
from uqsonet_study.report.tables.records import marked_interval, score_records, shown_cases
from uqsonet_study.settings import TestEvaluation


def scores_table(name: str, study: Study) -> tuple[Table, pd.DataFrame]:
    """Return a table of scores and its numbers in long form."""
    declared = study.config.tables[name]
    cases = shown_cases(study, name)
    problems = distinct(case.problem for case in cases)
    of_problem = {p: [case for case in cases if case.problem == p] for p in problems}
    first = {own[0].name for own in of_problem.values()}

    def metrics(case: Row) -> Iterator[tuple[TestEvaluation, str, str]]:
        for method in (*(BASELINES if case.name in first else ()), *case.methods):
            for metric in declared.metrics:
                # Only references of the first evaluation, `paper`, hold samples.
                yield case.evaluations[0 if metric in BY_REFERENCE else -1], method, metric

    by_problem = [case for own in of_problem.values() for case in own]
    records = score_records(name, study, by_problem, metrics)
    panels = [_panel(own, records, declared.metrics) for own in of_problem.values()]
    caption = _caption(study, cases)
    return Table(name, "Scores of whole laws.", caption, tuple(panels)), records


def _panel(cases: list[Row], records: pd.DataFrame, metrics: Sequence[str]) -> Panel:
    """Return the panel of a problem, baselines first."""
    learned = distinct(method for case in cases for method in case.methods)
    heading = records["method"].map(method_title)
    if len(cases) > 1:
        recipes = records["recipe"].str.replace("_", " ")
        heading = heading.where(records["method"].isin(BASELINES), recipes)
    titles = {
        "case": dict.fromkeys(case.name for case in cases),
        "method": dict.fromkeys([*BASELINES, *learned]),
        "heading": {title: title for title in heading},
        "metric": {metric: METRICS[metric] for metric in metrics},
    }
    values = records.groupby(["case", "method", "metric"])["value"].agg(list)
    digits = {key: _digits(key[-1], found) for key, found in values.to_dict().items()}

    def text(record: Any) -> str:
        places = digits[record.case, record.method, record.metric]
        if record.metric in GAINS.values():
            return marked_interval(record, places)
        return text_of(record.value, digits=places)

    rows = {m: f"{m}" for m in cases[0].counts}
    shown = records.assign(heading=heading)
    return Panel(problem_title(cases[0].problem), pivot(shown, titles, rows, text, "$m$"))


def _digits(metric: str, values: Sequence[float]) -> int:
    """Return decimal places: a score's by its size; percent have one, gains below 1 % two."""
    if metric in GAINS:
        return digits_of(values)
    return 2 if metric in GAINS.values() and all(abs(value) < 1 for value in values) else 1


def _caption(study: Study, cases: list[Row]) -> str:
    return (
        "CRPS (mean over the domain) and energy score, both in the units of the output and "
        "smaller for better laws; gain: by how many percent the score is below cokriging's, with "
        f"95{PERCENT} bootstrap intervals over sets and trials (†: includes zero); *: expected "
        "under the reference posteriors of the paper's ten sets, not of single truths; w50, w90, "
        "w95: percent of the reference's samples inside the central bands of that level (c50, "
        f"c90, c95: of truths), over all points. {tests(study, cases)}"
    )
