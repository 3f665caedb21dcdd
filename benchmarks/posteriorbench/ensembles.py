"""Two peers: linear regression from readings, and an ensemble smoother with the real solver.

The smoother assimilates the readings several times with inflated Gaussian noise (ES-MDA: Emerick
and Reynolds, Computers & Geosciences 55, 2013). Both know of the weight its nearest Gaussian noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.posteriorbench.problems import NEAREST_NOISE, Case, Darcy, Inverse, synthesis

MEMBERS, ASSIMILATIONS = 256, 8
"""Members of the ensemble, and number of times that the readings are assimilated."""


@dataclass(frozen=True)
class Ensemble:
    """Mean and standard deviation (n, n), and samples (S, n, n)."""

    mean: Tensor
    std: Tensor
    samples: Tensor


@dataclass(frozen=True)
class Regression:
    """The least-squares map from readings to the field, with residuals of pairs as samples."""

    # (N, n, n)
    inputs: Tensor
    outputs: Tensor

    def given(self, case: Case, size: int, generator: np.random.Generator) -> Ensemble:
        """Return the answer to a case: readings count with the nearest Gaussian noise."""
        fields = self.inputs.flatten(1)
        y, mean = self.outputs.flatten(1)[:, case.sensors].double(), fields.double().mean(0)
        middle, noise = y.mean(0), NEAREST_NOISE
        y = y - middle
        gram = y.T @ y / len(y) + noise**2 * torch.eye(y.shape[1], dtype=torch.float64)
        through = torch.linalg.solve(gram, y.T).float() @ (fields - mean.float()) / len(y)
        picked = torch.from_numpy(generator.permutation(len(y))[:size])
        normals = torch.from_numpy(generator.standard_normal((len(picked), y.shape[1])))
        ahead = (case.readings - middle - y[picked] + noise * normals).float()
        samples = (fields[picked] + ahead @ through).view(-1, *case.truth.shape)
        at = mean + ((case.readings - middle).float() @ through).double()
        std = (samples - at.view(case.truth.shape).float()).square().mean(0).sqrt()
        return Ensemble(at.view(case.truth.shape), std.double(), samples)


def smoothed(problem: Inverse, case: Case, generator: np.random.Generator) -> Tensor:
    """Return members (256, n, n) of the ensemble smoother, of the prior and the real solver."""
    darcy = isinstance(problem, Darcy)
    if darcy:
        normals = torch.from_numpy(generator.standard_normal((MEMBERS, *case.truth.shape)))
        x = synthesis(problem.std * normals)
    else:
        x = problem.draw(generator, MEMBERS)
    level = NEAREST_NOISE * ASSIMILATIONS**0.5
    for _ in range(ASSIMILATIONS):
        fields = Darcy.medium(x) if darcy else x
        y = problem.solve(fields.float()).double().flatten(1)[:, case.sensors]
        left, right = x.flatten(1) - x.flatten(1).mean(0), y - y.mean(0)
        gram = right.T @ right / (MEMBERS - 1)
        gram = gram + level**2 * torch.eye(len(gram), dtype=torch.float64)
        normals = torch.from_numpy(generator.standard_normal(tuple(y.shape)))
        ahead = torch.linalg.solve(gram, (case.readings - y + level * normals).T).T
        step = (ahead @ right.T / (MEMBERS - 1)).float() @ left.float()
        x = x + step.double().view(x.shape)
    return Darcy.medium(x) if darcy else x
