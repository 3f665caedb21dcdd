"""Tables of costs: hours of training and seconds of inference, the paper's beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.cases import Row, Study
from uqsonet_study.report import inputs
from uqsonet_study.report.names import method_title, problem_about
from uqsonet_study.report.paper import paper_costs
from uqsonet_study.report.printing import Panel, Table, integer, text_of
from uqsonet_study.report.summary import read_numbers
from uqsonet_study.report.tables.captions import distinct
from uqsonet_study.report.tables.records import shown_cases

METRICS = {
    "train_hours": ("training (h)", "hours", "train_hours_rtx3090"),
    "iterations": ("iterations", "1", "iterations"),
    "inference_seconds": ("inference (s)", "seconds", "inference_seconds"),
}
"""Metric -> its heading, its unit, and its column in the paper's costs."""

COLUMNS = "table experiment scale recipe method metric unit value paper".split()


def costs_table(name: str, study: Study) -> tuple[Table, pd.DataFrame]:
    """Return a table of costs, from logs and timings, and its numbers in long form."""
    timings: dict[str, dict[str, Any]] = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in study.paths(inputs.timings_of_table(study, name))
    }
    paper = paper_costs().set_index(["problem", "method"])
    records, labels = [], []
    for case in shown_cases(study, name):
        for method in case.methods:
            ours = _training(study, case, method)
            ours["inference_seconds"] = timings[case.experiment]["seconds"][method]
            labels.append((problem_about(case.problem)[0], method_title(method)))
            where = f"tab:{name}", case.experiment, study.config.scale, case.recipe, method
            known = (case.problem, method) in paper.index
            for metric, (_, unit, column) in METRICS.items():
                theirs = paper.loc[(case.problem, method), column] if known else None
                records.append((*where, metric, unit, ours[metric], theirs))
    found = pd.DataFrame(records, columns=pd.Index(COLUMNS))
    found = found.astype({"value": float, "paper": float})
    columns = {}
    for metric, (heading, _, _) in METRICS.items():
        numbers = found.loc[found["metric"] == metric]
        for source, field in (("paper", "paper"), ("ours", "value")):
            columns[heading, source] = [_text(metric, value) for value in numbers[field]]
    index = pd.MultiIndex.from_tuples(labels, names=["section", "method"])
    title = "Hours of a training (mean over trials), its iterations, and seconds of an inference."
    panel = Panel(title, pd.DataFrame(columns, index=index))
    return Table(name, "Computational costs.", _caption(timings.values()), (panel,)), found


def _caption(timings: Iterable[dict[str, Any]]) -> str:
    machines, answers = [], []
    for found in timings:
        threads = found["threads"]
        # A dollar sign would begin a formula.
        processor = found["processor"].replace("$", "")
        machines.append(f"{processor}, {threads} thread{'s' * (threads > 1)} a job")
        answers.append(f"{found['samples']:,} latent samples, {found['sensors']} sensors")
    return (
        f"The paper's on an NVIDIA GeForce RTX 3090; ours on {'; '.join(distinct(machines))}. One "
        "trial is one independent training. Inference: one posterior on the full grid "
        f"({'; '.join(distinct(answers))}). Iterations of the paper are those of its sections 4.1 "
        "to 4.5."
    )


def _training(study: Study, case: Row, method: str) -> dict[str, float]:
    """Return mean hours of a training and its iterations; those of an ensemble's members add up."""
    wanted, hours = study.settings(case, method).training.iterations, []
    for path in study.paths(study.logs(case, method)):
        last = read_numbers(path, ["iteration", "seconds"]).iloc[-1]
        if last["iteration"] != wanted:
            raise DataError(
                f"{path}: ends at iteration {last['iteration']:g}, the configuration says {wanted}"
            )
        hours.append(last["seconds"] / 3600)
    members = study.members(case, method) or 1
    return {"train_hours": members * fmean(hours), "iterations": wanted}


def _text(metric: str, value: float) -> str:
    if metric == "iterations" and not pd.isna(value):
        return integer(int(value))
    # Smoke-scale trainings take a thousandth of an hour: as many digits as two figures need.
    digits = 2 if metric == "train_hours" else 3
    return text_of(value, digits=digits if value >= 10**-digits else 5)
