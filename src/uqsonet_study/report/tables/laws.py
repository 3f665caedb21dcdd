"""A table of laws of the input, on the same trained operators."""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study import BASELINES
from uqsonet_study.beyond.scores import COLUMNS, ERRORS, LEVELS, law_name
from uqsonet_study.cases import Row, Study
from uqsonet_study.report.names import FLOOR, METRICS, method_titles, problem_title
from uqsonet_study.report.printing import PERCENT, Panel, Table, digits_of, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.captions import tests
from uqsonet_study.report.tables.records import about, shown_cases

SHOWN = {metric: METRICS[metric] for metric in (*ERRORS.values(), "crps")}
SHOWN |= {f"cover_{level}": f"{level}{PERCENT} band" for level in LEVELS}
"""Metric of the table -> heading."""


def laws_table(name: str, study: Study) -> tuple[Table, pd.DataFrame]:
    """Return a table of laws on the same trained operator, and its numbers in long form."""
    (path,) = study.paths([f"{study.config.results}/scores.csv"])
    cases, scores = shown_cases(study, name), read_numbers(path, COLUMNS)
    # Every row has the errors of the floor, which becomes a law beside the others.
    floor = scores.loc[scores["law"] == BASELINES[0], ["problem", "sensors"]].assign(law=FLOOR)
    floor = floor.assign(**{metric: scores[f"floor_{part}"] for part, metric in ERRORS.items()})
    numbers = [_numbers(name, study, case, pd.concat([scores, floor])) for case in cases]
    caption = (
        "Relative errors of mean and std, and marginal $W_1$ over the mean std, in percent; CRPS "
        "in the units of the output; percent of the reference posterior inside the central bands "
        "of that level, averaged over points. All laws share one trained operator. MC floor: an "
        f"independent draw of the reference. Bold: the best law. {tests(study, cases)}"
    )
    panels = tuple(_panel(case, found) for case, found in zip(cases, numbers, strict=True))
    table = Table(name, "Laws of the input.", caption, panels)
    return table, pd.concat(numbers, ignore_index=True)


def _numbers(name: str, study: Study, case: Row, scores: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of a panel in long form; a law without a number has none there."""
    own = scores.loc[scores["problem"] == case.problem]
    known: dict[Any, Any] = {
        (row["law"], int(row["sensors"])): row for row in own.to_dict("records")
    }
    laws = [law_name(study, case, method) for method in (*BASELINES, *case.methods)]
    found = []
    for law, m in product([*laws, FLOOR], case.counts):
        if (law, m) not in known:
            raise DataError(f"scores.csv has no {law!r} of {case.problem} with {m} sensors")
        for metric in SHOWN:
            number = {"method": law, "sensors": m, "metric": metric, "value": known[law, m][metric]}
            unit = {"unit": "1" if metric == "crps" else "percent"}
            found.append(about(name, study, case) | number | unit)
    return pd.DataFrame(found).dropna(subset="value", ignore_index=True)


def _panel(case: Row, numbers: pd.DataFrame) -> Panel:
    """Return the panel of a problem; the least number of a column is bold, but for the floor's."""
    crps = numbers.loc[numbers["metric"] == "crps", "value"].to_list()
    digits = dict.fromkeys(SHOWN, 1) | {"crps": digits_of(crps) if crps else 2}
    ranked = (numbers["method"] != FLOOR) & ~numbers["metric"].str.startswith("cover")
    values = numbers["value"].where(ranked)
    least = values.groupby([numbers["metric"], numbers["sensors"]]).transform("min")
    titles = {"metric": SHOWN, "sensors": {m: f"$m$ = {m}" for m in case.counts}}

    def text(record: Any) -> str:
        return text_of(record.value, digits=digits[record.metric], bold=record.bold)

    labels = method_titles(dict.fromkeys(numbers["method"]))
    cells = pivot(numbers.assign(bold=values == least), titles, labels, text, "law", "method")
    return Panel(problem_title(case.problem), cells)
