"""How methods, metrics and problems are called in print."""

from __future__ import annotations

from uqsonet_study.config import Config
from uqsonet_study.report.tables.text import DASH, EMPTY, ERR_MEAN, ERR_STD, MEAN, STD, Text, plain

FLOOR = "reference"
METHODS = {
    "vidon": "VIDON",
    "deep_ensemble": "Deep ensemble",
    "uqsonet": "UQ-SONet",
    "sensor_free": "Sensor-free",
    "cokriging": "Cokriging",
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
METRICS = {
    "err_mean": ERR_MEAN,
    "err_std": ERR_STD,
    "skill_mean": MEAN,
    "skill_std": STD,
    "crps": plain("CRPS"),
    "gain_crps": plain("gain, %"),
    "crps_expected": plain("CRPS*"),
    "gain_crps_expected": plain("CRPS gain*, %"),
    "energy": plain("energy"),
    "gain_energy": plain("gain, %"),
    "energy_expected": plain("energy*"),
    "gain_energy_expected": plain("energy gain*, %"),
    "coverage_50": plain("c50"),
    "coverage_90": plain("c90"),
    "coverage_95": plain("c95"),
    "within_50": plain("w50"),
    "within_90": plain("w90"),
    "within_95": plain("w95"),
}
BRIEF = {"err_mean": MEAN, "err_std": STD}
"""Where the title of a panel says that its numbers are errors."""


def method_title(method: str) -> str:
    """Return the printed name of a method, its own name where none is known."""
    return METHODS.get(method, method)


def problem_title(problem: str) -> str:
    """Return the short name of a problem, the long one where there is none."""
    if problem in PROBLEMS:
        return PROBLEMS[problem]
    from uqsonet.problems import get_problem  # deferred: it imports torch

    return get_problem(problem).title


def smoke(config: Config) -> Text:
    """Return what a caption begins with at smoke scale."""
    return plain("SMOKE SCALE") + DASH if config.scale == "smoke" else EMPTY
