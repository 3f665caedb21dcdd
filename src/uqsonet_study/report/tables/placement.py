"""Tables of where sensors stand: the reference's spread by strategy, a panel a problem."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Config, PlacementTable
from uqsonet_study.report.names import problem_title
from uqsonet_study.report.place_scores import COLUMNS, QUARTILES, STRATEGIES
from uqsonet_study.report.printing import Panel, Table, digits_of, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.records import Files, about, shown_cases


def placement_table(name: str, config: Config, files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of places, from `scores.csv`, and its numbers in long form."""
    cases, declared = shown_cases(config, name), config.tables[name]
    assert isinstance(declared, PlacementTable)
    scores = read_numbers(files["scores"][0], COLUMNS)
    panels, records = [], []
    for case in cases:
        own = scores.loc[scores["problem"] == case.problem]
        keys = zip(own["strategy"], own["sensors"].astype(int), strict=True)
        values = dict(zip(keys, own["std"].astype(float), strict=True))
        rows = []
        for s, m in product(STRATEGIES, declared.counts):
            if (s, m) not in values:
                raise DataError(f"scores.csv has no {s!r} of {case.problem} with {m} sensors")
            where = {"metric": "mean_std", "unit": "1", "method": s, "sensors": m}
            rows.append(about(name, config, case) | where | {"value": values[s, m]})
        records.append(pd.DataFrame(rows))
        panels.append(_panel(case.problem, records[-1], declared.counts))
    fewer = "".join(
        f" ({problem_title(case.problem)}: {declared.functions_of[case.experiment]})"
        for case in cases
        if case.experiment in declared.functions_of
    )
    caption = (
        "Standard deviation of u under the reference posterior, mean over points and test "
        "functions. Greedy and worst places are chosen by the trained operator, which sees no test "
        f"function; quartiles are over {declared.random} random layouts, means over "
        f"{declared.functions} test functions{fewer}. Bold: the best strategy."
    )
    table = Table(name, "Places", "Where sensors stand.", caption, tuple(panels))
    return table, pd.concat(records, ignore_index=True)


def _panel(problem: str, records: pd.DataFrame, counts: Sequence[int]) -> Panel:
    digits = digits_of(records["value"].to_list())
    quartiles = [strategy for strategy in QUARTILES if strategy != "random"]
    best = records.loc[~records["method"].isin(quartiles)].groupby("sensors")["value"].min()

    def text(record: Any) -> str:
        return text_of(record.value, digits=digits, bold=record.value == best[record.sensors])

    titles = {"sensors": {m: f"$m$ = {m}" for m in counts}}
    cells = pivot(records, titles, STRATEGIES, text, "places", "method")
    return Panel(problem_title(problem), cells)
