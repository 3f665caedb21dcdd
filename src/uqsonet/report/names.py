"""How methods, metrics and experiments are called in print."""

from __future__ import annotations

import re

from uqsonet.config import Config, Evaluation
from uqsonet.problems import get_problem
from uqsonet.report.latex import escape

FLOOR = "reference"
METHODS = {
    "vidon": "VIDON",
    "deep_ensemble": "Deep ensemble of VIDON",
    "uqsonet": "UQ-SONet",
    "sensor_free": "Sensor-free",
    "cokriging": "Cokriging",
    FLOOR: "MC floor",
}
METRICS = {
    "err_mean": r"$\mathrm{err}_{E[u]}$",
    "err_std": r"$\mathrm{err}_{\sigma[u]}$",
    "skill_mean": r"$E[u]$",
    "skill_std": r"$\sigma[u]$",
}
SMOKE = "SMOKE SCALE -- "


def method_title(method: str) -> str:
    """Return the printed name of a method, its own name where none is known."""
    return METHODS.get(method, method)


def label(config: Config, experiment: str) -> str:
    """Return the label of the paper's table, without what LaTeX refuses in a label."""
    return re.sub(r"[^A-Za-z0-9:_./+-]", "-", config.experiments[experiment].table)


def _count(number: int) -> str:
    """Return a number with thin spaces between thousands, as LaTeX."""
    return f"{number:,}".replace(",", r"\,")


def caption(config: Config, experiment: str) -> str:
    """Return what was run, as LaTeX: every number that a reader needs beside the table."""
    chosen = config.experiments[experiment]
    problem, training = get_problem(chosen.problem), config.problems[chosen.problem].training
    noise = (
        rf"observation noise $\sigma = {chosen.noise_std:g}$"
        if chosen.noise_std
        else "noiseless observations"
    )
    trials = "1 trial" if chosen.trials == 1 else f"{chosen.trials} trials"
    tests = f"{_test(config, experiment, 'paper')}, {_test(config, experiment, 'precise')}"
    # The budget belongs beside the numbers: a recipe's share of it is not the recipe.
    budgets = ", ".join(
        f"{escape(method_title(name))} "
        + _count(config.method_of(experiment, name).training.iterations)
        for name in chosen.methods
    )
    title = escape(problem.title)
    return (
        rf"{SMOKE if config.scale == 'smoke' else ''}\textbf{{{title}}} "
        f"(section {escape(problem.section)}; experiment {escape(experiment)}). "
        r"Relative $L_2$ errors of the conditional mean and standard deviation of $u$ against "
        r"the reference, $\times 10^{-2}$, given $m$ sensors. "
        f"{noise[0].upper()}{noise[1:]}; $N = {_count(training)}$ training pairs; {trials}; "
        f"recipe ``{escape(config.recipe_of(experiment))}'' (iterations: {budgets}). "
        f"Test: {tests}."
    )


def _test(config: Config, experiment: str, label: Evaluation) -> str:
    used = config.evaluation_of(experiment, label)
    return (
        f"``{label}'' with {used.sets} observation sets for each $m$ "
        f"({_count(used.reference_samples)} samples of the "
        f"{'variance-reduced ' if used.estimator == 'reduced' else ''}reference, "
        f"{_count(used.model_samples)} of a model)"
    )
