"""One-dimensional diffusion, section 4.1: ``-(1/10) (k u')' = 2 sin(2 pi x)``, ``u(+-1) = 0``.

log k ~ GP(sin(2 pi x), 0.5^2 exp(-(x - x')^2 / 0.1^2)) on 401 points of [-1, 1]; the operator
maps k to u; training sees u on 101 of the 401 points.
"""

from __future__ import annotations

from functools import cached_property
from math import pi

import torch
from torch import Tensor

from uqsonet.fields.field import Transform
from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import GaussianField, Mean, squared_exponential, zero
from uqsonet_study.priors.law import Prior
from uqsonet_study.problems.base import Problem
from uqsonet_study.solvers.elliptic1d import solve_elliptic1d


def sine(x: Tensor) -> Tensor:
    """Return ``sin(2 pi x)`` (k,) at locations (k, 1): the mean of log k."""
    return torch.sin(2 * pi * x[:, 0])


class Diffusion1D(Problem):
    """Equation (eq:1d) with the input law (eqn:1d-gp)."""

    name = "diffusion1d"
    title = "One-dimensional diffusion equation"
    transform = Transform("log")
    output_stride = 4
    zero_boundary = True
    coefficient = 0.1

    def __init__(self) -> None:
        self.grid = Grid((-1.0,), (1.0,), (401,))
        self.source = 2.0 * sine(self.grid.points())

    @cached_property
    def prior(self) -> Prior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The law of log k."""
        return self.gaussian(std=0.5, length=0.1, mean=sine)

    def gaussian(self, std: float, length: float, mean: Mean = zero) -> GaussianField:
        """Return a field on the grid with the kernel ``std^2 exp(-(x - x')^2 / length^2)``."""
        return GaussianField(self.grid.points(), mean, squared_exponential(std, length))

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the second-order finite-difference system exactly, in bulk."""
        (spacing,) = self.grid.spacing()
        return solve_elliptic1d(kappa, self.source.to(kappa), spacing, self.coefficient)
