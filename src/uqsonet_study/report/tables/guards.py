"""What no table may print: scores used twice, numbers from nowhere, NaN."""

from __future__ import annotations

import math
from typing import Any, get_args

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Config, ScoreMetric
from uqsonet_study.pipeline.files import Files
from uqsonet_study.report.names import FLOOR
from uqsonet_study.report.summary import SKILLS

KEY = ["case", "evaluation", "method", "metric", "sensors"]
METRICS = (*SKILLS, *SKILLS.values(), *get_args(ScoreMetric), "mean_std", "narrower")
SHARES = ("narrower", "coverage", "within")
"""Metrics that are shares: two models may well have the same."""


def check_cells(records: pd.DataFrame, config: Config, summary: pd.DataFrame) -> None:
    """Refuse a table that holds what no table may print.

    Parameters
    ----------
    records : DataFrame
        Numbers of a table in long form (`uqsonet_study.report.tables.write.write_table`). Rows without an
        evaluation, such as costs, are checked for finiteness alone.
    config : Config
    summary : DataFrame
        All summaries that are inputs of the table.

    Raises
    ------
    DataError
        If a number is not finite, has no declared input behind it, differs from its input, or is
        that of another trained model in every digit.
    """
    require_finite(records)
    require_inputs(records, config, summary)
    require_distinct(records, config)


def place(row: Any) -> str:
    """Return where a number stands, in words."""
    return (
        f"{row['case']}: {row['metric']} of {row['method']!r} with {int(row['sensors'])} sensors "
        f"({row['evaluation']})"
    )


def _has(row: dict[Any, Any], column: str) -> bool:
    """Return whether a row has something in a column: other layouts leave it empty."""
    found = row.get(column)
    return found is not None and found == found  # NaN is what pandas fills in


def _scored(records: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows that come from scores."""
    return [row for row in records.to_dict("records") if _has(row, "evaluation")]


def require_finite(records: pd.DataFrame) -> None:
    """Refuse numbers that are not finite; only a single trial has no ±."""
    for row in records.to_dict("records"):
        if _has(row, "setting"):
            continue  # a text
        scored = _has(row, "evaluation")
        ends = ("low", "high", *(("pm",) if int(row["trials"]) > 1 else ())) if scored else ()
        for column in ("value", *ends):
            if not math.isfinite(float(row[column])):
                where = place(row) if scored else f"{row['metric']} of {row['method']!r}"
                raise DataError(f"{where}: {column} is {row[column]}, which no table may print")


def require_inputs(records: pd.DataFrame, config: Config, summary: pd.DataFrame) -> None:
    """Refuse numbers that no declared and given input explains."""
    rows = _scored(records)
    if not rows:
        return
    given = {tuple(row[key] for key in KEY): row["value"] for row in summary.to_dict("records")}
    for row in rows:
        problem = _undeclared(row, config)
        if problem:
            raise DataError(f"{place(row)} stands in a table, but {problem}")
        value = given.get(tuple(row[key] for key in KEY))
        if value is None:
            raise DataError(f"{place(row)} stands in a table, but no summary that it reads has it")
        scale = 100 if row["unit"] == "percent" else 1
        if not math.isclose(float(row["value"]), scale * value, rel_tol=1e-9):
            raise DataError(
                f"{place(row)} is {row['value']} in a table and {scale * value} in its summary"
            )


def _undeclared(row: dict[str, Any], config: Config) -> str:
    """Return what the configuration lacks for a number, nothing if it declares it."""
    case = config.cases.get(row["case"])
    if case is None or case.experiment not in config.selected:
        return f"the configuration runs no case {row['case']!r}"
    metric, _, line = row["metric"].partition("@")
    for found, allowed, what in (
        (row["method"], (*case.methods, *BASELINES, FLOOR), "method"),
        (row["evaluation"], case.evaluations, "evaluation"),
        (int(row["sensors"]), case.sensors.counts, "sensor count"),
        (line, ("", *case.cut_lines), "cut line"),
        (metric, METRICS, "metric"),
    ):
        if found not in allowed:
            return f"{case.name} declares no {what} {found!r}"
    return ""


def require_distinct(records: pd.DataFrame, config: Config) -> None:
    """Refuse two numbers of trained models that agree in every digit.

    Only a mix-up of files explains them, unless everything behind them is the same: experiments
    share trainings and scores where all that these depend on is equal.
    """
    files = Files(config)
    seen: dict[float, tuple[str, dict[str, Any]]] = {}
    for row in _scored(records):
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


def _inputs(row: dict[str, Any], config: Config, files: Files) -> str:
    """Return all that a number of a trained model depends on, as text."""
    case, method, m = config.cases[row["case"]], row["method"], int(row["sensors"])
    # Only the layouts of its own count matter; where training meets others, too, its name says so.
    layouts = case.sensors.model_copy(
        update={
            "counts": [m],
            "distances": {k: d for k, d in case.sensors.distances.items() if k == m},
        }
    )
    trained = files.training_name(case.name, files.base(case.name, method)), case.trials, method
    evaluation = row["evaluation"], config.evaluation_of(case.name, row["evaluation"])
    return repr([trained, layouts, case.noise_std, evaluation, row["metric"], m])
