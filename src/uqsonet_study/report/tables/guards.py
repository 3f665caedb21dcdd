"""Checks of numbers before they are printed: finite, and from one model each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Config
from uqsonet_study.pipeline.paths import Paths
from uqsonet_study.report.tables.records import KEY, place

SHARES = ("narrower", "coverage", "within")
"""Metrics that are shares: two models may well have the same."""


def _scored(records: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that come from scores: other layouts have no evaluation."""
    if "evaluation" not in records:
        return records.iloc[:0].reindex(columns=[*KEY, "value"])
    return records.loc[records["evaluation"].notna()]


def require_finite(records: pd.DataFrame) -> None:
    """Refuse numbers that are not finite; only a single trial has no ±."""
    scored = _scored(records)
    numbers = records.loc[records["setting"].isna()] if "setting" in records else records
    checked = {"value": numbers}
    if len(scored):
        several = scored["trials"].astype(float) > 1
        checked |= {"low": scored, "high": scored, "pm": scored.loc[several]}
    for column, rows in checked.items():
        if rows.empty:
            continue
        for row in rows.loc[~np.isfinite(rows[column].astype(float))].to_dict("records")[:1]:
            named = isinstance(row.get("evaluation"), str)
            where = place(row) if named else f"{row['metric']} of {row['method']!r}"
            raise DataError(f"{where}: {column} is {row[column]}, which no table may print")


def require_distinct(records: pd.DataFrame, config: Config) -> None:
    """Refuse two numbers of trained models that agree in every digit.

    Only a mix-up of files explains them, unless everything behind them is the same: experiments
    share trainings and scores where all that these depend on is equal.
    """
    files = Paths(config)
    seen: dict[float, tuple[str, dict[Any, Any]]] = {}
    for row in _scored(records).to_dict("records"):
        case = config.cases[row["case"]]
        if row["method"] not in case.methods or row["metric"].startswith(SHARES):
            continue
        inputs, value = _inputs(row, config, files), float(row["value"])
        first, other = seen.setdefault(value, (inputs, row))
        if first != inputs:
            raise DataError(
                f"{place(other)} and {place(row)} are both {value}: two trained models never "
                "agree in every digit, so the same scores were used twice"
            )


def _inputs(row: dict[Any, Any], config: Config, files: Paths) -> str:
    """Return all that a number of a trained model depends on, as text."""
    case, method, m = config.cases[row["case"]], row["method"], int(row["sensors"])
    # Only the layouts of its own count matter; where training meets others, too, its name says so.
    layouts = case.sensors.model_copy(
        update={
            "counts": [m],
            "distances": {k: d for k, d in case.sensors.distances.items() if k == m},
        }
    )
    base = files.base(case, method)
    # A law that was chosen may be that of another method, with the same operator.
    name = base if config.law_of(case.experiment, method) is not None else method
    # Recipes of other names may state the same.
    recipe = f"/{config.recipe_of(case.experiment)}/"
    stated = config.trained(case.experiment, base)
    trained = files.training(case, base).replace(recipe, f"/{stated!r}/"), case.trials, name
    evaluation = row["evaluation"], config.evaluation_of(case.name, row["evaluation"])
    return repr([trained, layouts, case.noise_std, evaluation, row["metric"], m])
