"""What was run, in words: every number that a reader needs beside a table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from uqsonet_study.cases import Row, Study
from uqsonet_study.report.names import method_title, problem_about
from uqsonet_study.report.printing import integer
from uqsonet_study.settings import TestEvaluation

Value = TypeVar("Value", bound=Hashable)


def distinct(values: Iterable[Value]) -> list[Value]:
    """Return values without repetition, in order of appearance."""
    return list(dict.fromkeys(values))


def listed(values: Iterable[Hashable]) -> str:
    """Return values without repetition, with commas between them."""
    return ", ".join(distinct(map(str, values)))


def problem_titles(cases: Sequence[Row]) -> str:
    """Return the problems by their long names."""
    return listed(problem_about(case.problem)[2] for case in cases)


def origin(cases: Sequence[Row]) -> str:
    """Return ``(section 4.1; experiment e).``, which follows the headline of a caption."""
    experiments = distinct(case.experiment for case in cases)
    sections = listed(problem_about(case.problem)[0] for case in cases)
    plural = "s" if len(experiments) > 1 else ""
    return f"(section {sections}; experiment{plural} {listed(experiments)})."


def conditions(study: Study, cases: Sequence[Row]) -> str:
    """Return noise, training and tests, with which a caption ends."""
    return f"{_noise(cases)}; {_budget(study, cases)}. {tests(study, cases)}"


def _noise(cases: Sequence[Row]) -> str:
    """Return the levels of observation noise, without a full stop."""
    levels = sorted({case.noise for case in cases})
    found = listed(f"{level:g}" for level in levels if level)
    if not found:
        return "Noiseless observations"
    start = "Noiseless observations and o" if 0.0 in levels else "O"
    return rf"{start}bservation noise $\sigma$ = {found}"


def _budget(study: Study, cases: Sequence[Row]) -> str:
    """Return training pairs, trials, recipe and iterations, without a full stop.

    The iterations are named because an overlay may change them and keep the recipe's name.
    """
    sizes = listed(integer(case.N) for case in cases)
    trials = listed(case.trials for case in cases)
    plural = "" if trials == "1" else "s"
    recipes = quoted_recipes(cases)
    iterations = []
    for method in distinct(method for case in cases for method in case.methods):
        having = [case for case in cases if method in case.methods]
        size = study.members(having[0], method)
        members = f" of {size} trainings" if size else ""
        settings = [study.settings(case, method).training for case in having]
        numbers = listed(integer(training.iterations) for training in settings)
        iterations.append(f"{method_title(method)}{members} {numbers}")
    return (
        f"$N$ = {sizes} training pairs; {trials} trial{plural}; recipe {recipes} "
        f"(iterations: {', '.join(iterations)})"
    )


def quoted_recipes(cases: Sequence[Row]) -> str:
    """Return the names of recipes in quotation marks."""
    return listed(f"“{case.recipe}”" for case in cases)


def tests(study: Study, cases: Sequence[Row]) -> str:
    """Return sets and samples of each evaluation as a sentence."""
    labels: tuple[TestEvaluation, ...] = ("paper", "precise")
    found = [
        _test(study, case, label) for label in labels for case in cases if label in case.evaluations
    ]
    return f"Test: {'; '.join(distinct(found))}."


def _test(study: Study, case: Row, label: TestEvaluation) -> str:
    used = study.evaluation(case.problem, label)
    start = f"“{label}” with {used.sets} observation sets for each $m$"
    drawn = integer(used.model_samples)
    if used.estimator == "none":
        true = "errors of the mean against true functions, as there is no reference"
        return f"{start} ({true}; {drawn} samples of a model)"
    kind = "variance-reduced " if used.estimator == "reduced" else ""
    samples = f"{integer(used.samples)} samples of the {kind}reference"
    return f"{start} ({samples}, {drawn} of a model)"
