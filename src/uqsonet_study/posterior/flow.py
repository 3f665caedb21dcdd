"""Darcy: an emulator of the medium's solution, and chains by it or by the real solver.

The emulator is ridge regression with a cubic kernel on the lowest cosines of the medium, which is
what the solution's perturbation series asks for. The eight symmetries of the square make eight
pairs of each. Everything is in double precision: in single precision the kernel is singular.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet_study.posterior.chains import Walk, walk, walled
from uqsonet_study.posterior.ensembles import ASSIMILATIONS
from uqsonet_study.posterior.problems import (
    CUT,
    HIGH,
    LOW,
    NEAREST_NOISE,
    POINTS,
    Case,
    Darcy,
    cosines,
    log_weight,
    spectrum,
    synthesis,
)

FREQUENCY = 14
"""Highest frequency of the medium that the emulator sees."""

CENTRES, HELD = 600, 200
"""Pairs behind the kernel (times eight), and pairs that its settings and its error are told by."""

OUTPUTS = 64
"""Principal components of the solution."""

WEIGHTED = 0.0, 1.0
"""Powers of the frequency that features are tried to be divided by."""

SCALES, RIDGES = (0.3, 1.0, 3.0), (1e-8, 1e-6)
"""Sizes of features in the kernel, and ridges relative to its diagonal."""

ERRORS = 32
"""Errors of held-out pairs that a likelihood is averaged over."""

STEEP = 2.0
"""Power of the frequency that steps of chains grow with."""

LATENT_POINTS, LATENT_FREQUENCY = 32, 10
"""Points along each axis, and frequencies, that show the spectrum of the latent field."""


def signs(media: Tensor) -> Tensor:
    """Return media as -1 and 1."""
    return (media - (HIGH + LOW) / 2) / ((HIGH - LOW) / 2)


def images(fields: Tensor) -> list[Tensor]:
    """Return the eight images of fields (B, n, n) under the symmetries of the square."""
    turned = [torch.rot90(fields, k, (1, 2)) for k in range(4)]
    return turned + [one.transpose(1, 2) for one in turned]


@dataclass(frozen=True)
class Emulation:
    """A map from media to solutions, learned from pairs.

    Attributes
    ----------
    power, size : float
        Features are divided by this power of the frequency, and multiplied by the size.
    centres : Tensor, shape (8 N, k)
        Features of the pairs.
    weights : Tensor, shape (8 N, p)
    mean, basis : Tensor, shapes (n^2,) and (n^2, p)
    errors : Tensor, shape (H, n^2)
        Of solutions of pairs that were held out.
    """

    power: float
    size: float
    centres: Tensor
    weights: Tensor
    mean: Tensor
    basis: Tensor
    errors: Tensor

    @classmethod
    def of(cls, media: Tensor, solutions: Tensor) -> Emulation:
        """Fit to pairs (N, n, n); settings are those of the least error of held-out pairs."""
        held, few = slice(CENTRES, CENTRES + HELD), slice(CENTRES)
        every = solutions.double().flatten(1)
        mean = torch.stack([one.double().mean(0).flatten() for one in images(solutions)]).mean(0)
        left = torch.cat([(one.double().flatten(1) - mean) for one in images(solutions[few])])
        values, vectors = torch.linalg.eigh(left @ left.T)
        basis = left.T @ (vectors[:, -OUTPUTS:] * values[-OUTPUTS:].rsqrt())
        targets, best = left @ basis, None
        inputs = torch.cat(images(media[few]))
        for power in WEIGHTED:
            x, new = features(inputs, power), features(media[held], power)
            unit = x.square().sum(1).mean().sqrt()
            for scale in SCALES:
                size = scale / float(unit)
                gram = kernel(x * size, x * size)
                across = kernel(new * size, x * size)
                level = float(gram.diagonal().mean())
                for ridge in RIDGES:
                    held_gram = gram.clone()
                    held_gram.diagonal().add_(ridge * level)
                    weights = torch.cholesky_solve(targets, torch.linalg.cholesky(held_gram))
                    errors = every[held] - mean - (across @ weights) @ basis.T
                    error = float(errors.abs().mean())
                    if best is None or error < best[0]:
                        best = error, cls(power, size, x * size, weights, mean, basis, errors)
        assert best is not None
        return best[1]

    def __call__(self, media: Tensor, sensors: Tensor) -> Tensor:
        """Return what sensors (m,) read of the solutions of media (B, n, n)."""
        across = kernel(features(media, self.power) * self.size, self.centres)
        return self.mean[sensors] + across @ (self.weights @ self.basis[sensors].T)


def features(media: Tensor, power: float) -> Tensor:
    """Return the lowest cosines (B, k), float64, of media (B, n, n)."""
    count = FREQUENCY + 1
    table = cosines()[:count].to(media.dtype)
    found = (table @ signs(media) @ table.T).double() / POINTS
    k = torch.arange(count, dtype=torch.float64)
    radius = (k[:, None].square() + k.square()).sqrt()
    kept = radius <= FREQUENCY
    return (found / radius.clamp_min(1.0) ** power)[:, kept]


def kernel(x: Tensor, y: Tensor) -> Tensor:
    """Return the cubic kernel (B, N)."""
    return torch.addmm(torch.ones(1, dtype=x.dtype), x, y.T).pow_(3)


def latent_spectrum(media: Tensor) -> Tensor:
    """Return standard deviations (n, n) of a latent field whose sign the media are.

    Two-point statistics of signs give the latent correlations by the arcsine law; their variances
    along cosines, averaged over the symmetries, are fitted by a Whittle-Matern spectrum.
    """
    step = POINTS // LATENT_POINTS
    some = torch.cat([signs(one[:, ::step, ::step]).flatten(1) for one in images(media)]).float()
    correlation = torch.sin(torch.pi / 2 * (some.T @ some / len(some)).double())
    x = (torch.arange(0, POINTS, step) + 0.5) / POINTS
    k = torch.arange(LATENT_FREQUENCY + 1)
    table = torch.cos(torch.pi * torch.outer(k.double(), x.double())) * 2**0.5
    table[0] = 1.0
    waves = torch.einsum("kx,ly->klxy", table, table).flatten(2).flatten(0, 1) / len(x) ** 2
    variance = ((waves @ correlation) * waves).sum(1).clamp_min(1e-9)
    square = (k[:, None].square() + k.square()).flatten().double()
    kept = (square > 0) & (square <= LATENT_FREQUENCY**2)
    best = None
    for alpha in np.linspace(1.2, 3.5, 47):
        for tau in np.linspace(0.5, 8.0, 31):
            shape = -alpha * (torch.pi**2 * square[kept] + tau**2).log()
            error = float((variance[kept].log() - shape).var())
            if best is None or error < best[0]:
                best = error, float(alpha), float(tau)
    assert best is not None
    return spectrum(best[1], best[2])


def step_shape(modes: int) -> Tensor:
    """Return relative steps (modes^2,): readings see less of higher frequencies."""
    k = torch.arange(modes, dtype=torch.float64)
    return (1 + (k[:, None].square() + k.square()).sqrt().flatten()) ** STEEP


def medium_of(std: Tensor, z: Tensor) -> Tensor:
    """Return media (C, n, n), float32, of white noise (C, k * k) on the lowest cosines."""
    k = round(z.shape[1] ** 0.5)
    return Darcy.medium(synthesis((std[:k, :k] * z.view(-1, k, k)).float()))


def assimilated(
    z: Tensor, read: Callable[[Tensor], Tensor], readings: Tensor, generator: np.random.Generator
) -> Tensor:
    """Return an ensemble (C, k) after an ensemble smoother with the nearest Gaussian noise."""
    level = NEAREST_NOISE * ASSIMILATIONS**0.5
    for _ in range(ASSIMILATIONS):
        y = read(z)
        left, right = z - z.mean(0), y - y.mean(0)
        gram = right.T @ right / (len(z) - 1)
        gram = gram + level**2 * torch.eye(len(gram), dtype=torch.float64)
        normals = torch.from_numpy(generator.standard_normal(tuple(y.shape)))
        ahead = torch.linalg.solve(gram, (readings - y + level * normals).T).T
        z = z + (ahead @ right.T / (len(z) - 1)) @ left
    return z


def with_errors(misfit: Tensor, errors: Tensor) -> Tensor:
    """Return log likelihoods (C,) of misfits (C, m), averaged over errors (E, m), with walls."""
    off = misfit[:, None] + errors
    inside = log_weight(off).logsumexp(1) - np.log(len(errors))
    nearest = off.abs().mean(2).amin(1)
    outside = -((nearest / 1e-4) ** 2) / 2 + walled(nearest[:, None], CUT) - 10.0
    return torch.where(inside.isfinite(), inside, outside)


def by_emulator(
    emulation: Emulation, std: Tensor, case: Case, generator: np.random.Generator,
    chains: int = 96, steps: int = 400, modes: int = 48, thin: int = 10,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return states (S, C, k) of chains whose likelihood counts the emulator's error.

    Returns
    -------
    states : Tensor, shape (S, C, k)
    offset : Tensor, shape (C,)
        Mean absolute misfit of the last states, by the emulator.
    """
    errors = emulation.errors[:ERRORS, case.sensors]

    def read(z: Tensor) -> Tensor:
        return emulation(medium_of(std, z), case.sensors)

    def likelihood(z: Tensor) -> Tensor:
        return with_errors(read(z) - case.readings, errors)

    z = torch.from_numpy(generator.standard_normal((chains, modes**2)))
    z = assimilated(z, read, case.readings, generator)
    every = list(walk(z, likelihood, steps, generator, step_shape(modes)))
    kept = torch.stack(every[steps // 2 :: thin])
    return kept, (read(kept[-1]) - case.readings).abs().mean(1)


class RealChains:
    """Chains by the real solver: the emulator's chains propose (surrogate transitions).

    A proposal is the end of a short chain that leaves the emulator's posterior as it is; it is
    accepted by the ratio of the real weight to the emulator's likelihood (Liu, Monte Carlo
    Strategies in Scientific Computing, 2001, section 9.4.3).
    """

    def __init__(self, emulation: Emulation, case: Case, generator: np.random.Generator) -> None:
        self._emulation, self._case, self._generator = emulation, case, generator
        self._problem = Darcy()
        self._errors = emulation.errors[:ERRORS, case.sensors]

    def _solved(self, z: Tensor) -> Tensor:
        media = medium_of(self._problem.std, z)
        return self._problem.solve(media).double().flatten(1)[:, self._case.sensors]

    def _surrogate(self, z: Tensor) -> Tensor:
        read = self._emulation(medium_of(self._problem.std, z), self._case.sensors)
        return with_errors(read - self._case.readings, self._errors)

    def _real(self, z: Tensor) -> Tensor:
        misfit = self._solved(z) - self._case.readings
        real = log_weight(misfit)
        outside = -((misfit.abs().mean(1) / 1e-4) ** 2) / 2 + walled(misfit, CUT)
        return torch.where(real.isfinite(), real, outside)

    def run(self, chains: int, rounds: int, inner: int) -> tuple[Tensor, float]:
        """Return states (rounds / 2, C, k) and the share of proposals that were accepted."""
        generator = self._generator
        z = torch.from_numpy(generator.standard_normal((chains, POINTS**2)))
        z = assimilated(z, self._solved, self._case.readings, generator)
        now, then = self._real(z), self._surrogate(z)
        kept, accepted, moves = [], 0.0, Walk(chains, generator, step_shape(POINTS))
        for number in range(rounds):
            other, last = z, then
            for _ in range(inner):
                other, last = moves.step(other, last, self._surrogate, number < rounds // 2)
            real = self._real(other)
            chance = (real - now + then - last).exp().clamp_max(1.0).nan_to_num(0.0)
            taken = torch.from_numpy(generator.random(len(z))) < chance
            z = torch.where(taken[:, None], other, z)
            now, then = torch.where(taken, real, now), torch.where(taken, last, then)
            if number >= rounds // 2:
                kept.append(z.float())
                accepted += float(taken.double().mean())
        return torch.stack(kept), accepted / len(kept)
