"""How one posterior compares with its reference: errors, distances, bands.

Where there is no reference posterior, the mean is compared with the true function, and what needs
the reference's spread is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from uqsonet.errors import DataError, NoUncertaintyError
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.given import spread
from uqsonet.gauss.metrics import (
    ascending,
    coverage,
    crps,
    energy_score,
    rank_shares,
    relative_error,
)
from uqsonet.gauss.posterior import Posterior
from uqsonet_study.beyond.distances import marginal_w1, mass_within, quantile_bins
from uqsonet_study.distances import bures_wasserstein2, expected_crps, wasserstein2
from uqsonet_study.reference.files import ObservationSets, Reference, load_sets
from uqsonet_study.settings import Evaluation
from uqsonet_study.storage import load_functions

# POT is given numpy arrays here. It would import jax, a second in every job, if it is there.
os.environ.setdefault("POT_BACKEND_DISABLE_JAX", "1")

BAND_SAMPLES = 1000
"""Samples behind CRPS and coverage, on the training grid; all of them where W1 needs many."""

EXPECTED = 4
"""Times as many samples as a configuration asks for are behind the expected CRPS: at full scale
(1,000) their own error is below 0.1 % of it."""

EXPECTED_ENERGY = 2  # the same for those of them behind the expected energy score
ENERGY_SAMPLES = 250  # samples behind the energy score, whose cost grows with their square
LEVELS = (0.5, 0.9, 0.95)

RANK_BINS = 10  # bars of a rank histogram


@dataclass(frozen=True)
class ScoringTargets:
    """What posteriors of u are scored against."""

    fields: OperatorFields
    sets: ObservationSets
    truth: Tensor  # the observed functions themselves on the full grid, (S, n)
    config: Evaluation
    lines: Mapping[str, Tensor]  # cut lines, each with the grid points on it

    @property
    def reference(self) -> Reference | None:
        """Reference posteriors, where there are any."""
        return self.sets if isinstance(self.sets, Reference) else None


def load_targets(
    functions: Path, reference: Path, config: Evaluation, cut_lines: Sequence[str] = ()
) -> ScoringTargets:
    """Read the reference posteriors and the true functions behind the observations.

    Raises
    ------
    DataError
        If a file is damaged or a cut line is not one of the grid.
    """
    found, fields, _ = load_sets(reference)
    truth = load_functions(functions, "test").u.double()[found.function]
    lines = {line: points_on(uniform_grid(fields.output), line) for line in cut_lines}
    return ScoringTargets(fields, found, truth, config, lines)


def uniform_grid(field: Field) -> Grid:
    """Return the grid of a field; refuse scattered points."""
    if not isinstance(field.domain, Grid):
        raise DataError(f"{field.name} lives on scattered points, and a uniform grid is needed")
    return field.domain


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
    predicted: tuple[Tensor, Tensor | None], targets: ScoringTargets, s: int
) -> dict[str, float]:
    """Return relative errors of mean and std (where there is one), also on the cut lines."""
    ref = targets.reference
    wanted = (targets.truth[s], None) if ref is None else (ref.mean[s], ref.std[s])
    scores = {}
    for name, ours, theirs in zip(("err_mean", "err_std"), predicted, wanted, strict=True):
        if ours is None or theirs is None:
            continue
        scores[name] = float(relative_error(ours, theirs))
        for line, points in targets.lines.items():
            scores[f"{name}@{line}"] = float(relative_error(ours[points], theirs[points]))
    return scores


def narrower_share(predicted: Tensor, reference: Tensor) -> float:
    """Return the share of the domain where a predicted std is below the reference's.

    Points without any uncertainty, such as a Dirichlet boundary, do not count.
    """
    uncertain = reference > 1e-6 * reference.max()
    return float((predicted < reference)[uncertain].double().mean())


@dataclass(frozen=True)
class Expansion:
    """What all posteriors of a model share: where they live, made ready for scores."""

    # (n,) and (n, p), as `Posterior.basis` returns them
    offset: Tensor
    basis: Tensor
    # the same at the points of distributional scores, float32
    scored_offset: Tensor
    scored_basis: Tensor
    # (M, k) and (k, p), factors of the basis there, weighted for L2: ``root @ c`` has the norm of
    # the function, and columns of `frame` are orthonormal
    frame: Tensor
    root: Tensor
    modes: tuple[Tensor, Tensor] | None  # offset and basis in the reference's modes

    @classmethod
    def of(cls, posterior: Posterior, targets: ScoringTargets) -> Expansion:
        """Return the expansion of a model whose posterior this is."""
        (offset, basis), (grid, kept) = posterior.basis(), targets.fields.training_grid()
        weights, ref = grid.quadrature().double().sqrt(), targets.reference
        frame, root = torch.linalg.qr(weights[:, None] * basis[kept])
        modes = None
        if ref is not None:
            modes = ref.mode_vectors.T @ offset, ref.mode_vectors.T @ basis
        scored = offset[kept].float(), basis[kept].float()
        return cls(offset, basis, *scored, weights[:, None] * frame, root, modes)

    def coordinates(
        self, coefficients: Tensor, functions: Tensor, quadrature: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return samples (n, p) and functions (..., M) as points, and weights of one.

        Distances of samples to samples and to functions are those of L2, in p dimensions and one:
        what of a function no sample can reach.
        """
        left = functions.double() - self.scored_offset.double()
        within = left @ self.frame
        beyond = (left.square() @ quadrature - within.square().sum(-1)).clamp_min(0).sqrt()
        samples = torch.nn.functional.pad(coefficients.double() @ self.root.T, (0, 1))
        points = torch.cat([within, beyond[..., None]], -1)
        return samples, points, torch.ones(points.shape[-1])


