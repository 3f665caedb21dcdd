"""What tables and figures are made from, and which experiments they can show.

Each function names files for one table or figure; it refuses experiments that the layout cannot
show before anything is computed for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from uqsonet.errors import ConfigError
from uqsonet_study.cases import Row, Study
from uqsonet_study.config import Figure

SUMMARISED = ("errors", "bands", "scores")
ONE_CASE = ("scores", "ablation", "laws", "costs", "calibration")
"""Layouts that show an experiment by its one case."""

BY_REFERENCE = ("errors", "bands", "laws", "posterior", "compare", "calibration")
"""Layouts that compare with reference posteriors."""


@dataclass(frozen=True)
class PanelFiles:
    """What a panel of a figure of posteriors is made from."""

    sensors: int  # their number
    functions: Path
    reference: Path
    weights: list[Path]  # all members of an ensemble, or the first trial
    ensemble: bool


def summaries_of_table(study: Study, name: str) -> list[str]:
    """Return the summaries that a table of errors, bands or scores shows."""
    table = study.config.tables[name]
    _require(study, f"tables.{name}", table.layout, table.experiments)
    if table.layout == "errors":
        _require_errors(study, f"tables.{name}", table.experiments)
    return study.summaries(table.experiments) if table.layout in SUMMARISED else []


def logs_of_table(study: Study, name: str) -> list[str]:
    """Return the training logs that a table of costs or ablations shows."""
    table = study.config.tables[name]
    if table.layout not in ("costs", "ablation"):
        return []
    pairs = [(case, m) for case in study.of(table.experiments) for m in case.methods]
    return list(dict.fromkeys(log for pair in pairs for log in study.logs(*pair)))


def timings_of_table(study: Study, name: str) -> list[str]:
    """Return the measured times of answers that a table of costs shows."""
    table = study.config.tables[name]
    folder = f"{study.config.results}/inference"
    timed = table.experiments if table.layout == "costs" else []
    return [f"{folder}/{experiment}.json" for experiment in timed]


def summaries_of_figure(study: Study, name: str) -> list[str]:
    """Return the summaries that a figure of sweeps or calibration shows."""
    figure = study.config.figures[name]
    where = f"figures.{name}"
    _require(study, where, figure.layout, figure.shown)
    if figure.layout == "calibration":
        _require_samples(study, where, figure.shown)
    for experiment, key in ((figure.distance, "dz"), (figure.errors, "N")):
        if experiment and len(getattr(study.config.experiments[experiment], key) or []) < 2:
            raise ConfigError(f"{where}: experiments.{experiment} has no list of {key}")
    return [] if figure.layout == "posterior" else study.summaries(figure.shown)


def panels(study: Study, name: str) -> list[PanelFiles]:
    """Return the panels of a figure of posteriors."""
    figure = study.config.figures[name]
    if figure.layout != "posterior":
        return []
    found = []
    for count, noise in product(figure.counts or [], figure.noise):
        case = _case_of(study, f"figures.{name}", figure, count, noise)
        answer = next(
            row
            for row in study.answers_of(case.experiment)
            if (row.name, row.method) == (case.name, figure.method)
        )
        if answer.fault:
            raise ConfigError(answer.fault)
        functions = f"{study.config.results}/data/{case.problem}.h5"
        reference = study.reference(case.problem, case.given, case.evaluations[0])
        weights = answer.weights if answer.ensemble else answer.weights[:1]
        data, posteriors = study.paths([functions, reference])
        found.append(PanelFiles(count, data, posteriors, study.paths(weights), answer.ensemble))
    return found


def panel_files(study: Study, name: str) -> list[str]:
    """Return the files of all panels of a figure."""
    every = panels(study, name)
    files = (file for one in every for file in (one.functions, one.reference, *one.weights))
    return list(dict.fromkeys(map(str, files)))


def error_tables(study: Study) -> list[str]:
    """Return the tables of errors, whose numbers stand beside the paper's."""
    return [name for name, table in study.config.tables.items() if table.layout == "errors"]


def law_experiments(study: Study) -> list[str]:
    """Return the experiments whose laws stand in a table."""
    shown = [study.config.tables[name].experiments for name in law_tables(study)]
    return list(dict.fromkeys(experiment for experiments in shown for experiment in experiments))


def law_tables(study: Study) -> list[str]:
    """Return the tables of laws of the input."""
    return [name for name, table in study.config.tables.items() if table.layout == "laws"]


def _case_of(study: Study, where: str, figure: Figure, count: int, noise: float) -> Row:
    """Return the one case of an experiment with a noise level and a number of sensors."""
    assert figure.experiment is not None
    cases = study.of([figure.experiment])
    _require_among(where, figure.method, cases[0].methods, "methods")
    _require_among(where, noise, {case.noise for case in cases}, "noise")
    _require_among(where, count, {m for case in cases for m in case.counts}, "counts")
    found = [case for case in cases if count in case.counts and case.noise == noise]
    if len(found) != 1:
        raise ConfigError(
            f"{where}: experiments.{figure.experiment} has {len(found)} cases with noise "
            f"{noise:g} and {count} sensors, one is shown"
        )
    return found[0]


def _require(study: Study, where: str, layout: str, experiments: Sequence[str]) -> None:
    """Refuse experiments that a layout cannot show."""
    for experiment in experiments:
        cases = study.of([experiment])
        if layout in ONE_CASE and len(cases) > 1:
            raise ConfigError(f"{where}: {experiment} has {len(cases)} cases, one is shown")
        if layout == "ablation" and len(cases[0].methods) > 1:
            raise ConfigError(f"{where}: {experiment} has several methods, one is shown")
        for label in cases[0].evaluations if layout in BY_REFERENCE else ():
            if study.evaluation(cases[0].problem, label).estimator == "none":
                raise ConfigError(
                    f"{where}: layout {layout} compares with reference posteriors, which "
                    f"{experiment} has not"
                )
    problems = [study.of([e])[0].problem for e in experiments]
    if layout == "laws" and len(set(problems)) < len(problems):
        raise ConfigError(f"{where}: a problem has one panel, found {problems}")


def _require_errors(study: Study, where: str, experiments: Sequence[str]) -> None:
    declared = [study.config.experiments[e] for e in experiments]
    if len({one.problem for one in declared}) > 1:
        raise ConfigError(f"{where}: a table of errors is about one problem")
    for name, one in zip(experiments, declared, strict=True):
        if len(one.N or []) > 1 or len(one.dz or []) > 1:
            raise ConfigError(f"{where}: {name} varies N or dz, which no table of errors can show")


def _require_samples(study: Study, where: str, experiments: Sequence[str]) -> None:
    for case in study.of(experiments):
        known = study.evaluation(case.problem, case.evaluations[0]).wasserstein
        if "uqsonet" not in case.methods or not known:
            raise ConfigError(
                f"{where}: {case.experiment} needs the method uqsonet, and samples in its "
                "references: evaluations.*.wasserstein"
            )


def _require_among(where: str, value: object, allowed: Collection[Any], key: str) -> None:
    if value not in allowed:
        raise ConfigError(f"{where}: {value!r} is not among {key} {sorted(allowed)}")
