"""Tables of errors: (a) ours beside the paper's, (b) with intervals, (c) skill, baselines in each.

Rows are sensor counts or noise levels. The other coordinate, the cut line and the method make
groups of columns, in the paper's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from uqsonet_study.config import BASELINES, Case, Config, ErrorTable
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.names import FLOOR, MEAN, METRICS, STD, method_title
from uqsonet_study.report.tables.captions import (
    budget,
    distinct,
    noise,
    origin,
    problem_titles,
    tests,
)
from uqsonet_study.report.tables.cells import (
    Cell,
    Column,
    Panel,
    Table,
    columns_of,
    with_interval,
)
from uqsonet_study.report.tables.records import (
    ERRORS,
    SKILLS,
    score_records,
    shown_cases,
    with_paper,
)
from uqsonet_study.report.tables.text import PERCENT

SHORT = {"err_mean": MEAN, "err_std": STD, "skill_mean": MEAN, "skill_std": STD}
"""Titles of metrics where that of the panel says the rest."""

TITLES = {
    "paper": "Errors, evaluation “paper”: mean ± standard deviation over trials. Bold: better than "
    "the paper's value.",
    "precise": f"Errors, evaluation “precise”, with 95{PERCENT} bootstrap intervals.",
    "skill": "Skill 1 − err / err(sensor-free), evaluation “precise”, with "
    f"95{PERCENT} intervals. † Includes zero: no skill is shown.",
}


def errors_table(name: str, config: Config, summary: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    """Return a table of errors and its numbers in long form, errors in percent.

    Raises
    ------
    DataError
        If the summary lacks a number or contradicts the configuration.
    """
    declared = config.tables[name]
    assert isinstance(declared, ErrorTable)
    cases = shown_cases(config, name)
    records = score_records(name, config, cases, summary, error_metrics)
    records = with_paper(records, config)
    columns = _ErrorColumns(cases, records, declared.rows)
    digits = max(len(f"{row:g}".partition(".")[2]) for row in columns.rows)
    labels = tuple((f"{row:.{digits}f}",) for row in columns.rows)
    corner = "$m$" if declared.rows == "sensors" else r"$\sigma$"
    panels = [
        Panel(TITLES[key], (corner,), labels, tuple(found))
        for key, found in (
            ("paper", columns.beside_paper()),
            ("precise", columns.precise()),
            ("skill", columns.skill()),
        )
        if found
    ]
    title = problem_titles(cases)
    return Table(name, title, title, _caption(config, cases), tuple(panels)), records


def error_metrics(case: Case) -> Iterator[tuple[TestEvaluation, str, str]]:
    """Yield evaluation, method and metric of every error and skill of a case."""
    errors = [*ERRORS, *(f"{error}@{line}" for line in case.cut_lines for error in ERRORS)]
    for label in case.evaluations:
        for method in (*case.methods, *BASELINES, FLOOR):
            for metric in (*errors, *(() if method == "sensor_free" else SKILLS)):
                yield label, method, metric


def _caption(config: Config, cases: Sequence[Case]) -> str:
    lines = any(case.cut_lines for case in cases)
    where = ", on grid lines and on the whole domain" if lines else ""
    return (
        f"{origin(cases)} Relative $L_2$ errors of the conditional mean and standard deviation of "
        rf"$u$ against the reference, $\times 10^{{-2}}$, given $m$ sensors{where}. "
        f"{noise(cases)}; {budget(config, cases)}. {tests(config, cases)}."
    )


class _ErrorColumns:
    """Columns of an error table, made from its numbers.

    Parameters
    ----------
    cases : sequence of Case
    records : DataFrame
    rows : str
        ``sensors`` or ``noise_std``.
    """

    def __init__(self, cases: Sequence[Case], records: pd.DataFrame, rows: str) -> None:
        self.methods = distinct(method for case in cases for method in case.methods)
        lines = distinct(line for case in cases for line in case.cut_lines)
        self.lines = distinct([*map(_equation, lines), "domain" if lines else "", ""])
        score = records["metric"].str.partition("@")
        line = score[2].map(lambda line: _equation(line) if line else self.lines[len(lines)])
        counts = sorted({m for case in cases for m in case.sensors.counts})
        if rows == "sensors":
            self.rows: Sequence[float] = counts
            levels = _levels(cases)
            pairs = zip(records["experiment"], records["noise_std"], strict=True)
            level = [levels[pair] for pair in pairs]
            self.levels = list(levels.values())
        else:
            self.rows = sorted({case.noise_std for case in cases})
            level = [f"$m$ = {m}" for m in records["sensors"]]
            self.levels = [f"$m$ = {m}" for m in counts]
        found = records.assign(metric=score[0], line=line, level=level)
        self.by = rows
        # Of two experiments with the same noise level as a row, the first is shown.
        row_and_column = ["evaluation", "method", "metric", "level", "line", rows]
        self.records = found.drop_duplicates(row_and_column)

    def beside_paper(self) -> list[Column]:
        """Return the paper's errors beside ours, then those of the baselines."""
        ours = self.records.assign(source="ours")
        theirs = ours.assign(
            source="paper", value=ours["paper"], pm=ours["paper_pm"], paper=math.nan
        )
        both = pd.concat([theirs[theirs["value"].notna()], ours])
        order = {"metric": ERRORS, "source": ["paper", "ours"]}

        def cell(record: Any) -> Cell:
            return Cell(record.value, record.pm, bold=record.value < record.paper)

        return [
            *self._columns(both, "paper", self.methods, order, METRICS, cell),
            # Headings of baselines end one level higher.
            *self._columns(
                ours.assign(source=""),
                "paper",
                (*BASELINES, FLOOR),
                {"metric": ERRORS, "source": [""]},
                SHORT,
                _value,
            ),
        ]

    def precise(self) -> list[Column]:
        """Return errors with intervals, those of the simplest baselines without."""
        learned, others = (*self.methods, "cokriging"), ("sensor_free", FLOOR)
        order = {"metric": ERRORS}
        return [
            *self._columns(self.records, "precise", learned, order, METRICS, with_interval),
            *self._columns(self.records, "precise", others, order, SHORT, _value),
        ]

    def skill(self) -> list[Column]:
        """Return skills with intervals, which are marked where they include zero."""

        def cell(record: Any) -> Cell:
            return with_interval(record, mark="†" if record.low <= 0 <= record.high else "")

        # Skill is measured on the whole domain alone.
        records, learned = self.records.assign(line=""), (*self.methods, "cokriging")
        order = {"metric": SKILLS}
        return [
            *self._columns(records, "precise", learned, order, SHORT, cell),
            *self._columns(records, "precise", (FLOOR,), order, SHORT, _value),
        ]

    def _columns(
        self,
        records: pd.DataFrame,
        label: TestEvaluation,
        methods: Sequence[str],
        order: dict[str, Sequence[str]],
        titles: dict[str, str],
        cell: Callable[[Any], Cell],
    ) -> list[Column]:
        """Return columns under method, level and line, then what `order` adds below them."""

        def heads(method: str, level: str, line: str, metric: str, *below: str) -> tuple[str, ...]:
            group = ", ".join(filter(None, [level, line]))
            return (method_title(method), *([group] if group else []), titles[metric], *below)

        above = {"method": methods, "level": self.levels, "line": self.lines}
        chosen = records[records["evaluation"] == label]
        return columns_of(chosen, above | order, (self.by, self.rows), heads, cell)


def _levels(cases: Sequence[Case]) -> dict[tuple[str, float], str]:
    """Return (experiment, noise level) -> what tells its columns from those of others."""
    pairs = distinct((case.experiment, case.noise_std) for case in cases)
    noises = [noise_std for _, noise_std in pairs]
    found = {}
    for experiment, noise_std in pairs:
        words = rf"$\sigma$ = {noise_std:g}" if noise_std else "noiseless"
        parts = [words] if len(set(noises)) > 1 else []
        parts += [experiment] if noises.count(noise_std) > 1 else []
        found[experiment, noise_std] = ", ".join(parts)
    return found


def _equation(line: str) -> str:
    """Return ``x=0.5`` with its variable as a formula."""
    axis, _, value = line.partition("=")
    return f"${axis}$ = {value}"


def _value(record: Any) -> Cell:
    return Cell(record.value)
