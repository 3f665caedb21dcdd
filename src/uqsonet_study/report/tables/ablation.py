"""Tables of ablations: what single changes of a recipe do to the skill on validation sets.

Everything comes from training logs, so no test set is touched. Each experiment is one row, known
by its recipe; the first is what the others are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import AblationTable, Config
from uqsonet_study.report.names import problem_title
from uqsonet_study.report.printing import Panel, Table, pivot, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.records import Files, about, shown_cases

COLUMNS = "table experiment scale recipe method metric unit value pm".split()
PARTS = {"skill_mean": "skill of the mean", "skill_std": "skill of the std"}

FIRST = "The first row of a problem is the recipe, each other one changes one thing."


def heads_of(counts: Sequence[int]) -> dict[str, tuple[str, str]]:
    """Return the metrics of a table with their heads: skill at some counts, or over all of them."""
    shown = {f"_{m}": f"m = {m}" for m in counts} or {"": "average", "_worst": "worst m"}
    found = {
        f"{part}{end}": (head, below)
        for part, head in PARTS.items()
        for end, below in shown.items()
    }
    if counts:
        found["active_units"] = ("active", "units of z")
    return found | {"minutes": ("minutes", "a training")}


def ablation_table(name: str, config: Config, files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of validation skills, from training logs, and its numbers in long form."""
    cases, output = shown_cases(config, name), config.tables[name]
    assert isinstance(output, AblationTable)
    heads = heads_of(output.counts)
    records = []
    for case in cases:
        (method,) = case.methods
        logs = files["logs"].get(case.name, {}).get(method)
        if not logs:
            raise DataError(f"tables.{name}: no training log of {case.name}/{method}")
        trials = pd.concat([_trials(path) for path in logs])
        for metric in (metric for metric in heads if metric in trials):
            number = {"value": trials[metric].mean(), "pm": trials[metric].std()}
            number |= {"metric": metric, "unit": "minutes" if metric == "minutes" else "1"}
            records.append(about(name, config, case) | {"method": method} | number)
    found = pd.DataFrame(records, columns=pd.Index(COLUMNS))
    titles = {
        "metric": {metric: head for metric, (head, _) in heads.items()},
        "statistic": {metric: below for metric, (_, below) in heads.items()},
    }
    panels = []
    for problem in distinct(case.problem for case in cases):
        recipes = {
            case.experiment: config.recipe_of(case.experiment).replace("_", " ")
            for case in cases
            if case.problem == problem
        }
        shown = found.assign(statistic=found["metric"])
        cells = pivot(shown, titles, recipes, skill_text, "recipe", "experiment")
        panels.append(Panel(problem_title(problem), cells))
    trials = " or ".join(distinct(str(case.trials) for case in cases))
    where = "at some" if output.counts else "averaged over"
    caption = (
        "Skill over the sensor-free predictor on validation sets at the end of training, "
        f"{where} sensor counts; mean and standard deviation over {trials} trials. "
        f"{'Rows are recipes.' if output.counts else FIRST}"
    )
    return Table(name, "Ablation", "Ablation.", caption, tuple(panels)), found


def skill_text(record: Any) -> str:
    """Return a skill, or minutes or units, with its ± over trials."""
    digits = 3 if record.metric.startswith("skill") else 1
    return text_of(record.value, pm=record.pm, digits=digits)


def _trials(path: Path) -> pd.DataFrame:
    """Return the last row of each trial, with skills over all sensor counts, and minutes."""
    last = read_numbers(path, ["trial", "seconds"]).groupby("trial").tail(1)
    found = last.assign(minutes=last["seconds"] / 60 / len(last))
    for part in PARTS:
        skills = last[[c for c in last.columns if c.startswith(f"{part}_")]]
        found[part], found[f"{part}_worst"] = skills.mean(axis=1), skills.min(axis=1)
    return found
