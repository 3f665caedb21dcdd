"""The inverse problems Poisson and Darcy of PosteriorBench (arXiv 2609.20794).

128 sensors read the solution at random points of 128 x 128; what is asked is the law of the whole
right-hand side (Poisson) or of the whole medium (Darcy). The weight of an answer is not Gaussian:
``exp(-MAE^2 / (2 sigma^2))``, MAE being the mean absolute misfit of the sensors, and nothing beyond
a cut. Fields are sums of cosines at the centres of cells, whose values stand at the points of the
grid. Everything is made anew from a seed; the authors' own cases are not public text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.gauss.seeds import numpy_generator
from uqsonet_study.solvers.elliptic2d import solve_rough2d
from uqsonet_study.solvers.poisson2d import sine_basis, solve_poisson2d

POINTS = 128  # points along each axis, both ends included
SENSORS = 128  # number of sensors of a case

SIGMA, CUT = 1e-4, 3e-4
"""Width of the weight in the mean absolute misfit, and the largest misfit that is accepted."""

NEAREST_NOISE = 1.1e-3
"""Standard deviation of independent Gaussian noise whose law is the nearest to the weight's."""

WALL = 1000.0  # by how much the logarithm of a likelihood falls over one cut beyond the cut

ALPHA, TAU = (1.5, 3.0), (2.0, 4.0)
"""Ranges of smoothness and inverse length of Poisson's right-hand sides, drawn for each of them."""

LOW, HIGH = 3.0, 12.0  # values of Darcy's medium: the higher one where the latent field is positive
TOLERANCE = 1e-2
"""Residual of Darcy's solves in single precision: u is 6e-8 off in the mean, where misfits are up
to 3e-4."""

SEED = 2026


@cache
def cosines() -> Tensor:
    """Return the orthonormal cosines (k, x) at the centres of cells (DCT-II), float64."""
    k = torch.arange(POINTS, dtype=torch.float64)
    table = torch.cos(math.pi / POINTS * torch.outer(k, k + 0.5)) * math.sqrt(2 / POINTS)
    table[0] /= math.sqrt(2)
    return table


def synthesis(coefficients: Tensor) -> Tensor:
    """Return fields (..., n, n) from coefficients (..., k, k) of the lowest cosines."""
    table = cosines()[: coefficients.shape[-1]].to(coefficients.dtype)
    return table.T @ coefficients @ table


def spectrum(alpha: float, tau: float, modes: int = POINTS) -> Tensor:
    """Return standard deviations (modes, modes) of the coefficients; the constant has none."""
    k = math.pi * torch.arange(modes, dtype=torch.float64)
    square = k[:, None] ** 2 + k**2
    std = POINTS * tau ** (alpha - 1) * (square + tau**2) ** (-alpha / 2)
    std[0, 0] = 0.0
    return std


def log_weight(misfit: Tensor) -> Tensor:
    """Return the logarithm of the weight for misfits (..., m) of the sensors."""
    mean = misfit.abs().mean(-1)
    return torch.where(mean <= CUT, -(mean**2) / (2 * SIGMA**2), -math.inf)


def likelihood(sigma: float, cut: float) -> Callable[[Any, Any], Any]:
    """Return the weight as a function of predicted readings (S, m) and readings (m,).

    Beyond the cut it falls steeply, not to nothing: samples can then be led there from afar.
    """

    def weight(predicted: Any, readings: Any) -> Any:
        misfit = abs(predicted - readings).mean(-1)
        return -((misfit / sigma) ** 2) / 2 - WALL * (misfit / cut - 1).clip(min=0)

    return weight


@dataclass(frozen=True)
class Case:
    """One inverse problem."""

    number: int
    truth: Tensor  # (n, n), what is asked for
    sensors: Tensor  # (m,), flat indices of the points that are read
    readings: Tensor  # (m,), without noise


