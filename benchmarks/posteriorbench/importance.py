"""The exact posterior of the Poisson problem, by importance sampling with the exact weight.

Given smoothness and inverse length of its spectrum the right-hand side f is Gaussian, and sensors
read linear functionals of it. The proposal has Gaussian noise in place of the weight: a mixture
over a grid of spectra by their evidence, each Gaussian in closed form. Only what sensors read
enters the weight. So readings are sampled, in the directions that sensors see; given them mean and
variance of f are known exactly (Rao-Blackwell), and the unseen rest is never sampled for moments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.posteriorbench.metrics import moment_errors
from benchmarks.posteriorbench.problems import (
    ALPHA,
    CUT,
    NEAREST_NOISE,
    POINTS,
    TAU,
    Case,
    Poisson,
    cosines,
    log_weight,
    spectrum,
    synthesis,
)

GRID = 16, 6
"""Numbers of values of smoothness and of inverse length, at the middles of equal intervals."""

SEEN_MODES = 48
"""Cosines along each axis that sensors see: the others add less than 2e-6 to a reading, which
counts as a square beside misfits of 3e-4."""

SAMPLES = 200_000  # number of proposals
NEGLIGIBLE = 1e-5  # spectra of less evidence (as a share) are left out
BLIND = 1e-6  # directions whose variance is a smaller share of the proposal's noise are not seen

TOLD = 3e-3
"""Directions in which readings take a smaller share of the variance do not enter moments."""


@dataclass(frozen=True)
class Spectrum:
    """One spectrum of the grid, conditioned on a case's readings with Gaussian noise."""

    std: Tensor  # (n, n)
    evidence: float  # log density of the readings
    # (m, J), directions of readings, times the standard deviation of what is read along them
    axes: Tensor
    gain: Tensor  # (J, k, k), coefficients of f by the (standardised) readings along the directions
    # (J,), of the proposal of these
    mean: Tensor
    spread: Tensor

    @classmethod
    def of(cls, alpha: float, tau: float, rows: Tensor, readings: Tensor) -> Spectrum:
        """Condition on readings (m,) whose rows are (m, k, k)."""
        std, noise = spectrum(alpha, tau), NEAREST_NOISE**2
        seen = (rows * std[:SEEN_MODES, :SEEN_MODES]).flatten(1)
        values, vectors = torch.linalg.eigh(seen @ seen.T)
        along = vectors.T @ readings
        total = values.clamp_min(0) + noise
        evidence = -float((along.square() / total + total.log()).sum()) / 2
        kept = values > BLIND * noise
        g, root = values[kept], values[kept].sqrt()
        axes = vectors[:, kept] * root
        gain = (vectors[:, kept] / root).T @ seen * std[:SEEN_MODES, :SEEN_MODES].flatten()
        mean, spread = root * along[kept] / total[kept], (noise / total[kept]).sqrt()
        return cls(std, evidence, axes, gain.view(len(g), SEEN_MODES, -1), mean, spread)

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the variance (n, n) of f without readings, told directions, their fields (J, n n).

        Along the others readings take less than `TOLD` of the variance, which moments leave out.
        """
        squared, told = cosines().square(), self.spread.square() < 1 - TOLD
        prior = squared.T @ self.std.square() @ squared
        return prior, told, synthesis(self.gain[told]).flatten(1)


@dataclass(frozen=True)
class Part:
    """Proposals of one spectrum: standardised readings (N, J), and log weights (N,)."""

    spectrum: Spectrum
    nu: Tensor
    log_weight: Tensor


class ExactPosterior:
    """The posterior of one case.

    Parameters
    ----------
    size : int
        Number of proposals.

    Attributes
    ----------
    effective_size : float
        ``(sum w)^2 / sum w^2`` of the importance weights.
    log_acceptance : float
        Natural logarithm of the prior's share of fields within the cut.
    """

    def __init__(self, case: Case, generator: np.random.Generator, size: int = SAMPLES) -> None:
        rows = Poisson().rows(case.sensors, SEEN_MODES)
        middles = [
            low + (high - low) * (np.arange(n) + 0.5) / n
            for (low, high), n in zip((ALPHA, TAU), GRID, strict=True)
        ]
        spectra = [Spectrum.of(a, t, rows, case.readings) for a in middles[0] for t in middles[1]]
        evidence = torch.tensor([one.evidence for one in spectra], dtype=torch.float64)
        shares = evidence.softmax(0)
        self._parts: list[Part] = []
        inside = []
        for share, one in zip(shares.tolist(), spectra, strict=True):
            count = max(16, round(share * size))
            if share < NEGLIGIBLE:
                continue
            normals = torch.from_numpy(generator.standard_normal((count, len(one.mean))))
            nu = one.mean + one.spread * normals
            misfit = nu @ one.axes.T - case.readings
            ratio = misfit.square().sum(1) / (2 * NEAREST_NOISE**2)
            even = math.log(share / count)
            self._parts.append(Part(one, nu, log_weight(misfit) + ratio + even))
            inside.append(ratio.masked_fill(misfit.abs().mean(1) > CUT, -math.inf) + even)
        logs = torch.cat([part.log_weight for part in self._parts])
        self.weights = logs.softmax(0)
        self.effective_size = 1 / float(self.weights.square().sum())
        # Prior mass = evidence of the proposal times the mean of indicator over its likelihood.
        noise = len(case.readings) * math.log(NEAREST_NOISE)
        blind = evidence.logsumexp(0) - math.log(len(spectra)) + noise
        self.log_acceptance = float(torch.cat(inside).logsumexp(0) + blind)

    def _split(self, weights: Tensor) -> Iterator[tuple[Part, Tensor]]:
        sizes = [len(part.nu) for part in self._parts]
        yield from zip(self._parts, weights.split(sizes, dim=-1), strict=True)

    def _moments(self, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield mean and standard deviation (n, n) by each row of weights (L, N) of sum one."""
        mean, second = torch.zeros(2, len(weights), POINTS, POINTS, dtype=torch.float64)
        for part, rows in self._split(weights):
            if float(rows.sum()) < NEGLIGIBLE:
                continue
            prior, told, fields = part.spectrum.moments()
            nu = part.nu[:, told]
            for one, (w, total) in enumerate(zip(rows, rows.sum(1), strict=True)):
                if float(total) > 0:
                    mean[one] += ((w @ nu) @ fields).view_as(prior)
                    cross = (nu * w[:, None]).T @ nu
                    cross.diagonal().sub_(total)
                    extra = ((cross @ fields) * fields).sum(0).view_as(prior)
                    second[one] += total * prior + extra
        for one, square in zip(mean, second, strict=True):
            yield one, (square - one.square()).clamp_min(0).sqrt()

    def moments(self) -> tuple[tuple[Tensor, Tensor], float, float]:
        """Return mean and standard deviation (n, n), and the relative distances of both halves.

        Halves are of independent proposals.
        """
        even = torch.cat([torch.arange(len(part.nu)) % 2 for part in self._parts]).double()
        rows = torch.stack([self.weights * even, self.weights * (1 - even), self.weights])
        first, second, whole = self._moments(rows / rows.sum(1, keepdim=True))
        return whole, *moment_errors(*first, *second)

    def sample(self, size: int, generator: np.random.Generator) -> Tensor:
        """Return independent fields (size, n, n) of the posterior."""
        weights = self.weights.numpy()
        picked = np.sort(generator.choice(len(weights), size, p=weights / weights.sum()))
        found, first = [], 0
        for part in self._parts:
            mine = picked[(picked >= first) & (picked < first + len(part.nu))] - first
            first += len(part.nu)
            if not len(mine):
                continue
            one = part.spectrum
            normals = torch.from_numpy(generator.standard_normal((len(mine), POINTS, POINTS)))
            low = normals[:, :SEEN_MODES, :SEEN_MODES].flatten(1)
            std = one.std[:SEEN_MODES, :SEEN_MODES].flatten()
            told = part.nu[torch.from_numpy(mine)]
            known = low @ (one.gain.flatten(1) / std.clamp_min(1e-300)).T
            a = one.std * normals
            a[:, :SEEN_MODES, :SEEN_MODES] += torch.tensordot(told - known, one.gain, dims=1)
            found.append(synthesis(a))
        return torch.cat(found)[torch.from_numpy(generator.permutation(size))]
