"""Numbers of tables in long form, one row each, as their CSV files hold them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd

from uqsonet_study.config import BASELINES, Case, Config
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.names import FLOOR
from uqsonet_study.report.numbers import Number
from uqsonet_study.report.summary import SKILLS as SKILL_OF
from uqsonet_study.report.tables.places import Places

ERRORS = tuple(SKILL_OF)
SKILLS = tuple(SKILL_OF.values())


def case_columns(config: Config, case: Case) -> dict[str, Any]:
    """Return what the CSV of every table says about a case."""
    return {
        "experiment": case.experiment,
        "case": case.name,
        "scale": config.scale,
        "recipe": config.recipe_of(case.experiment),
        "noise_std": case.noise_std,
        "training": case.training,
    }


def number_columns(found: Number, scale: float) -> dict[str, Any]:
    """Return a number as the CSV of every table holds it, `scale` times the score."""
    scaled = {key: scale * getattr(found, key) for key in ("value", "pm", "low", "high")}
    return {"unit": "percent" if scale == 100 else "1"} | asdict(found) | scaled


def error_records(places: Places) -> pd.DataFrame:
    """Return the numbers of the table in long form, the paper's beside them."""
    rows = []
    for case in places.cases:
        numbers, printed = places.numbers[case.name], places.printed[case.name]
        head = {"table": f"tab:{places.name}"} | case_columns(places.config, case)
        for label in case.evaluations:
            for method in (*case.methods, *BASELINES, FLOOR):
                for score in _scores(places, case, label, method):
                    for m in numbers.counts:
                        where = dict(evaluation=label, method=method, sensors=m, metric=score)
                        found = numbers.get(label, method, score, m)
                        cell = printed.get((method, m, score)) if label == "paper" else None
                        paper = {"paper": cell.paper, "paper_pm": cell.paper_pm} if cell else {}
                        scale = 1 if score in SKILLS else 100
                        rows.append(head | where | number_columns(found, scale) | paper)
    return pd.DataFrame(rows)


def _scores(places: Places, case: Case, label: TestEvaluation, method: str) -> list[str]:
    lines = [f"{metric}@{line}" for line in case.cut_lines for metric in ERRORS]
    skills = () if method == "sensor_free" else SKILLS
    return [s for s in (*ERRORS, *lines, *skills) if places.has(case, label, method, s)]
