"""Tables of costs: hours of training and seconds of inference, the paper's beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet.problems import get_problem
from uqsonet_study.config import Case, Config, CostTable
from uqsonet_study.report.names import method_title, smoke
from uqsonet_study.report.paper import paper_costs
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table
from uqsonet_study.report.tables.text import Text, bold, integer, plain, text

METRICS = {
    "train_hours": (plain("training (h)"), "hours", "train_hours_rtx3090"),
    "iterations": (plain("iterations"), "1", "iterations"),
    "inference_seconds": (plain("inference (s)"), "seconds", "inference_seconds"),
}

COLUMNS = "table experiment scale recipe method metric unit value paper".split()


Logs = Mapping[str, Mapping[str, Sequence[Path]]]
"""Case -> method -> training logs; of an ensemble, those of its members."""

Timings = dict[str, dict[str, Any]]
"""Case -> what its timing found."""


def costs_table(
    name: str, config: Config, logs: Logs, inference: Sequence[Path]
) -> tuple[Table, pd.DataFrame]:
    """Return a table of costs and its numbers in long form.

    Parameters
    ----------
    name : str
    config : Config
    logs : mapping
        Case -> method -> training logs; several may share one.
    inference : sequence of Path
        Timings ``.../<case>.json``.
    """
    declared = config.tables[name]
    assert isinstance(declared, CostTable)
    timings = _read(inference)
    rows = []
    for experiment in (e for e in declared.experiments if e in config.selected):
        for method in config.experiments[experiment].methods:
            rows.append(_row(config, experiment, method, logs, timings))
    panel = Panel(
        plain(
            "Hours of a training (of a stack of trials, divided by their number; mean over files), "
            "its iterations, and seconds of an inference."
        ),
        (plain("section"), plain("method")),
        tuple((plain(row["section"]), plain(method_title(row["method"]))) for row in rows),
        tuple(
            Column(
                (heading, plain(source)), tuple(_cell(metric, row[source, metric]) for row in rows)
            )
            for metric, (heading, _, _) in METRICS.items()
            for source in ("paper", "ours")
        ),
    )
    records = [
        {
            "table": f"tab:{name}",
            "experiment": row["experiment"],
            "scale": config.scale,
            "recipe": config.recipe_of(row["experiment"]),
            "method": row["method"],
            "metric": metric,
            "unit": unit,
            "value": row["ours", metric],
            "paper": row["paper", metric],
        }
        for row in rows
        for metric, (_, unit, _) in METRICS.items()
        if row["ours", metric] is not None
    ]
    caption = _caption(config, timings)
    table = Table(name, "Computational costs", caption, (panel,))
    return table, pd.DataFrame(records, columns=pd.Index(COLUMNS))


def _caption(config: Config, timings: Timings) -> Text:
    found = list(timings.values())
    machines = distinct(f"{x['processor']}, {_threads(x['threads'])}" for x in found)
    answers = distinct(f"{x['samples']:,} latent samples, {x['sensors']} sensors" for x in found)
    return text(
        "{smoke}{title} The paper's on an NVIDIA GeForce RTX 3090; ours on {machines}. One trial "
        "is one independent training. Inference: one posterior on the full grid ({answers}). "
        "Iterations of the paper are those of its sections 4.1 to 4.5.",
        smoke=smoke(config),
        title=bold(plain("Computational costs.")),
        machines="; ".join(machines) or "a processor that no timing names",
        answers="; ".join(answers) or "not timed",
    )


def _threads(number: int) -> str:
    return "1 thread a job" if number == 1 else f"{number} threads a job"


def _training(path: Path) -> tuple[float, int]:
    """Return hours per trial and iterations of a training log."""
    try:
        log = pd.read_csv(path, usecols=["trial", "iteration", "seconds"])
        seconds, last = float(log["seconds"].to_list()[-1]), int(log["iteration"].to_list()[-1])
    except (OSError, ValueError, IndexError) as error:
        raise DataError(f"{path}: not a training log ({error})") from None
    return seconds / 3600 / len(set(log["trial"].to_list())), last


def _read(inference: Sequence[Path]) -> Timings:
    found: Timings = {}
    for path in map(Path, inference):
        try:
            timed = json.loads(path.read_text(encoding="utf-8"))
            timed["seconds"] = {m: float(s) for m, s in timed["seconds"].items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise DataError(f"{path}: not a timing of inference ({error})") from None
        found[path.stem] = timed
    return found


def _row(
    config: Config, experiment: str, method: str, logs: Logs, timings: Timings
) -> dict[Any, Any]:
    cases = config.cases_of([experiment])
    problem = get_problem(cases[0].problem)
    row: dict[Any, Any] = {"experiment": experiment, "section": problem.section, "method": method}
    printed = [
        found
        for found in paper_costs().to_dict("records")
        if (found["problem"], found["method"]) == (problem.name, method)
    ]
    for metric, (_, _, column) in METRICS.items():
        row["paper", metric] = float(printed[0][column]) if printed else None
        row["ours", metric] = None
    runs = [run for case in cases for run in _trainings(config, case, method, logs)]
    if runs:
        row["ours", "train_hours"] = fmean(hours for hours, _ in runs)
        row["ours", "iterations"] = runs[0][1]
    timed = [timings[c.name]["seconds"] for c in cases if c.name in timings]
    seconds = [found[method] for found in timed if method in found]
    if seconds:
        row["ours", "inference_seconds"] = fmean(seconds)
    return row


def _trainings(config: Config, case: Case, method: str, logs: Logs) -> list[tuple[float, int]]:
    """Return hours per trial and iterations of a case's trainings; members add up."""
    ensemble = config.ensemble_of(case.experiment, method)
    settings = config.method_of(case.name, method)
    runs = [_training(Path(path)) for path in logs.get(case.name, {}).get(method, [])]
    for _, iterations in runs:
        if iterations != settings.training.iterations:
            raise DataError(
                f"the log of {method!r} for {case.name} ends at iteration {iterations}, the "
                f"configuration says {settings.training.iterations}"
            )
    members = ensemble.members if ensemble else 1
    return [(members * hours, iterations) for hours, iterations in runs]


def _cell(metric: str, value: float | None) -> Cell:
    if value is None:
        return Cell()
    if metric == "iterations":
        return Cell(integer(int(value)))
    # Smoke-scale trainings take a thousandth of an hour: as many digits as two figures need.
    digits = 2 if metric == "train_hours" else 3
    return Cell(value, digits=digits if value >= 10**-digits else 5)
