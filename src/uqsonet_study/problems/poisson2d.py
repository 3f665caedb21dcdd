"""Two-dimensional Poisson equation, section 4.2: ``-(1/10) Lap u = f`` on [0, 1]^2, ``u = 0``.

f ~ GP(4 (sin 2 pi x + sin 2 pi y), exp(-|x - x'|^2 / (2 0.1^2))) on 101 x 101 points; the operator
maps f to u; training sees u on 51 x 51 of them.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import SeparableField, squared_exponential
from uqsonet_study.problems.base import Problem
from uqsonet_study.solvers.poisson2d import solve_poisson2d


def source_field(grid: Grid) -> SeparableField:
    """Return the law of the source f in sections 4.2 and 4.4 (eqn:2d-gp)."""
    return SeparableField(
        grid.axes(),
        mean=lambda x: 4 * (torch.sin(2 * pi * x[:, 0]) + torch.sin(2 * pi * x[:, 1])),
        kernel=squared_exponential(std=1.0, length=0.1, halved=True),
    )


class Poisson2D(Problem):
    """Equation (eqn:2d-pde) with the input law (eqn:2d-gp)."""

    name = "poisson2d"
    title = "Two-dimensional Poisson equation"
    input_symbol = "f"
    affine = "kappa"
    output_stride = 2
    zero_boundary = True
    block = 32
    coefficient = 0.1

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (101, 101))
        self.prior = source_field(self.grid)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the five-point system exactly by sine transforms."""
        f = kappa.reshape(-1, *self.grid.shape)
        return solve_poisson2d(f, self.grid.spacing()[0], self.coefficient).flatten(1)

    def solve_affine(self, other: Tensor | None, sources: Tensor) -> Tensor:
        """Return u of every source, shape (1, R, n)."""
        return torch.cat([self.solve(f) for f in sources.split(self.block)])[None]
