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

from uqsonet_study.config import Case, Config, ErrorTable
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.names import FLOOR, MEAN, METRICS, STD, method_titles
from uqsonet_study.report.printing import PERCENT, Panel, Table, pivot, side_by_side, text_of
from uqsonet_study.report.tables.captions import conditions, distinct, origin, problem_titles
from uqsonet_study.report.tables.records import (
    ERRORS,
    SKILLS,
    UNTRAINED,
    Files,
    error_metrics,
    marked_interval,
    score_records,
    shown_cases,
    with_interval,
    with_paper,
)

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


def errors_table(name: str, config: Config, files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of errors and its numbers in long form, errors in percent."""
    declared = config.tables[name]
    assert isinstance(declared, ErrorTable)
    cases = shown_cases(config, name)
    records = score_records(name, config, cases, files, error_metrics)
    records = with_paper(records, config)
    if declared.rows == "sensors":
        corner, rows = "$m$", sorted({m for case in cases for m in case.counts})
    else:
        corner, rows = r"$\sigma$", sorted({case.noise_std for case in cases})
    digits = max(len(f"{row:g}".partition(".")[2]) for row in rows)
    labels = {row: f"{row:.{digits}f}" for row in rows}
    found = _panels(cases, records, declared.rows, labels, corner)
    panels = [Panel(TITLES[key], cells) for key, cells in found.items() if cells.shape[1]]
    title = problem_titles(cases)
    return Table(name, title, title, _caption(config, cases), tuple(panels)), records


def _caption(config: Config, cases: Sequence[Case]) -> str:
    lines = any(case.cut_lines for case in cases)
    where = ", on grid lines and on the whole domain" if lines else ""
    return (
        f"{origin(cases)} Relative $L_2$ errors of the conditional mean and standard deviation of "
        rf"$u$ against the reference, $\times 10^{{-2}}$, given $m$ sensors{where}. "
        f"{conditions(config, cases)}"
    )


def _panels(
    cases: Sequence[Case], records: pd.DataFrame, field: str, rows: dict[Any, str], corner: str
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
    records: pd.DataFrame, cases: Sequence[Case], rows: str
) -> tuple[pd.DataFrame, dict[str, str | None]]:
    """Return records with the group of columns of each, and the headings of all groups in order.

    A group is known by its heading: what tells it from others of sensor count or noise level,
    experiment and cut line. The metrics lose their cut lines.
    """
    # ``x=0.5`` has its variable as a formula.
    every_line = (line.partition("=") for case in cases for line in case.cut_lines)
    lines = {f"{axis}={value}": f"${axis}$ = {value}" for axis, _, value in every_line}
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


def _levels(cases: Sequence[Case]) -> dict[tuple[str, float], str]:
    """Return (experiment, noise level) -> what tells its columns from those of others."""
    pairs = distinct((case.experiment, case.noise_std) for case in cases)
    noises = [noise_std for _, noise_std in pairs]
    found = {}
    for experiment, noise_std in pairs:
        words = rf"$\sigma$ = {noise_std:g}" if noise_std else "noiseless"
        parts = [words] if len(set(noises)) > 1 else []
        parts += [experiment] if noises.count(noise_std) > 1 else []
        found[experiment, noise_std] = _joined(*parts)
    return found
