"""Tables of costs: hours of training and seconds of inference, the paper's beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Config
from uqsonet_study.report.names import method_title, problem_about
from uqsonet_study.report.paper import paper_costs
from uqsonet_study.report.printing import Panel, Table, integer, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.records import Files, shown_cases

METRICS = {
    "train_hours": ("training (h)", "hours", "train_hours_rtx3090"),
    "iterations": ("iterations", "1", "iterations"),
    "inference_seconds": ("inference (s)", "seconds", "inference_seconds"),
}
"""Metric -> its heading, its unit, and its column in the paper's costs."""

COLUMNS = "table experiment scale recipe method metric unit value paper".split()
TITLE = "Hours of a training (mean over trials), its iterations, and seconds of an inference."


def costs_table(name: str, config: Config, files: Files) -> tuple[Table, pd.DataFrame]:
    """Return a table of costs, from logs and timings, and its numbers in long form."""
    timings: dict[str, dict[str, Any]] = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in map(Path, files["inference"])
    }
    paper = paper_costs().set_index(["problem", "method"])
    records, labels = [], []
    for experiment in distinct(case.experiment for case in shown_cases(config, name)):
        problem = config.experiments[experiment].problem
        for method in config.experiments[experiment].methods:
            ours = _training(config, experiment, method, files["logs"])
            timed = [timings.get(c.name, {}) for c in config.cases_of([experiment])]
            seconds = [t["seconds"][method] for t in timed if method in t.get("seconds", {})]
            ours |= {"inference_seconds": fmean(seconds)} if seconds else {}
            labels.append((problem_about(problem)[0], method_title(method)))
            where = f"tab:{name}", experiment, config.scale, config.recipe_of(experiment), method
            for metric, (_, unit, column) in METRICS.items():
                known = (problem, method) in paper.index
                theirs = paper.loc[(problem, method), column] if known else None
                records.append((*where, metric, unit, ours.get(metric), theirs))
    found = pd.DataFrame(records, columns=pd.Index(COLUMNS))
    found = found.astype({"value": float, "paper": float})
    columns = {}
    for metric, (heading, _, _) in METRICS.items():
        numbers = found.loc[found["metric"] == metric]
        for source, field in (("paper", "paper"), ("ours", "value")):
            columns[heading, source] = [_text(metric, value) for value in numbers[field]]
    index = pd.MultiIndex.from_tuples(labels, names=["section", "method"])
    panel = Panel(TITLE, pd.DataFrame(columns, index=index))
    caption = _caption(timings.values())
    table = Table(name, "Computational costs", "Computational costs.", caption, (panel,))
    return table, found.loc[found["value"].notna()]


def _caption(timings: Iterable[dict[str, Any]]) -> str:
    machines, answers = [], []
    for found in timings:
        threads = found["threads"]
        jobs = "1 thread a job" if threads == 1 else f"{threads} threads a job"
        # A dollar sign would begin a formula.
        machines.append(f"{found['processor'].replace('$', '')}, {jobs}")
        answers.append(f"{found['samples']:,} latent samples, {found['sensors']} sensors")
    where = "; ".join(distinct(machines)) or "a processor that no timing names"
    what = "; ".join(distinct(answers)) or "not timed"
    return (
        f"The paper's on an NVIDIA GeForce RTX 3090; ours on {where}. One trial is one "
        f"independent training. Inference: one posterior on the full grid ({what}). "
        "Iterations of the paper are those of its sections 4.1 to 4.5."
    )


def _training(config: Config, experiment: str, method: str, logs: Files) -> dict[str, float]:
    """Return mean hours per trial and iterations; those of an ensemble's members add up."""
    ensemble, cases = config.ensemble_of(experiment, method), config.cases_of([experiment])
    runs = []
    for path in (Path(f) for case in cases for f in logs.get(case.name, {}).get(method, ())):
        log = read_numbers(path, ["trial", "iteration", "seconds"])
        hours = log["seconds"].iloc[-1] / 3600 / log["trial"].nunique()
        runs.append((hours, int(log["iteration"].iloc[-1])))
    allowed = {config.method_of(case.name, method).training.iterations for case in cases}
    for _, iterations in runs:
        if iterations not in allowed:
            raise DataError(
                f"a log of {method!r} for {experiment} ends at iteration {iterations}, the "
                f"configuration says {', '.join(map(str, sorted(allowed)))}"
            )
    if not runs:
        return {}
    members = ensemble.members if ensemble else 1
    hours = fmean(members * hours for hours, _ in runs)
    return {"train_hours": hours, "iterations": runs[0][1]}


def _text(metric: str, value: float) -> str:
    if metric == "iterations" and not pd.isna(value):
        return integer(int(value))
    # Smoke-scale trainings take a thousandth of an hour: as many digits as two figures need.
    digits = 2 if metric == "train_hours" else 3
    return text_of(value, digits=digits if value >= 10**-digits else 5)
