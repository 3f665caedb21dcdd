"""Scores of laws of the input: `scores.csv` and its table, a panel a problem, the best in bold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Case, Config
from uqsonet_study.config.recipes import has_law
from uqsonet_study.report.names import FLOOR, METRICS, method_titles, problem_title
from uqsonet_study.report.printing import PERCENT, Panel, Table, digits_of, pivot, text_of
from uqsonet_study.report.summary import read_case, read_numbers
from uqsonet_study.report.tables.captions import tests
from uqsonet_study.report.tables.records import Files, about, shown_cases

ERRORS = {"mean": "err_mean", "std": "err_std", "w1": "w1"}
"""Part of a column's name -> metric, printed in percent."""

LEVELS = (50, 90, 95)
COLUMNS = "problem law sensors err_mean err_std w1 median_mean median_std median_w1".split()
COLUMNS += "floor_mean floor_std floor_w1 crps cover_50 cover_90 cover_95".split()

SHOWN = {metric: METRICS[metric] for metric in (*ERRORS.values(), "crps")}
SHOWN |= {f"cover_{level}": f"{level}{PERCENT} band" for level in LEVELS}
"""Metric -> heading."""


def law_scores(files: Mapping[str, Sequence[Path]], config: Config) -> pd.DataFrame:
    """Return the scores (`COLUMNS`) of all laws of some cases, from their files of scores.

    `err_*` and `w1` are means over the observation sets of the most precise evaluation (and over
    trials), `median_*` medians over the sets, `floor_*` means of an independent draw of the
    reference; all in percent. `crps` is in the units of the output. `cover_*` is the percentage of
    the reference's mass inside the central band of that level, averaged over points and sets;
    without a reference the share of truths there. A number that a law has not is NaN.

    Raises
    ------
    DataError
        If a file cannot be read, or lacks the error of the mean of a method.
    """
    tables = [_of_case(of, config.cases[name], config) for name, of in files.items()]
    return pd.concat(tables, ignore_index=True)


def law_name(config: Config, experiment: str, method: str) -> str:
    """Return the law that a method stands for, the method itself where it has no such law."""
    if method in BASELINES:
        return method
    found = config.law_of(experiment, method)
    if found is not None:
        return found.law
    case = next(case for case in config.cases_of([experiment]) if method in case.methods)
    network = config.method_of(case.name, method).network
    return network.law if has_law(network) else method


def _of_case(files: Sequence[Path], case: Case, config: Config) -> pd.DataFrame:
    """Return the rows of one case."""
    scores = read_case(files, case, config)
    scores = scores.loc[scores["evaluation"] == case.evaluations[-1]]
    # Trials share the sets: a set's score is the mean over trials.
    by_set = scores.groupby(["method", "sensors", "metric", "set"])["value"].mean()
    grouped = by_set.groupby(["method", "sensors", "metric"])
    means, medians = grouped.mean().to_dict(), grouped.median().to_dict()

    def percent(of: Mapping[object, float], *key: object) -> float:
        return 100 * of.get(key, float("nan"))

    rows = []
    for method, m in product((*BASELINES, *case.methods), case.counts):
        row = {"problem": case.problem, "law": law_name(config, case.experiment, method)}
        row |= {"sensors": m, "crps": means.get((method, m, "crps"), float("nan"))}
        for part, metric in ERRORS.items():
            row[metric] = percent(means, method, m, metric)
            row[f"median_{part}"] = percent(medians, method, m, metric)
            row[f"floor_{part}"] = percent(means, FLOOR, m, metric)
        for level in LEVELS:
            kind = "within" if (method, m, f"within_{level}") in means else "coverage"
            row[f"cover_{level}"] = percent(means, method, m, f"{kind}_{level}")
        rows.append(row)
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def laws_table(name: str, config: Config, files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of laws on the same trained operator, and its numbers in long form."""
    cases, scores = shown_cases(config, name), read_numbers(files["scores"][0], COLUMNS)
    # Every row has the errors of the floor, which becomes a law beside the others.
    floor = scores.loc[scores["law"] == BASELINES[0], ["problem", "sensors"]].assign(law=FLOOR)
    floor = floor.assign(**{metric: scores[f"floor_{part}"] for part, metric in ERRORS.items()})
    scores, panels, records = pd.concat([scores, floor]), [], []
    for case in cases:
        numbers = _numbers(about(name, config, case), case, config, scores)
        panels.append(_panel(case, numbers))
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
    where: dict[str, Any], case: Case, config: Config, scores: pd.DataFrame
) -> pd.DataFrame:
    """Return the numbers of a panel in long form; a row without a number has none there."""
    laws = [law_name(config, case.experiment, method) for method in (*BASELINES, *case.methods)]
    own = scores.loc[scores["problem"] == case.problem]
    known = {(row["law"], int(row["sensors"])): row for row in own.to_dict("records")}
    found = []
    for law, m in product([*laws, FLOOR], case.counts):
        if (law, m) not in known:
            raise DataError(f"scores.csv has no {law!r} of {case.problem} with {m} sensors")
        for metric in SHOWN:
            number = {"method": law, "sensors": m, "metric": metric}
            number["unit"] = "1" if metric == "crps" else "percent"
            found.append(where | number | {"value": known[law, m][metric]})
    return pd.DataFrame(found).dropna(subset="value", ignore_index=True)


def _panel(case: Case, numbers: pd.DataFrame) -> Panel:
    """Return the panel of a problem; the least error of a column, and the least CRPS, are bold."""
    judged = (numbers["method"] != FLOOR) & ~numbers["metric"].str.startswith("cover")
    values = numbers["value"].where(judged)
    least = values.groupby([numbers["metric"], numbers["sensors"]]).transform("min")
    crps = numbers.loc[numbers["metric"] == "crps", "value"].to_list()
    digits = dict.fromkeys(SHOWN, 1) | {"crps": digits_of(crps) if crps else 2}
    titles = {"metric": SHOWN, "sensors": {m: f"$m$ = {m}" for m in case.counts}}
    rows = method_titles(dict.fromkeys(numbers["method"]))

    def text(record: Any) -> str:
        return text_of(record.value, digits=digits[record.metric], bold=record.bold)

    bold = numbers.assign(bold=values == least)
    return Panel(problem_title(case.problem), pivot(bold, titles, rows, text, "law", "method"))
