"""One-dimensional elliptic SDE, section 4.3: ``-(1/10) (k u')' = f`` on [-1, 1], ``u(+-1) = 0``.

Both inputs are random and independent: log k ~ GP(sin(pi x + 1), 0.3^2 exp(-(x - x')^2 / 0.05^2))
is observed, f ~ GP(sin(2 pi x) + 0.1, 0.1^2 exp(-(x - x')^2 / 0.1^2)) is not. 401 points; training
sees u on 101 of them.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from uqsonet.fields.field import Transform
from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import GaussianField, squared_exponential
from uqsonet_study.problems.base import Problem
from uqsonet_study.solvers.elliptic1d import solve_elliptic1d


class EllipticSDE1D(Problem):
    """Equation (eq:1d-sto): observed k, unobserved source."""

    name = "elliptic_sde1d"
    title = "One-dimensional elliptic stochastic differential equation"
    transform = Transform("log")
    affine = "unobserved"
    output_stride = 4
    zero_boundary = True
    coefficient = 0.1

    def __init__(self) -> None:
        self.grid = Grid((-1.0,), (1.0,), (401,))
        points = self.grid.points()
        self.prior = GaussianField(
            points,
            mean=lambda x: torch.sin(pi * x[:, 0] + 1),
            kernel=squared_exponential(std=0.3, length=0.05),
        )
        self.unobserved = GaussianField(
            points,
            mean=lambda x: torch.sin(2 * pi * x[:, 0]) + 0.1,
            kernel=squared_exponential(std=0.1, length=0.1),
        )

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the second-order finite-difference system exactly, in bulk."""
        assert unobserved is not None
        (spacing,) = self.grid.spacing()
        return solve_elliptic1d(kappa, unobserved, spacing, self.coefficient)

    def solve_affine(self, other: Tensor | None, sources: Tensor) -> Tensor:
        """Return u for every pair of a coefficient (B, n) and a source (R, n): (B, R, n)."""
        assert other is not None
        return self.solve(other[:, None], sources)
