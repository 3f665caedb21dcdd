"""Navier-Stokes equations, section 4.5: vorticity at time 0 -> vorticity at time 10.

``w_t + u . grad w = nu Lap w + f`` on the periodic unit square, nu = 1e-3, with the forcing
``f = 0.1 (sin + cos)(2 pi (x + y))`` and ``w_0 = (x (1-x) y (1-y))^(1/3) h``,
h ~ GP(0, exp(-|x - x'|^2 / (2 0.1^2))). 100 x 100 points i/100; training sees w on 50 x 50 of them.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import SeparableField, squared_exponential, zero
from uqsonet_study.problems.base import Problem
from uqsonet_study.solvers.navier_stokes import solve_navier_stokes


class NavierStokes(Problem):
    """Equation (eqn:2d-ns). The Gaussian law of w_0 keeps the envelope: it scales h pointwise."""

    name = "navier_stokes"
    title = "Navier-Stokes equations"
    input_symbol = "w_0"
    output_symbol = "w"
    output_stride = 2
    solve_dtype = torch.float32
    block = 16
    viscosity = 1e-3
    time = 10.0
    tolerance = 1e-5

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (100, 100), periodic=True)
        self.prior = SeparableField(
            self.grid.axes(),
            mean=zero,
            kernel=squared_exponential(std=1.0, length=0.1, halved=True),
            envelope=lambda x: (x * (1 - x)).prod(-1).clamp_min(0) ** (1 / 3),
        )
        phase = 2 * pi * self.grid.points().sum(-1)
        self.forcing = 0.1 * (torch.sin(phase) + torch.cos(phase)).reshape(self.grid.shape)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Integrate to time 10 (spectral in space, error-controlled in time)."""
        w0 = kappa.reshape(-1, *self.grid.shape)
        forcing = self.forcing.to(w0)
        found = solve_navier_stokes(w0, forcing, self.viscosity, self.time, self.tolerance)
        return found.flatten(1)
