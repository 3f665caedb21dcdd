"""Tables of ablations: what single changes of a recipe do to the skill on validation sets.

Everything comes from training logs, so no test set is touched. Each experiment is one row, known
by its recipe; the first is what the others are compared with.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Config
from uqsonet_study.report.names import problem_title
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.cells import Cell, Panel, Table, columns_of
from uqsonet_study.report.tables.costs import Logs
from uqsonet_study.report.tables.records import shown_cases

METRICS = {
    "skill_mean": ("skill of the mean", "average"),
    "skill_mean_worst": ("skill of the mean", "worst m"),
    "skill_std": ("skill of the std", "average"),
    "skill_std_worst": ("skill of the std", "worst m"),
    "minutes": ("minutes", "a training"),
}
UPPER = {metric: heads[0] for metric, heads in METRICS.items()}
LOWER = {metric: heads[1] for metric, heads in METRICS.items()}


def ablation_table(name: str, config: Config, logs: Logs) -> tuple[Table, pd.DataFrame]:
    """Return a table of validation skills and its numbers in long form.

    Parameters
    ----------
    name : str
    config : Config
    logs : mapping
        Case -> method -> training logs; several may share a training.

    Raises
    ------
    DataError
        If an experiment has no log, or a log is none.
    """
    cases = shown_cases(config, name)
    records = []
    for case in cases:
        (method,) = case.methods
        files = logs.get(case.name, {}).get(method)
        if not files:
            raise DataError(f"tables.{name}: no training log of {case.name}/{method}")
        trials = pd.concat([_trials(path) for path in files])
        about = {
            "table": f"tab:{name}",
            "experiment": case.experiment,
            "scale": config.scale,
            "recipe": config.recipe_of(case.experiment),
            "method": method,
        }
        for metric in METRICS:
            unit = "minutes" if metric == "minutes" else "1"
            number = {"value": trials[metric].mean(), "pm": trials[metric].std()}
            records.append(about | {"metric": metric, "unit": unit} | number)
    found = pd.DataFrame(records)
    panels = []
    for problem in distinct(case.problem for case in cases):
        rows = [case.experiment for case in cases if case.problem == problem]
        labels = tuple((config.recipe_of(row).replace("_", " "),) for row in rows)
        columns = columns_of(
            found.assign(statistic=found["metric"]),
            {"metric": UPPER, "statistic": LOWER},
            ("experiment", rows),
            lambda row: Cell(row.value, row.pm, digits=1 if row.metric == "minutes" else 3),
        )
        panels.append(Panel(problem_title(problem), ("recipe",), labels, tuple(columns)))
    counts = " or ".join(distinct(str(case.trials) for case in cases))
    caption = (
        "Skill over the sensor-free predictor on validation sets at the end of training, averaged "
        "over sensor counts and at the worst of them; mean and standard deviation over "
        f"{counts} trials. The first row of a problem is the recipe, each other one changes one "
        "thing."
    )
    return Table(name, "Ablation", "Ablation.", caption, tuple(panels)), found


def _trials(path: Path) -> pd.DataFrame:
    """Return the last row of each trial: skills averaged over sensor counts, and minutes."""
    try:
        log = pd.read_csv(path)
        last = log.groupby("trial").tail(1)
        found = pd.DataFrame({"minutes": last["seconds"] / 60 / len(last)})
        for part in ("mean", "std"):
            columns = last[[c for c in last.columns if c.startswith(f"skill_{part}_")]]
            found[f"skill_{part}"] = columns.mean(axis=1)
            found[f"skill_{part}_worst"] = columns.min(axis=1)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise DataError(f"{path}: not a training log ({error})") from None
    return found
