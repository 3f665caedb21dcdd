"""What was run, in words: every number that a reader needs beside a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uqsonet.problems import get_problem
from uqsonet_study.config import Case, Config
from uqsonet_study.config.evaluations import TestEvaluation
from uqsonet_study.report.names import method_title, smoke
from uqsonet_study.report.tables.text import (
    SIGMA,
    M,
    N,
    Text,
    bold,
    integer,
    join,
    plain,
    quoted,
    text,
)


def distinct(values: Iterable) -> list:
    """Return values without repetition, in order of appearance."""
    return list(dict.fromkeys(values))


def opening(config: Config, cases: Sequence[Case]) -> Text:
    """Return ``Problem (section 4.1; experiment e).``, the beginning of a caption."""
    problems = [get_problem(name) for name in distinct(case.problem for case in cases)]
    experiments = distinct(case.experiment for case in cases)
    return text(
        "{smoke}{title} (section {section}; experiment{s} {experiments}).",
        smoke=smoke(config),
        title=bold(join(", ", [plain(problem.title) for problem in problems])),
        section=", ".join(distinct(problem.section for problem in problems)),
        s="s" if len(experiments) > 1 else "",
        experiments=", ".join(experiments),
    )


def noise(cases: Sequence[Case]) -> Text:
    """Return the levels of observation noise as a sentence without its full stop."""
    levels = sorted({case.noise_std for case in cases})
    listed = ", ".join(f"{level:g}" for level in levels if level)
    if not listed:
        return plain("Noiseless observations")
    start = "Noiseless observations and o" if 0.0 in levels else "O"
    return text(
        f"{start}bservation noise {{sigma}} {{equals}} {{listed}}",
        sigma=SIGMA,
        equals=Text("$=$", "="),
        listed=listed,
    )


def budget(config: Config, cases: Sequence[Case]) -> Text:
    """Return training pairs, trials, recipe and iterations as a sentence without its full stop.

    The iterations belong beside the numbers: a recipe's share of them is not the recipe.
    """
    sizes = join(", ", [integer(size) for size in distinct(case.training for case in cases)])
    trials = distinct(case.trials for case in cases)
    recipes = distinct(config.recipe_of(case.experiment) for case in cases)
    iterations = []
    for method in distinct(method for case in cases for method in case.methods):
        having = [case for case in cases if method in case.methods]
        numbers = distinct(config.method_of(c.name, method).training.iterations for c in having)
        name = _trained_as(config, having[0], method)
        listed = join(", ", [integer(number) for number in numbers])
        iterations.append(text("{name} {listed}", name=name, listed=listed))
    return text(
        "{N} {equals} {sizes} training pairs; {trials} trial{s}; recipe {recipes} "
        "(iterations: {iterations})",
        N=N,
        equals=Text("$=$", "="),
        sizes=sizes,
        trials=", ".join(map(str, trials)),
        s="" if trials == [1] else "s",
        recipes=join(", ", [quoted(name) for name in recipes]),
        iterations=join(", ", iterations),
    )


def _trained_as(config: Config, case: Case, method: str) -> Text:
    ensemble = config.ensemble_of(case.experiment, method)
    members = f" of {ensemble.members} trainings" if ensemble else ""
    return plain(method_title(method) + members)


def tests(config: Config, cases: Sequence[Case]) -> Text:
    """Return sets and samples of each evaluation as a sentence without its full stop."""
    found = [
        _test(config, case, label)
        for label in ("paper", "precise")
        for case in cases
        if label in case.evaluations
    ]
    return text("Test: {found}", found=join("; ", distinct(found)))


def _test(config: Config, case: Case, label: TestEvaluation) -> Text:
    used = config.evaluation_of(case.name, label)
    kind = "variance-reduced " if used.estimator == "reduced" else ""
    return text(
        "{label} with {sets} observation sets for each {m} ({samples} samples of the "
        f"{kind}reference, {{ours}} of a model)",
        label=quoted(label),
        sets=used.sets,
        m=M,
        samples=integer(used.reference_samples),
        ours=integer(used.model_samples),
    )
