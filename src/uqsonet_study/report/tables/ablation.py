"""Tables of ablations: what single changes of a recipe do to the skill on validation sets.

Everything comes from training logs, so no test set is touched. Each experiment is one row, known
by its recipe; the first is what the others are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import AblationTable, Config
from uqsonet_study.report.names import problem_title, smoke
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table
from uqsonet_study.report.tables.costs import Logs
from uqsonet_study.report.tables.text import Text, bold, plain, text

METRICS = {
    "skill_mean": (plain("skill of the mean"), plain("average")),
    "skill_mean_worst": (plain("skill of the mean"), plain("worst m")),
    "skill_std": (plain("skill of the std"), plain("average")),
    "skill_std_worst": (plain("skill of the std"), plain("worst m")),
    "minutes": (plain("minutes"), plain("a training")),
}
COLUMNS = "table experiment scale recipe method metric unit value pm".split()


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
    declared = config.tables[name]
    assert isinstance(declared, AblationTable)
    experiments = [e for e in declared.experiments if e in config.selected]
    records = []
    for experiment in experiments:
        (case,) = config.cases_of([experiment])
        (method,) = case.methods
        files = logs.get(case.name, {}).get(method)
        if not files:
            raise DataError(f"tables.{name}: no training log of {case.name}/{method}")
        trials = pd.concat([_trials(path) for path in files])
        about = {
            "table": f"tab:{name}",
            "experiment": experiment,
            "scale": config.scale,
            "recipe": config.recipe_of(experiment),
            "method": method,
        }
        for metric in METRICS:
            values = [float(value) for value in trials[metric].to_list()]
            pm = stdev(values) if len(values) > 1 else None
            unit = "minutes" if metric == "minutes" else "1"
            value = {"metric": metric, "unit": unit, "value": fmean(values), "pm": pm}
            records.append(about | value)
    table = pd.DataFrame(records, columns=pd.Index(COLUMNS))
    panels = tuple(
        _panel(problem, [e for e in experiments if config.experiments[e].problem == problem], table)
        for problem in distinct(config.experiments[e].problem for e in experiments)
    )
    return Table(name, "Ablation", _caption(config, experiments), panels), table


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


def _panel(problem: str, experiments: Sequence[str], table: pd.DataFrame) -> Panel:
    rows = table.set_index(["experiment", "metric"])
    recipes = [str(rows.loc[(e, "minutes"), "recipe"]) for e in experiments]
    columns = []
    for metric, heads in METRICS.items():
        cells = []
        for experiment in experiments:
            row = rows.loc[(experiment, metric)]
            digits = 1 if metric == "minutes" else 3
            cells.append(Cell(float(row["value"]), pm=float(row["pm"]), digits=digits))
        columns.append(Column(heads, tuple(cells)))
    labels = tuple((plain(recipe.replace("_", " ")),) for recipe in recipes)
    return Panel(plain(problem_title(problem)), (plain("recipe"),), labels, tuple(columns))


def _caption(config: Config, experiments: Sequence[str]) -> Text:
    trials = distinct(str(config.experiments[e].trials) for e in experiments)
    return text(
        "{smoke}{title} Skill over the sensor-free predictor on validation sets at the end of "
        "training, averaged over sensor counts and at the worst of them; mean and standard "
        "deviation over {trials} trials. The first row of a problem is the recipe, each other one "
        "changes one thing.",
        smoke=smoke(config),
        title=bold(plain("Ablation.")),
        trials=" or ".join(trials),
    )
