"""Tables of laws of the input: a panel a problem, the best in bold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Case, Config
from uqsonet_study.report.law_scores import COLUMNS as LAW_COLUMNS
from uqsonet_study.report.law_scores import ERRORS, LEVELS, law_name
from uqsonet_study.report.names import FLOOR, METRICS, method_titles, problem_title
from uqsonet_study.report.printing import PERCENT, Panel, Table, digits_of, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.captions import tests
from uqsonet_study.report.tables.records import Files, about, shown_cases

SHOWN = {metric: METRICS[metric] for metric in (*ERRORS.values(), "crps")}
SHOWN |= {f"cover_{level}": f"{level}{PERCENT} band" for level in LEVELS}
"""Metric -> heading."""


def laws_table(name: str, config: Config, files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of laws on the same trained operator, and its numbers in long form."""
    cases, scores = shown_cases(config, name), read_numbers(files["scores"][0], LAW_COLUMNS)
    # Every row has the errors of the floor, which becomes a law beside the others.
    floor = scores.loc[scores["law"] == BASELINES[0], ["problem", "sensors"]].assign(law=FLOOR)
    floor = floor.assign(**{metric: scores[f"floor_{part}"] for part, metric in ERRORS.items()})
    scores, panels, records = pd.concat([scores, floor]), [], []
    for case in cases:
        laws = [law_name(config, case.experiment, method) for method in (*BASELINES, *case.methods)]
        where, places = about(name, config, case), product([*laws, FLOOR], case.counts)
        numbers = _numbers(where, case, scores, places)
        crps = numbers.loc[numbers["metric"] == "crps", "value"].to_list()
        digits = dict.fromkeys(SHOWN, 1) | {"crps": digits_of(crps) if crps else 2}
        judged = (numbers["method"] != FLOOR) & ~numbers["metric"].str.startswith("cover")
        titles = {"metric": SHOWN, "sensors": {m: f"$m$ = {m}" for m in case.counts}}
        labels = method_titles(dict.fromkeys(numbers["method"]))
        panels.append(_panel(case, numbers, judged, digits, titles, labels))
        records.append(numbers)
    caption = (
        "Relative errors of mean and std, and marginal $W_1$ over the mean std, in percent; CRPS "
        "in the units of the output; percent of the reference posterior inside the central bands "
        "of that level, averaged over points. All laws share one trained operator. MC floor: an "
        f"independent draw of the reference. Bold: the best law. {tests(config, cases)}"
    )
    table = Table(name, "Laws", "Laws of the input.", caption, tuple(panels))
    return table, pd.concat(records, ignore_index=True)


def _numbers(
    where: dict[str, Any],
    case: Case,
    scores: pd.DataFrame,
    places: Iterable[tuple[str, int]],
) -> pd.DataFrame:
    """Return the numbers of a panel in long form; a row without a number has none there."""
    own = scores.loc[scores["problem"] == case.problem]
    known = {(row["law"], int(row["sensors"])): row for row in own.to_dict("records")}
    found = []
    for method, m in places:
        if (method, m) not in known:
            raise DataError(f"scores.csv has no {method!r} of {case.problem} with {m} sensors")
        for metric in SHOWN:
            number = {"method": method, "sensors": m, "metric": metric}
            number["unit"] = "1" if metric == "crps" else "percent"
            found.append(where | number | {"value": known[method, m][metric]})
    return pd.DataFrame(found).dropna(subset="value", ignore_index=True)


def _panel(
    case: Case,
    numbers: pd.DataFrame,
    judged: pd.Series,
    digits: Mapping[str, int],
    titles: Mapping[str, Mapping[Any, str]],
    rows: Mapping[str, str],
) -> Panel:
    """Return the panel of a problem; the least of the judged numbers in a column are bold."""
    values = numbers["value"].where(judged)
    least = values.groupby([numbers["metric"], numbers["sensors"]]).transform("min")
    numbers = numbers.assign(bold=values == least)

    def text(record: Any) -> str:
        return text_of(record.value, digits=digits[record.metric], bold=record.bold)

    return Panel(problem_title(case.problem), pivot(numbers, titles, rows, text, "law", "method"))
