"""How methods, metrics and problems are called in print."""

from __future__ import annotations

from collections.abc import Iterable

FLOOR = "reference"
METHODS = {
    "vidon": "VIDON",
    "deep_ensemble": "Deep ensemble",
    "uqsonet": "UQ-SONet",
    "sensor_free": "Sensor-free",
    "cokriging": "Cokriging",
    "regression": "Regression",
    "gaussian": "Gaussian",
    "mixture": "Mixture",
    "thresholded": "Thresholded",
    "facies": "Facies",
    "bounded": "Bounded",
    "copula": "Copula",
    "family": "Family of kernels",
    "analogue": "Analogue",
    "auto": "Auto",
    FLOOR: "MC floor",
}
PROBLEMS = {
    "diffusion1d": "1D PDE",
    "poisson2d": "2D PDE",
    "elliptic_sde1d": "1D SDE",
    "elliptic_sde2d": "2D SDE",
    "elliptic_sde2d_k": "2D SDE, k observed",
    "navier_stokes": "2D NS",
}
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
    "coverage_50": "c50",
    "coverage_90": "c90",
    "coverage_95": "c95",
    "within_50": "w50",
    "within_90": "w90",
    "within_95": "w95",
}
"""Titles of metrics, with formulas as `uqsonet_study.report.printing` reads them."""


def method_title(method: str) -> str:
    """Return the printed name of a method, its own name where none is known."""
    return METHODS.get(method, method)


def method_titles(methods: Iterable[str]) -> dict[str, str]:
    """Return method -> printed name, in the given order."""
    return {method: method_title(method) for method in methods}


OWN = "own data"  # what stands for the section of the paper where data are a user's own


def problem_about(problem: str) -> tuple[str, str]:
    """Return the section of the paper and the long name of a problem."""
    from uqsonet_study.problems import get_problem, problem_names  # deferred: they import torch

    if problem not in problem_names():
        return OWN, problem.replace("_", " ")
    found = get_problem(problem)
    return found.section, found.title


def problem_title(problem: str) -> str:
    """Return the short name of a problem, the long one where there is none."""
    return PROBLEMS.get(problem) or problem_about(problem)[1]
