"""Tables of bands: how wide the predicted standard deviations are beside the reference's.

The paper's appendix on the deep ensemble prints no numbers, so these stand beside its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd

from uqsonet_study.cases import Row, Study
from uqsonet_study.report.names import FLOOR, METRICS, method_titles
from uqsonet_study.report.printing import PERCENT, Panel, Table, digits_of, pivot, text_of
from uqsonet_study.report.tables.captions import conditions, origin, problem_titles
from uqsonet_study.report.tables.records import (
    ERRORS,
    WIDTH,
    score_records,
    shown_cases,
    with_interval,
)

NARROWER = "narrower"
RATIO = "ratio_to_reference"
WIDTHS = {WIDTH: "width", RATIO: "ratio", NARROWER: "narrower, %"}
INTERVALS = f"with 95{PERCENT} bootstrap intervals."
TITLES = {
    "paper": "Errors, evaluation “paper”: mean ± standard deviation over trials (a single "
    "ensemble has none).",
    "precise": f"Errors, evaluation “precise”, {INTERVALS}",
}


def bands_table(name: str, study: Study) -> tuple[Table, pd.DataFrame]:
    """Return a table of bands and its numbers in long form, errors and shares in percent."""
    cases = shown_cases(study, name)
    wanted = (*ERRORS, WIDTH, NARROWER)
    records = score_records(
        name,
        study,
        cases,
        lambda case: product(case.evaluations, (*case.methods, FLOOR), wanted),
    )
    widths = records.loc[records["metric"] == WIDTH]
    place = ["case", "evaluation", "sensors"]
    reference = widths.loc[widths["method"] == FLOOR].set_index(place)["value"]
    records[RATIO] = widths["value"] / widths.loc[:, place].join(reference, on=place)["value"]
    panels = []
    for case in cases:
        where = f" Case {case.name}." if len(cases) > 1 else ""
        panels += _panels(case, records.loc[records["case"] == case.name], where)
    return Table(name, problem_titles(cases), _caption(study, cases), tuple(panels)), records


def _spread(record: Any) -> str:
    return text_of(record.value, record.pm)


def _caption(study: Study, cases: Sequence[Row]) -> str:
    return (
        f"{origin(cases)} Is the predicted spread narrower than the reference's? Relative $L_2$ "
        r"errors ($\times 10^{-2}$), mean width (the mean of $\sigma[u]$ over the domain), its "
        r"ratio to the reference's, and the share of the domain where the predicted $\sigma[u]$ "
        "is below the reference's. The paper, which prints no numbers here, calls the bands of "
        "the deep ensemble consistently narrower: that means a ratio below 1 and a share near "
        f"100{PERCENT} for every $m$; a calibrated spread has a ratio near 1 and a share near "
        f"50{PERCENT}. {conditions(study, cases)}"
    )


def _panels(case: Row, records: pd.DataFrame, where: str) -> list[Panel]:
    """Return a panel of errors for each evaluation and one of widths for the most precise."""
    rows, found = {m: f"{m}" for m in case.counts}, []
    errors = {"metric": {error: METRICS[error] for error in ERRORS}}
    for label in case.evaluations:
        cells = pivot(
            records.loc[records["evaluation"] == label],
            {"method": method_titles(case.methods)} | errors,
            rows,
            _spread if label == "paper" else with_interval,
            "$m$",
        )
        found.append(Panel(TITLES[label] + where, cells))
    last = records.loc[records["evaluation"] == case.evaluations[-1]]
    of_reference = last["method"] == FLOOR
    digits = digits_of(last.loc[of_reference & (last["metric"] == WIDTH), "value"].to_list())
    ratios = last.loc[last[RATIO].notna() & ~of_reference]
    ratios = ratios.assign(metric=RATIO, value=ratios[RATIO])

    def text(record: Any) -> str:
        if record.metric == RATIO or record.method == FLOOR:
            return text_of(record.value, digits=2 if record.metric == RATIO else digits)
        return with_interval(record, digits=1 if record.metric == NARROWER else digits)

    methods = {FLOOR: "Reference"} | method_titles(case.methods)
    cells = pivot(
        pd.concat([last, ratios]), {"method": methods, "metric": WIDTHS}, rows, text, "$m$"
    )
    title = f"Widths, evaluation “{case.evaluations[-1]}”, {INTERVALS}"
    return [*found, Panel(title + where, cells)]
