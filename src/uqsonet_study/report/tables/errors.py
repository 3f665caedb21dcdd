"""Tables of errors: (a) ours beside the paper's, (b) with intervals, (c) skill, baselines in each.

Rows are sensor counts or noise levels. The other coordinate, the cut line and the method make
groups of columns, in the paper's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pandas as pd

from uqsonet_study.cases import Row, Study
from uqsonet_study.report.names import FLOOR, MEAN, METRICS, STD, method_titles
from uqsonet_study.report.printing import PERCENT, Panel, Table, pivot, side_by_side, text_of
from uqsonet_study.report.tables.captions import conditions, distinct, origin, problem_titles
from uqsonet_study.report.tables.records import (
    ERRORS,
    SKILLS,
    UNTRAINED,
    error_metrics,
    marked_interval,
    score_records,
    shown_cases,
    with_interval,
    with_paper,
)
from uqsonet_study.settings import TestEvaluation

FULL_TITLES = {metric: METRICS[metric] for metric in ERRORS}
SHORT_TITLES = {"err_mean": MEAN, "err_std": STD}
"""Where the title of the panel says that its numbers are errors."""

SKILL_TITLES = {metric: METRICS[metric] for metric in SKILLS}
TITLES = {
    "paper": "Errors, evaluation “paper”: mean ± standard deviation over trials. Bold: better than "
    "the paper's value.",
    "precise": f"Errors, evaluation “precise”, with 95{PERCENT} bootstrap intervals.",
    "skill": "Skill 1 − err / err(sensor-free), evaluation “precise”, with "
    f"95{PERCENT} intervals. † Includes zero: no skill is shown.",
}


def errors_table(name: str, study: Study) -> tuple[Table, pd.DataFrame]:
    """Return a table of errors and its numbers in long form, errors in percent."""
    declared = study.config.tables[name]
    cases = shown_cases(study, name)
    records = with_paper(score_records(name, study, cases, error_metrics), study)
    if declared.rows == "sensors":
        corner, rows = "$m$", sorted({m for case in cases for m in case.counts})
    else:
        corner, rows = r"$\sigma$", sorted({case.noise for case in cases})
    digits = max(len(f"{row:g}".partition(".")[2]) for row in rows)
    labels = {row: f"{row:.{digits}f}" for row in rows}
    field = "sensors" if declared.rows == "sensors" else "noise_std"
    found = _panels(cases, records, field, labels, corner)
    panels = [Panel(TITLES[key], cells) for key, cells in found.items() if cells.shape[1]]
    return Table(name, problem_titles(cases), _caption(study, cases), tuple(panels)), records


def _caption(study: Study, cases: Sequence[Row]) -> str:
    where = ", on grid lines and on the whole domain" * bool(cases[0].cut_lines)
    return (
        f"{origin(cases)} Relative $L_2$ errors of the conditional mean and standard deviation of "
        rf"$u$ against the reference, $\times 10^{{-2}}$, given $m$ sensors{where}. "
        f"{conditions(study, cases)}"
    )


def _panels(
    cases: Sequence[Row], records: pd.DataFrame, field: str, rows: dict[Any, str], corner: str
) -> dict[str, pd.DataFrame]:
    """Return the cells of each panel."""
    records, groups = _grouped(records, cases, field)
    learned = distinct(method for case in cases for method in case.methods)
    # The paper's numbers become records of their own, from another source.
    ours = records.assign(source="ours")
    theirs = ours.assign(source="paper", value=ours["paper"], pm=ours["paper_pm"], paper=math.nan)
    beside_paper = pd.concat([theirs.loc[theirs["value"].notna()], ours])
    sources = {"source": {"paper": "paper", "ours": "ours"}}

    def better(record: Any) -> str:
        return text_of(record.value, record.pm, bold=record.value < record.paper)

    def block(
        label: TestEvaluation,
        methods: Sequence[str],
        metrics: dict[str, str],
        text: Callable[[Any], str] = _alone,
        below: dict[str, dict[str, str]] | None = None,
    ) -> pd.DataFrame:
        titles = {"method": method_titles(methods), "group": groups, "metric": metrics}
        numbers = beside_paper if below else records
        chosen = numbers.loc[numbers["evaluation"] == label]
        return pivot(chosen, titles | (below or {}), rows, text, corner, field)

    return {
        "paper": side_by_side(
            block("paper", learned, FULL_TITLES, better, sources),
            block("paper", UNTRAINED, SHORT_TITLES),
        ),
        "precise": side_by_side(
            block("precise", [*learned, "cokriging"], FULL_TITLES, with_interval),
            block("precise", ["sensor_free", "regression", FLOOR], SHORT_TITLES),
        ),
        "skill": side_by_side(
            block("precise", [*learned, "cokriging"], SKILL_TITLES, marked_interval),
            block("precise", ["regression", FLOOR], SKILL_TITLES),
        ),
    }


def _alone(record: Any) -> str:
    return text_of(record.value)


def _grouped(
    records: pd.DataFrame, cases: Sequence[Row], rows: str
) -> tuple[pd.DataFrame, dict[str, str | None]]:
    """Return records with the group of columns of each, and the headings of all groups in order.

    A group is known by its heading: what tells it from others of sensor count or noise level,
    experiment and cut line. The metrics lose their cut lines.
    """
    # ``x=0.5`` has its variable as a formula.
    parts = {line: line.partition("=") for line in cases[0].cut_lines}
    lines = {line: f"${axis}$ = {value}" for line, (axis, _, value) in parts.items()}
    metric = records["metric"].str.partition("@")
    line = metric[2].map(lines | {"": "domain" if lines else ""})
    line = line.mask(metric[0].isin(SKILLS), "")  # measured on the whole domain alone
    if rows == "sensors":
        every = _levels(cases)
        pairs = zip(records["experiment"], records["noise_std"], strict=True)
        levels = [every[pair] for pair in pairs]
    else:
        counts = sorted({m for case in cases for m in case.counts})
        every = {m: f"$m$ = {m}" for m in counts}
        levels = [every[m] for m in records["sensors"]]
    groups = [_joined(*pair) for pair in zip(levels, line, strict=True)]
    found = records.assign(metric=metric[0], group=groups)
    headings = [_joined(*pair) for pair in product(every.values(), [*lines.values(), "domain", ""])]
    # Where two experiments have the same noise level as a row, the first is shown.
    cells = ["evaluation", "method", "metric", "group", rows]
    return found.drop_duplicates(cells), {heading: heading or None for heading in headings}


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _levels(cases: Sequence[Row]) -> dict[tuple[str, float], str]:
    """Return (experiment, noise level) -> what tells its columns from those of others."""
    pairs = distinct((case.experiment, case.noise) for case in cases)
    noises = [noise_std for _, noise_std in pairs]
    found = {}
    for experiment, noise_std in pairs:
        words = rf"$\sigma$ = {noise_std:g}" if noise_std else "noiseless"
        parts = [words] if len(set(noises)) > 1 else []
        parts += [experiment] if noises.count(noise_std) > 1 else []
        found[experiment, noise_std] = _joined(*parts)
    return found
