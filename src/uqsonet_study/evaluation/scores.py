"""How one posterior compares with its reference: errors, distances, bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from uqsonet.errors import DataError, NoUncertaintyError
from uqsonet.grids import Grid
from uqsonet.metrics import (
    ascending,
    bures_wasserstein2,
    coverage,
    crps,
    energy_score,
    expected_crps,
    rank_shares,
    relative_error,
    wasserstein2,
)
from uqsonet.posterior import Posterior, spread
from uqsonet.problems import Problem
from uqsonet.reference import Reference, load_reference
from uqsonet.simulation import load_functions
from uqsonet_study.config import EvaluationConfig

BAND_SAMPLES = 1000
"""Samples behind CRPS and coverage, on the training grid."""

EXPECTED_SAMPLES = 4000
"""Samples behind the expected CRPS: their own error should be below 0.1 % of it."""

EXPECTED_ENERGY_SAMPLES = 2000
"""Those of them behind the expected energy score."""

ENERGY_SAMPLES = 250
"""Samples behind the energy score, whose cost grows with their square."""

LEVELS = (0.5, 0.9, 0.95)

RANK_BINS = 10
"""Bars of a rank histogram."""


@dataclass(frozen=True)
class Yardstick:
    """What posteriors are scored against."""

    problem: Problem
    reference: Reference
    truth: Tensor
    """Outputs of the observed functions on the full grid, (S, n)."""
    config: EvaluationConfig
    lines: Mapping[str, Tensor]
    """Cut lines, each with the grid points on it."""


def load_yardstick(
    functions: Path, reference: Path, config: EvaluationConfig, cut_lines: Sequence[str] = ()
) -> Yardstick:
    """Read the reference posteriors and the true outputs behind the observations.

    Raises
    ------
    DataError
        If a file is damaged or a cut line is not one of the grid.
    """
    found, problem, _ = load_reference(reference)
    truth = load_functions(functions, "test").u.double()[found.function]
    lines = {line: points_on(problem.grid, line) for line in cut_lines}
    return Yardstick(problem, found, truth, config, lines)


def points_on(grid: Grid, line: str) -> Tensor:
    """Return the indices of the grid points on a line such as ``x=0.5``.

    Raises
    ------
    DataError
        If no grid points lie there.
    """
    axis, _, value = line.partition("=")
    k = "xy".index(axis)
    if k < grid.dim:
        distance = (grid.points()[:, k] - float(value)).abs()
        found = (distance < 1e-6 * grid.spacing()[k]).nonzero()[:, 0]
        if len(found):
            return found
    shape = " x ".join(str(n) for n in grid.shape)
    raise DataError(f"cut line {line}: no points of the {shape} grid lie on it")


def _errors(
    predicted: tuple[Tensor, Tensor | None], yardstick: Yardstick, s: int
) -> dict[str, float]:
    """Return relative errors of mean and std (where there is one), also on the cut lines."""
    reference = yardstick.reference.mean[s], yardstick.reference.std[s]
    scores = {}
    for name, ours, theirs in zip(("err_mean", "err_std"), predicted, reference, strict=True):
        if ours is None:
            continue
        scores[name] = float(relative_error(ours, theirs))
        for line, points in yardstick.lines.items():
            scores[f"{name}@{line}"] = float(relative_error(ours[points], theirs[points]))
    return scores


def narrower_share(predicted: Tensor, reference: Tensor) -> float:
    """Return the share of the domain where a predicted std is below the reference's.

    Points without any uncertainty, such as a Dirichlet boundary, do not count.
    """
    uncertain = reference > 1e-6 * reference.max()
    return float((predicted < reference)[uncertain].double().mean())


def score_set(
    posterior: Posterior,
    expansion: tuple[Tensor, Tensor],
    yardstick: Yardstick,
    s: int,
    generator: torch.Generator,
) -> dict[str, float]:
    """Return the metrics of one posterior (a batch of one) against reference set `s`.

    `expansion` is ``posterior.basis()``, the same for all posteriors of a model.
    """
    ref, problem, config = yardstick.reference, yardstick.problem, yardstick.config
    offset, basis = expansion
    try:
        mean, covariance = posterior.moments(config.model_samples, generator)
    except NoUncertaintyError:
        return _errors((posterior.mean()[0], None), yardstick, s)
    predicted_mean, predicted_std = (offset + mean @ basis.T)[0], spread(basis, covariance)[0]
    to_modes = ref.mode_vectors.T @ basis
    grid, kept = problem.training_grid()
    drawn = posterior.draw(min(config.model_samples, BAND_SAMPLES), generator)[0]
    samples = offset[kept] + drawn @ basis[kept].T
    truth, ordered = yardstick.truth[s, kept], ascending(samples)
    scores = {
        **_errors((predicted_mean, predicted_std), yardstick, s),
        "mean_std": float(predicted_std.mean()),
        "narrower": narrower_share(predicted_std, ref.std[s]),
        "w2_gaussian": float(
            bures_wasserstein2(
                ref.mode_vectors.T @ offset + to_modes @ mean[0],
                to_modes @ covariance[0] @ to_modes.T,
                ref.mode_mean[s],
                ref.mode_covariance[s],
            )
        ),
        **_against_truth(samples, ordered, truth, grid),
    }
    if ref.samples is not None:
        scores["w2"] = wasserstein2(samples, ref.samples[s], grid.quadrature())
        outcomes = ref.samples[s].double()
        within = coverage(ordered, outcomes, LEVELS)
        scores |= {f"within_{100 * v:.0f}": p for v, p in zip(LEVELS, within, strict=True)}
        more = offset[kept] + posterior.draw(EXPECTED_SAMPLES, generator)[0] @ basis[kept].T
        scores["crps_expected"] = expected_crps(ascending(more), ascending(outcomes))
        some = more[:EXPECTED_ENERGY_SAMPLES]
        scores["energy_expected"] = energy_score(some, outcomes, grid.quadrature())
    return scores


def _against_truth(samples: Tensor, ordered: Tensor, truth: Tensor, grid: Grid) -> dict[str, float]:
    """Return proper scores, the share of truths inside central bands, and the rank histogram."""
    found = coverage(ordered, truth, LEVELS)
    ranks = rank_shares(ordered, truth, RANK_BINS)
    return {
        "crps": crps(ordered, truth),
        "energy": energy_score(samples[:ENERGY_SAMPLES], truth, grid.quadrature()),
        **{f"coverage_{100 * v:.0f}": share for v, share in zip(LEVELS, found, strict=True)},
        **{f"rank_{k + 1}": share for k, share in enumerate(ranks)},
    }


def score_reference(yardstick: Yardstick, s: int) -> dict[str, float]:
    """Return the same metrics for an independent reference draw: the Monte Carlo floor."""
    ref, problem = yardstick.reference, yardstick.problem
    scores = {
        **_errors((ref.repeat_mean[s], ref.repeat_std[s]), yardstick, s),
        "mean_std": float(ref.std[s].mean()),
    }
    if ref.samples is not None and ref.floor_w2 is not None:
        grid, kept = problem.training_grid()
        samples, truth = ref.samples[s].double(), yardstick.truth[s, kept]
        scores["w2"] = float(ref.floor_w2[s])
        scores |= _against_truth(samples, ascending(samples), truth, grid)
    return scores