def score_set(
    posterior: Posterior,
    expansion: Expansion,
    targets: ScoringTargets,
    s: int,
    generator: torch.Generator,
) -> dict[str, float]:
    """Return the metrics of one posterior (a batch of one) against reference set `s`."""
    ref, config, law = targets.reference, targets.config, posterior.law
    offset, basis = expansion.offset, expansion.basis
    try:
        if config.estimator == "monte_carlo":  # plain on both sides, as the paper does
            mean, covariance = law.moments(config.model_samples, generator)
        else:
            mean, covariance = law.moments(config.model_samples)
    except NoUncertaintyError:
        found = offset + law.mean @ basis.T
        return _errors((found[0], None), targets, s)
    predicted_mean, predicted_std = (offset + mean @ basis.T)[0], spread(basis, covariance)[0]
    grid, kept = targets.fields.training_grid()
    quantiles = None if ref is None else ref.quantiles
    size = config.model_samples if quantiles is not None else BAND_SAMPLES
    drawn = law.sample(min(config.model_samples, size), generator)[0]
    if law.functions is not None:  # no sums of modes
        samples = next(law.functions(len(drawn), generator)).float()
    else:  # in single precision, whose rounding is far below what so few samples leave open
        samples = torch.addmm(expansion.scored_offset, drawn.float(), expansion.scored_basis.T)
    truth, ordered = targets.truth[s, kept].float(), ascending(samples)
    scores = {
        **_errors((predicted_mean, predicted_std), targets, s),
        "mean_std": float(predicted_std.mean()),
    }
    if ref is not None:
        assert expansion.modes is not None
        at, to_modes = expansion.modes
        scores["narrower"] = narrower_share(predicted_std, ref.std[s])
        scores["w2_gaussian"] = float(
            bures_wasserstein2(
                at + to_modes @ mean[0],
                to_modes @ covariance[0] @ to_modes.T,
                ref.mode_mean[s],
                ref.mode_covariance[s],
            )
        )
    near = expansion.coordinates(drawn[:ENERGY_SAMPLES], truth, grid.quadrature())
    scores |= _against_truth(ordered, truth, energy_score(*near))
    if ref is not None and quantiles is not None:
        theirs = quantiles[s].double()
        ours = quantile_bins(ordered, len(theirs))
        scores["w1"] = marginal_w1(ours, theirs, ref.std[s, kept])
        scores |= _named(mass_within(ordered, theirs, LEVELS))
    if ref is not None and ref.samples is not None:
        outcomes, weights = ref.samples[s].double(), grid.quadrature()
        scores["w2"] = wasserstein2(*expansion.coordinates(drawn, outcomes, weights))
        scores |= _named(coverage(ordered, outcomes.float(), LEVELS))
        size = EXPECTED * config.model_samples
        more = law.sample(size, generator)[0]
        # In single precision, too, about the middle of the data: nothing large is left to cancel.
        expected = ascending(more.float() @ expansion.scored_basis.T)
        left = ascending((outcomes - offset[kept]).float())
        scores["crps_expected"] = expected_crps(expected, left)
        some = more[: EXPECTED_ENERGY * config.model_samples]
        ours, theirs, one = expansion.coordinates(some, outcomes, weights)
        at = theirs.mean(0)
        near = (ours - at).float(), (theirs - at).float(), one
        scores["energy_expected"] = energy_score(*near)
    return scores


def _named(shares: Sequence[float]) -> dict[str, float]:
    """Return shares of the reference inside central bands under their names."""
    return {f"within_{100 * v:.0f}": p for v, p in zip(LEVELS, shares, strict=True)}


def _against_truth(ordered: Tensor, truth: Tensor, energy: float) -> dict[str, float]:
    """Return proper scores, the share of truths inside central bands, and the rank histogram."""
    found = coverage(ordered, truth, LEVELS)
    ranks = rank_shares(ordered, truth, RANK_BINS)
    return {
        "crps": crps(ordered, truth),
        "energy": energy,
        **{f"coverage_{100 * v:.0f}": share for v, share in zip(LEVELS, found, strict=True)},
        **{f"rank_{k + 1}": share for k, share in enumerate(ranks)},
    }


def score_reference(targets: ScoringTargets, s: int) -> dict[str, float]:
    """Return the same metrics for an independent reference draw: the Monte Carlo floor.

    Nothing is returned where there is no reference.
    """
    ref = targets.reference
    if ref is None:
        return {}
    scores = {
        **_errors((ref.repeat_mean[s], ref.repeat_std[s]), targets, s),
        "mean_std": float(ref.std[s].mean()),
    }
    if ref.floor_w1 is not None:
        scores["w1"] = float(ref.floor_w1[s])
    if ref.samples is not None and ref.floor_w2 is not None:
        grid, kept = targets.fields.training_grid()
        samples, truth = ref.samples[s], targets.truth[s, kept].float()
        scores["w2"] = float(ref.floor_w2[s])
        # Distances are taken from squares, which single precision would cancel.
        some = samples[:ENERGY_SAMPLES].double()
        energy = energy_score(some, truth.double(), grid.quadrature())
        scores |= _against_truth(ascending(samples), truth, energy)
    return scores
