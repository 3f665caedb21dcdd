"""Tables of laws of the input: every law on the same trained operator, a panel a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Case, Config
from uqsonet_study.report.law_scores import LEVELS, law_name
from uqsonet_study.report.names import FLOOR, METRICS, method_title, problem_title
from uqsonet_study.report.tables.captions import tests
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table, digits_of
from uqsonet_study.report.tables.records import shown_cases
from uqsonet_study.report.tables.text import PERCENT

FLOORS = {"err_mean": "floor_mean", "err_std": "floor_std", "w1": "floor_w1"}
SHOWN = {metric: METRICS[metric] for metric in (*FLOORS, "crps")}
SHOWN |= {f"cover_{level}": f"{level}{PERCENT} band" for level in LEVELS}
"""Metric -> heading."""


def laws_table(name: str, config: Config, scores: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    """Return a table of laws and its numbers in long form.

    Parameters
    ----------
    name : str
    config : Config
    scores : DataFrame
        As `uqsonet_study.report.law_scores.law_scores` returns it.

    Raises
    ------
    DataError
        If the scores lack a law of a problem.
    """
    cases = shown_cases(config, name)
    keys = zip(scores["problem"], scores["law"], scores["sensors"].astype(int), strict=True)
    numbers = dict(zip(keys, scores.to_dict("records"), strict=True))
    panels, records = [], []
    for case in cases:
        found = _numbers(case, config, numbers)
        panels.append(_panel(case, found))
        about = {
            "table": f"tab:{name}",
            "experiment": case.experiment,
            "case": case.name,
            "scale": config.scale,
            "recipe": config.recipe_of(case.experiment),
            "noise_std": case.noise_std,
            "training": case.training,
        }
        records += [
            about
            | {"method": law, "sensors": m, "metric": metric}
            | {"unit": "1" if metric == "crps" else "percent", "value": value}
            for (law, m, metric), value in found.items()
        ]
    table = Table(name, "Laws", "Laws of the input.", _caption(config, cases), tuple(panels))
    return table, pd.DataFrame(records)


Numbers = dict[tuple[str, int, str], float]
"""Law, number of sensors and metric -> value, where there is one."""


def _numbers(
    case: Case, config: Config, given: Mapping[tuple[str, str, int], dict[Any, Any]]
) -> Numbers:
    """Return the numbers of a panel, the floor's last."""
    found: Numbers = {}
    laws = [law_name(config, case.experiment, method) for method in (*BASELINES, *case.methods)]
    for law in (*laws, FLOOR):
        for m in case.counts:
            row = given.get((case.problem, laws[0] if law == FLOOR else law, m))
            if row is None:
                raise DataError(f"scores.csv has no {law!r} of {case.problem} with {m} sensors")
            columns = FLOORS if law == FLOOR else {metric: metric for metric in SHOWN}
            found |= {(law, m, k): row[c] for k, c in columns.items() if pd.notna(row[c])}
    return found


def _panel(case: Case, numbers: Numbers) -> Panel:
    """Return the panel of a problem: a row for each law, columns by metric and sensors."""
    laws = list(dict.fromkeys(law for law, _, _ in numbers))
    crps = [value for (_, _, metric), value in numbers.items() if metric == "crps"]
    digits = {"crps": digits_of(crps) if crps else 2}
    columns = []
    for metric, heading in SHOWN.items():
        for m in case.counts:
            best = min(numbers.get((law, m, metric), float("inf")) for law in laws if law != FLOOR)
            cells = (
                Cell(
                    value := numbers.get((law, m, metric)),
                    digits=digits.get(metric, 1),
                    bold=not metric.startswith("cover") and law != FLOOR and value == best,
                )
                for law in laws
            )
            columns.append(Column((heading, f"$m$ = {m}"), tuple(cells)))
    labels = tuple((method_title(law),) for law in laws)
    return Panel(problem_title(case.problem), ("law",), labels, tuple(columns))


def _caption(config: Config, cases: list[Case]) -> str:
    return (
        "Relative errors of mean and std, and marginal $W_1$ over the mean std, in percent; CRPS "
        "in the units of the output; percent of the reference posterior inside the central bands "
        "of that level, averaged over points. All laws share one trained operator. MC floor: an "
        f"independent draw of the reference. Bold: the best law. {tests(config, cases)}"
    )
