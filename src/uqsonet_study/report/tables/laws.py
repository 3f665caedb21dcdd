"""Tables of laws of the input: every law on the same trained operator, a panel a problem."""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Case, Config
from uqsonet_study.report.law_scores import COLUMNS, LEVELS, law_name
from uqsonet_study.report.names import FLOOR, METRICS, method_titles, problem_title
from uqsonet_study.report.printing import PERCENT, Panel, Table, digits_of, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.captions import tests
from uqsonet_study.report.tables.records import Files, about, shown_cases

FLOORS = {"err_mean": "floor_mean", "err_std": "floor_std", "w1": "floor_w1"}
SHOWN = {metric: METRICS[metric] for metric in (*FLOORS, "crps")}
SHOWN |= {f"cover_{level}": f"{level}{PERCENT} band" for level in LEVELS}
"""Metric -> heading."""


def laws_table(name: str, config: Config, files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of laws, from `scores.csv`, and its numbers in long form."""
    cases, scores = shown_cases(config, name), read_numbers(files["scores"][0], COLUMNS)
    records = [pd.DataFrame(_numbers(name, case, config, scores)) for case in cases]
    panels = [_panel(case, found) for case, found in zip(cases, records, strict=True)]
    table = Table(name, "Laws", "Laws of the input.", _caption(config, cases), tuple(panels))
    return table, pd.concat(records, ignore_index=True)


def _numbers(name: str, case: Case, config: Config, scores: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the records of a panel, the floor's last."""
    own = scores.loc[scores["problem"] == case.problem]
    rows = {(r["law"], int(r["sensors"])): r for r in own.to_dict("records")}
    laws = [law_name(config, case.experiment, method) for method in (*BASELINES, *case.methods)]
    found = []
    for law, m in product((*laws, FLOOR), case.counts):
        row = rows.get((laws[0] if law == FLOOR else law, m))
        if row is None:
            raise DataError(f"scores.csv has no {law!r} of {case.problem} with {m} sensors")
        columns = FLOORS if law == FLOOR else {metric: metric for metric in SHOWN}
        for metric, column in columns.items():
            if pd.notna(row[column]):
                unit = "1" if metric == "crps" else "percent"
                where = {"method": law, "sensors": m, "metric": metric, "unit": unit}
                found.append(about(name, config, case) | where | {"value": row[column]})
    return found


def _panel(case: Case, records: pd.DataFrame) -> Panel:
    """Return the panel of a problem: a row for each law, columns by metric and sensors."""
    crps = records.loc[records["metric"] == "crps", "value"].to_list()
    digits = {"crps": digits_of(crps) if crps else 2}
    of_laws = records.loc[records["method"] != FLOOR]
    best = of_laws.groupby(["metric", "sensors"])["value"].min()

    def text(record: Any) -> str:
        judged = record.method != FLOOR and not record.metric.startswith("cover")
        bold = judged and record.value == best[record.metric, record.sensors]
        return text_of(record.value, digits=digits.get(record.metric, 1), bold=bold)

    titles = {"metric": SHOWN, "sensors": {m: f"$m$ = {m}" for m in case.counts}}
    laws = method_titles(dict.fromkeys(records["method"]))
    return Panel(problem_title(case.problem), pivot(records, titles, laws, text, "law", "method"))


def _caption(config: Config, cases: list[Case]) -> str:
    return (
        "Relative errors of mean and std, and marginal $W_1$ over the mean std, in percent; CRPS "
        "in the units of the output; percent of the reference posterior inside the central bands "
        "of that level, averaged over points. All laws share one trained operator. MC floor: an "
        f"independent draw of the reference. Bold: the best law. {tests(config, cases)}"
    )
