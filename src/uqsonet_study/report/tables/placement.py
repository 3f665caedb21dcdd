"""Tables of where sensors stand: the reference's spread by strategy, a panel a problem."""

from __future__ import annotations

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Config, PlacementTable
from uqsonet_study.report.names import problem_title
from uqsonet_study.report.place_scores import QUARTILES, STRATEGIES
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table, digits_of
from uqsonet_study.report.tables.records import shown_cases


def placement_table(name: str, config: Config, scores: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    """Return a table of places and its numbers in long form.

    Parameters
    ----------
    name : str
    config : Config
    scores : DataFrame
        As `uqsonet_study.report.place_scores.place_scores` returns it.

    Raises
    ------
    DataError
        If the scores lack a strategy of a problem.
    """
    cases, panels, records = shown_cases(config, name), [], []
    declared = config.tables[name]
    assert isinstance(declared, PlacementTable)
    for case in cases:
        counts = declared.counts
        own = scores.loc[scores["problem"] == case.problem]
        keys = zip(own["strategy"], own["sensors"].astype(int), strict=True)
        values = dict(zip(keys, own["std"].astype(float), strict=True))
        lacking = [(s, m) for s in STRATEGIES for m in counts if (s, m) not in values]
        if lacking:
            raise DataError(
                f"scores.csv has no {lacking[0][0]!r} of {case.problem} with {lacking[0][1]} "
                "sensors"
            )
        digits = digits_of([values[s, m] for s in STRATEGIES for m in counts])
        columns = []
        for m in counts:
            best = min(values[s, m] for s in STRATEGIES if s not in QUARTILES or s == "random")
            cells = (
                Cell(values[s, m], digits=digits, bold=values[s, m] == best) for s in STRATEGIES
            )
            columns.append(Column((f"$m$ = {m}",), tuple(cells)))
        labels = tuple((title,) for title in STRATEGIES.values())
        panels.append(Panel(problem_title(case.problem), ("places",), labels, tuple(columns)))
        about = {
            "table": f"tab:{name}",
            "experiment": case.experiment,
            "case": case.name,
            "scale": config.scale,
            "recipe": config.recipe_of(case.experiment),
            "noise_std": case.noise_std,
            "training": case.training,
            "metric": "mean_std",
            "unit": "1",
        }
        records += [
            about | {"method": s, "sensors": m, "value": values[s, m]}
            for s in STRATEGIES
            for m in counts
        ]
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
    return Table(name, "Places", "Where sensors stand.", caption, tuple(panels)), pd.DataFrame(
        records
    )
