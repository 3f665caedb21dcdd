"""Cards of the operators that come with the library: what they are, and how good they are.

Numbers come from the configuration, the published summaries and the header of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.config import Case, Config
from uqsonet_study.problems import Problem, get_problem


@dataclass(frozen=True)
class Operator:
    """An operator of the library: where it comes from, and what its input and equation are."""

    experiments: tuple[str, ...]  # all have scores of the same training. The first one names it.
    equation: str
    law: str


OPERATORS = {
    "diffusion1d": Operator(
        ("diffusion1d", "diffusion1d_noise"),
        "-(1/10) (k u')' = 2 sin(2 pi x), u = 0 at both ends; k -> u",
        "log k is a Gaussian field with mean sin(2 pi x) and covariance "
        "0.5^2 exp(-(x - x')^2 / 0.1^2)",
    ),
    "poisson2d": Operator(
        ("poisson2d", "poisson2d_noise"),
        "-(1/10) Lap u = f, u = 0 on the boundary; f -> u",
        "f is a Gaussian field with mean 4 (sin(2 pi x) + sin(2 pi y)) and covariance "
        "exp(-|x - x'|^2 / (2 0.1^2))",
    ),
    "elliptic_sde1d": Operator(
        ("elliptic_sde1d_more",),
        "-(1/10) (k u')' = f, u = 0 at both ends; k -> u. The source f is random and not observed: "
        "a Gaussian field with mean sin(2 pi x) + 0.1 and covariance "
        "0.1^2 exp(-(x - x')^2 / 0.1^2)",
        "log k is a Gaussian field with mean sin(pi x + 1) and covariance "
        "0.3^2 exp(-(x - x')^2 / 0.05^2)",
    ),
    "elliptic_sde2d": Operator(
        ("elliptic_sde2d",),
        "-div(k grad u) = f, u = 0 on the boundary; f -> u. The coefficient k is random and not "
        "observed: log k is a Gaussian field with mean 0 and covariance "
        "exp(-|x - x'|^2 / (2 0.1^2))",
        "f is a Gaussian field with mean 4 (sin(2 pi x) + sin(2 pi y)) and covariance "
        "exp(-|x - x'|^2 / (2 0.1^2))",
    ),
    "navier_stokes": Operator(
        ("navier_stokes",),
        "w_t + u . grad w = 1e-3 Lap w + 0.1 (sin + cos)(2 pi (x + y)), periodic; vorticity w_0 at "
        "time 0 -> vorticity w at time 10",
        "w_0 is (x (1 - x) y (1 - y))^(1/3) times a Gaussian field with mean 0 and covariance "
        "exp(-|x - x'|^2 / (2 0.1^2))",
    ),
}

WHO = {
    "": "uqsonet",
    "no_sensors_": "sensor_free",
    "cokriging_": "cokriging",
    "regression_": "regression",
}
SCORES = {
    f"{prefix}{error}": (method, error)
    for prefix, method in WHO.items()
    for error in ("err_mean", "err_std")
}
SCORES |= {f"coverage_{level}": ("uqsonet", f"coverage_{level}") for level in (50, 90, 95)}
"""Column of a card -> method and metric of a summary."""


def card(name: str, config: Config, published: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the card of an operator, from published scores and the header of its weights.

    Raises
    ------
    DataError
        If the scores of the operator are not published.
    """
    operator, problem = OPERATORS[name], get_problem(name)
    cases = config.cases_of(operator.experiments)
    scores = _scores(operator, published)
    return {
        "title": problem.title,
        "data": f"{operator.equation}. Input: {operator.law}. {meta['training']:,} training pairs, "
        f"seed {meta['seed']}.",
        "recipe": _recipe(config.recipe, meta, scores, is_published(meta["source"], published)),
        "scores": scores,
        "limits": _limits(problem, operator, cases),
    }


def is_published(source: dict[str, str], published: Path) -> bool:
    """Return whether a published run made the very file that weights come from."""
    digests = pd.read_csv(published / "weights_sha256.csv")["sha256"]
    return source["sha256"] in set(digests)


def _recipe(
    recipe: str, meta: dict[str, Any], scores: list[dict[str, float]], published: bool
) -> str:
    network, training = meta["config"]["network"], meta["config"]["training"]
    widths = "-".join(map(str, network["branch"]))
    trials = max(int(row["trials"]) for row in scores)
    return (
        f"Recipe {recipe}: Karhunen-Loeve model with {network['input_modes']} input modes, "
        f"{network['output_modes']} output modes, a linear map and a perceptron {widths}; "
        f"{training['iterations']:,} steps with batches of {training['batch_size']:,}. The scores "
        f"are averages over {trials} published trainings. "
        + ("This is the first of them." if published else "This is a repetition of the first.")
    )


def _limits(problem: Problem, operator: Operator, cases: list[Case]) -> list[str]:
    """Return what an operator is for and was tested with, in words."""
    grid, symbol, sensors = problem.grid, problem.input_symbol, cases[0].sensors
    box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(grid.lower, grid.upper, strict=True))
    positive = problem.transform.positive
    counts, levels = sensors.counts, ", ".join(f"{case.noise_std:g}" for case in cases)
    places = "on grid points drawn at random"
    if sensors.distances:
        apart = ", ".join(f"{d:g} ({m} sensors)" for m, d in sensors.distances.items())
        places = f"on grid points, {sensors.margin:g} or more from the boundary, and from each "
        places += f"other at least {apart}"
    found = [
        f"Domain: {box}{', periodic' if grid.periodic else ''}. Sensors read {symbol}"
        + (f", which must be positive; the model works with log {symbol}." if positive else "."),
        "Noise: Gaussian, independent between sensors, of any known standard deviation, on "
        f"{'log ' * positive}{symbol}. Tested with {levels}.",
        f"Sensors: tested with {counts[0]} to {counts[-1]} of them {places}.",
        f"Input: the model assumes that {operator.law}. For inputs of another law its answers are "
        "biased, or too sure.",
        "Calibration: there is no calibration part, so there is no conformal band.",
    ]
    if problem.unobserved is not None:
        found.append("What no sensor sees has its stated law, too. The band contains its effect.")
    return found


def _scores(operator: Operator, published: Path) -> list[dict[str, float]]:
    """Return a row for each noise level and sensor count: errors in percent, coverage as shares."""
    rows = []
    for experiment in operator.experiments:
        path = published / "summary" / f"{experiment}.csv"
        try:
            summary = pd.read_csv(path)
            found = summary.loc[summary["evaluation"] == "precise"].set_index(
                ["noise_std", "sensors", "method", "metric"]
            )
            places = found.index.droplevel(["method", "metric"]).unique().sort_values()
            for noise, sensors in places:
                row = {"sensors": int(sensors), "noise_std": float(noise)}
                for column, key in SCORES.items():
                    unit = 100 if "err" in column else 1
                    row[column] = rounded(unit * found.loc[(noise, sensors, *key), "value"], 4)
                counts = found.loc[(noise, sensors, "uqsonet", "err_mean")]
                rows.append(row | {key: int(counts[key]) for key in ("sets", "trials")})
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: no complete scores for a card ({error!r})") from None
    return rows


def rounded(value: SupportsFloat, digits: int) -> float:
    """Return a number with so many digits that count."""
    return float(f"{float(value):.{digits}g}")