class Inverse:
    """A problem: pairs to learn from, and cases to answer.

    Attributes
    ----------
    name, asked, read : str
        Names of the problem and of both fields.
    scale : float
        Standard deviation of the field that is asked for, by which sliced distances are divided.
    centre : float
        Its mean, which is subtracted there.
    """

    name: str
    asked: str
    read: str
    scale: float
    centre: float = 0.0

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Return independent fields (size, n, n) of the prior, float64."""
        raise NotImplementedError

    def solve(self, fields: Tensor) -> Tensor:
        """Return solutions (B, n, n)."""
        raise NotImplementedError

    def pairs(self, size: int) -> tuple[Tensor, Tensor]:
        """Return pairs to learn from: fields and solutions (size, n, n), float32."""
        inputs, outputs = [], []
        for part, first in enumerate(range(0, size, 500)):
            generator = numpy_generator(SEED, self.name, "pairs", part)
            fields = self.draw(generator, 500)[: size - first]
            inputs.append(fields.float())
            outputs.append(self.solve(fields).float())
        return torch.cat(inputs), torch.cat(outputs)

    def case(self, number: int) -> Case:
        """Return a case; sensors stand at points off the boundary."""
        generator = numpy_generator(SEED, self.name, "case", number)
        truth = self.draw(generator, 1)
        inner = torch.arange(POINTS**2).view(POINTS, POINTS)[1:-1, 1:-1].flatten()
        sensors = inner[torch.from_numpy(generator.permutation(len(inner))[:SENSORS])]
        return Case(number, truth[0], sensors, self.solve(truth).flatten()[sensors])


class Poisson(Inverse):
    """``-Lap phi = f`` with ``phi = 0`` on the boundary; f has a random spectrum."""

    name, asked, read = "poisson", "f", "phi"
    scale = 0.2719

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Return right-hand sides: smoothness and length are drawn for each."""
        alpha, tau = generator.uniform(*ALPHA, size), generator.uniform(*TAU, size)
        std = torch.stack([spectrum(a, t) for a, t in zip(alpha, tau, strict=True)])
        normals = torch.from_numpy(generator.standard_normal((size, POINTS, POINTS)))
        return synthesis(std * normals)

    def solve(self, fields: Tensor) -> Tensor:
        """Solve the five-point system exactly."""
        return solve_poisson2d(fields, 1 / (POINTS - 1))

    def rows(self, sensors: Tensor, modes: int) -> Tensor:
        """Return what sensors read of each of the lowest cosines, shape (m, modes, modes)."""
        sines, eigenvalues = sine_basis(POINTS, torch.float64, torch.device("cpu"))
        inverse = (POINTS - 1) ** -2 / (eigenvalues[:, None] + eigenvalues)
        seen = sines @ cosines()[:modes, 1:-1].T
        x, y = sensors // POINTS - 1, sensors % POINTS - 1
        return seen.T @ (sines[x][:, :, None] * sines[y][:, None, :] * inverse) @ seen


class Darcy(Inverse):
    """``-div(a grad u) = 1`` with ``u = 0`` on the boundary; a has two values."""

    name, asked, read = "darcy", "a", "u"
    scale, centre = (HIGH - LOW) / 2, (HIGH + LOW) / 2

    @cached_property
    def std(self) -> Tensor:
        """Standard deviations (n, n) of the latent field's coefficients."""
        return spectrum(2.0, 3.0)

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Return media: the sign of a latent field."""
        normals = torch.from_numpy(generator.standard_normal((size, POINTS, POINTS)))
        return self.medium(synthesis(self.std * normals))

    @staticmethod
    def medium(latent: Tensor) -> Tensor:
        """Return the medium of latent fields."""
        return torch.where(latent >= 0, HIGH, LOW).to(latent.dtype)

    def solve(self, fields: Tensor) -> Tensor:
        """Solve the five-point system by preconditioned conjugate gradients, 16 at a time.

        In single precision, for samplers, up to `TOLERANCE`.
        """
        source, step = torch.ones_like(fields[:1]), 1 / (POINTS - 1)
        tolerance = TOLERANCE if fields.dtype == torch.float32 else None
        solved = [solve_rough2d(a, source, step, tolerance) for a in fields.split(16)]
        return torch.cat(solved)


PROBLEMS: dict[str, type[Inverse]] = {"poisson": Poisson, "darcy": Darcy}
