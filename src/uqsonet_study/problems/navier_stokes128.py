"""Navier-Stokes equations of the published tables: vorticity at time 0 -> vorticity at time 1.

The equation and its forcing are those of `navier_stokes` (nu = 1e-3). w_0 is periodic with the
covariance ``2 tau^3 (-Lap + tau^2)^(-2.5)``, tau = 7, and no mean (Li et al. 2021, as their
generator draws it); 128 x 128 points i/128. Published figures for 500 sensors are those of
DiffusionPDE (NeurIPS 2024) and FunDPS (NeurIPS 2025).

Frequencies of w_0 above 42 of 63 are not advanced: products of what remains are then free of
aliasing. By time 1 viscosity leaves 1e-30 of them.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import PeriodicField
from uqsonet_study.problems.base import BEYOND
from uqsonet_study.problems.navier_stokes import NavierStokes

TAU = 7.0


class NavierStokes128(NavierStokes):
    """The flow over one unit of time on 128 x 128 points."""

    name = "navier_stokes128"
    title = "Navier-Stokes equations, 128 x 128 points"
    section = BEYOND
    output_stride = 1
    time = 1.0
    tolerance = 1e-4
    shifts = 1, -1
    points = 128

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (self.points, self.points), periodic=True)
        self.prior = PeriodicField(self.points, _std)
        phase = 2 * pi * self.grid.points().sum(-1)
        self.forcing = 0.1 * (torch.sin(phase) + torch.cos(phase)).reshape(self.grid.shape)

    def images(self, fields: Tensor, number: int) -> Tensor:
        """Return images of vorticities: shifted along (1, -1), mirrored, turned by half.

        The forcing depends on x + y alone. Its sign changes over half a period, as vorticity does
        in a mirror; and it is the same at c and 1/4 - c.
        """
        found = []
        for image in range(number):
            w = fields.unflatten(1, (self.points, self.points))
            if image & 1:  # -w(y + 1/2, x)
                w = -w.transpose(1, 2).roll(self.points // 2, 1)
            if image & 2:  # w(1/4 - x, -y)
                w = w.flip(1, 2).roll((self.points // 4 + 1, 1), (1, 2))
            shift = self.points * image // number
            found.append(w.roll((shift, -shift), (1, 2)).flatten(1))
        return torch.cat(found)


def _std(eigenvalues: Tensor) -> Tensor:
    """Return ``sqrt2 tau^1.5 (eigenvalue + tau^2)^(-1.25)``, nothing for the constant."""
    std = 2**0.5 * TAU**1.5 * (eigenvalues + TAU**2) ** -1.25
    return torch.where(eigenvalues > 0, std, 0.0)
