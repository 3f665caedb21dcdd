"""Poisson equation of the published tables: ``Lap u = f`` on [0, 1]^2, ``u = 0`` on its boundary.

f has the covariance ``9 (-Lap + 9)^(-2)`` with free ends and no mean, the law whose sign is the
medium of `darcy128`; 128 x 128 points. Published figures for 500 sensors are those of DiffusionPDE
(NeurIPS 2024) and FunDPS (NeurIPS 2025). One difference from their data: they draw f at the centres
of 128 x 128 cells and place these values on the points, here f is taken at the points themselves.

127 is a prime number of cells: training sees u on all points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import CosineField
from uqsonet_study.problems.base import BEYOND, Problem
from uqsonet_study.problems.darcy64 import latent_std
from uqsonet_study.solvers.poisson2d import solve_poisson2d


class Poisson128(Problem):
    """A membrane under a random load on 128 x 128 points."""

    name = "poisson128"
    title = "Poisson equation, 128 x 128 points"
    section = BEYOND
    input_symbol = "f"
    affine = "kappa"
    zero_boundary = True
    block = 32
    points = 128
    reaction = 0.0  # the constant r in ``Lap u + r u = f``

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (self.points, self.points))
        self.prior = CosineField(self.points, latent_std)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the five-point system exactly by sine transforms."""
        f, (spacing, _) = kappa.reshape(-1, *self.grid.shape), self.grid.spacing()
        return solve_poisson2d(f, spacing, -1.0, self.reaction).flatten(1)

    def solve_affine(self, other: Tensor | None, sources: Tensor) -> Tensor:
        """Return u of every source, shape (1, R, n)."""
        return torch.cat([self.solve(f) for f in sources.split(self.block)])[None]
