"""Tables of ablations: what single changes of a recipe do to the skill on validation sets.

Everything comes from training logs, so no test set is touched. Each experiment is one row, known
by its recipe; the first is what the others are compared with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet_study.cases import Study
from uqsonet_study.report.names import problem_title
from uqsonet_study.report.printing import Panel, Table, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.records import about, shown_cases

COLUMNS = "table experiment scale recipe method metric unit value pm".split()
HEADS = {
    "skill_mean": ("skill of the mean", "average"),
    "skill_mean_worst": ("skill of the mean", "worst m"),
    "skill_std": ("skill of the std", "average"),
    "skill_std_worst": ("skill of the std", "worst m"),
    "minutes": ("minutes", "a training"),
}
"""Metric -> its heading and the one below it."""


def ablation_table(name: str, study: Study) -> tuple[Table, pd.DataFrame]:
    """Return a table of validation skills, from training logs, and its numbers in long form."""
    cases, records = shown_cases(study, name), []
    for case in cases:
        (method,) = case.methods
        trials = pd.DataFrame(map(_last, study.paths(study.logs(case, method))))
        for metric in HEADS:
            number = {"value": trials[metric].mean(), "pm": trials[metric].std()}
            unit = "minutes" if metric == "minutes" else "1"
            where = {"method": method, "metric": metric, "unit": unit}
            records.append(about(name, study, case) | where | number)
    found = pd.DataFrame(records, columns=pd.Index(COLUMNS))
    titles = {
        "metric": {metric: head for metric, (head, _) in HEADS.items()},
        "statistic": {metric: below for metric, (_, below) in HEADS.items()},
    }
    shown, panels = found.assign(statistic=found["metric"]), []
    for problem in distinct(case.problem for case in cases):
        own = (case for case in cases if case.problem == problem)
        recipes = {case.experiment: case.recipe.replace("_", " ") for case in own}
        cells = pivot(shown, titles, recipes, _text, "recipe", "experiment")
        panels.append(Panel(problem_title(problem), cells))
    trials = " or ".join(distinct(str(case.trials) for case in cases))
    caption = (
        "Skill over the sensor-free predictor on validation sets at the end of training, "
        f"averaged over sensor counts; mean and standard deviation over {trials} trials. The "
        "first row of a problem is the recipe, each other one changes one thing."
    )
    return Table(name, "Ablation.", caption, tuple(panels)), found


def _text(record: Any) -> str:
    digits = 1 if record.metric == "minutes" else 3
    return text_of(record.value, pm=record.pm, digits=digits)


def _last(log: Path) -> dict[str, float]:
    """Return the skills at the end of a training, over all sensor counts, and its minutes."""
    last = read_numbers(log, ["seconds"]).iloc[-1]
    found = {"minutes": last["seconds"] / 60}
    for skill in ("skill_mean", "skill_std"):
        by_count = last[last.index.str.startswith(f"{skill}_")]
        found |= {skill: by_count.mean(), f"{skill}_worst": by_count.min()}
    return found
