"""How methods, metrics and problems are called in print."""

from __future__ import annotations

from collections.abc import Iterable

FLOOR = "reference"
METHODS = {
    "vidon": "VIDON",
    "uqsonet": "UQ-SONet",
    "sensor_free": "Sensor-free",
    FLOOR: "MC floor",
    "paper": "paper",  # a row of its own in tables of networks
}
"""Names that are not the method's own with a capital letter."""

SDE = "elliptic stochastic differential equation"
PROBLEMS = {
    "diffusion1d": ("4.1", "1D PDE", "One-dimensional diffusion equation"),
    "poisson2d": ("4.2", "2D PDE", "Two-dimensional Poisson equation"),
    "elliptic_sde1d": ("4.3", "1D SDE", f"One-dimensional {SDE}"),
    "elliptic_sde2d": ("4.4", "2D SDE", f"Two-dimensional {SDE}"),
    "elliptic_sde2d_k": ("4.4", "2D SDE, k observed", f"Two-dimensional {SDE}, k observed"),
    "navier_stokes": ("4.5", "2D NS", "Navier-Stokes equations"),
}
"""The problems of the paper: section, short name and title. Tables would wait for torch if they
asked the problem itself, as they do for others."""

MEAN, STD = "$E[u]$", r"$\sigma[u]$"
METRICS = {
    "err_mean": r"$\mathrm{err}_{E[u]}$",
    "err_std": r"$\mathrm{err}_{\sigma[u]}$",
    "skill_mean": MEAN,
    "skill_std": STD,
    "w1": "$W_1$",
    "crps": "CRPS",
    "gain_crps": "gain, %",
    "crps_expected": "CRPS*",
    "gain_crps_expected": "CRPS gain*, %",
    "energy": "energy",
    "gain_energy": "gain, %",
    "energy_expected": "energy*",
    "gain_energy_expected": "energy gain*, %",
    **{f"coverage_{level}": f"c{level}" for level in (50, 90, 95)},
    **{f"within_{level}": f"w{level}" for level in (50, 90, 95)},
}
"""Titles of metrics, with formulas as `uqsonet_study.report.printing` reads them."""


def method_title(method: str) -> str:
    """Return the printed name of a method."""
    return METHODS.get(method) or method.replace("_", " ").capitalize()


def method_titles(methods: Iterable[str]) -> dict[str, str]:
    """Return method -> printed name, in the given order."""
    return {method: method_title(method) for method in methods}


def problem_about(problem: str) -> tuple[str, str, str]:
    """Return the section of the paper, the short name and the title of a problem."""
    if problem in PROBLEMS:
        return PROBLEMS[problem]
    from uqsonet_study.problems import get_problem  # deferred: it imports torch

    title = get_problem(problem).title
    return "beyond the paper", title, title


def problem_title(problem: str) -> str:
    """Return the short name of a problem, the title where there is none."""
    return problem_about(problem)[1]
