"""Darcy flow through a medium of two values: ``-div(k grad u) = 1`` on [0, 1]^2, ``u = 0``.

k is 12 where a Gaussian field is not negative and 3 elsewhere; the field has the covariance
``9 (-Lap + 9)^(-2)`` with free ends and no mean, and 128 x 128 cosines (Li et al. 2021). Published
figures for sparse sensors are those of DiffusionPDE (NeurIPS 2024) and FunDPS (NeurIPS 2025). Two
differences from their data: they draw the field at the centres of cells and interpolate k to the
points of the grid by splines, which leaves values between 3 and 12; here the field is taken at the
points themselves. The five-point scheme is the same, with means of k at the faces.

127 is a prime number of cells: training sees u on all points.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet_study.beyond.priors.classes import ThresholdedField
from uqsonet_study.priors.gaussian_process import CosineField
from uqsonet_study.priors.law import Prior
from uqsonet_study.problems.base import Problem
from uqsonet_study.solvers.elliptic2d import solve_rough2d

TAU = 3.0


class Darcy128(Problem):
    """Flow through a medium of two values on 128 x 128 points."""

    name = "darcy128"
    title = "Darcy flow, two values, 128 x 128 points"
    zero_boundary = True
    solve_dtype = torch.float32
    block = 16
    points = 128

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (self.points, self.points))

    @cached_property
    def prior(self) -> Prior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The law of k."""
        return ThresholdedField(CosineField(self.points, latent_std), low=3.0, high=12.0)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the five-point system by preconditioned conjugate gradients."""
        k, (spacing, _) = kappa.reshape(-1, *self.grid.shape), self.grid.spacing()
        return solve_rough2d(k, torch.ones_like(k[:1]), spacing).flatten(1)


def latent_std(eigenvalues: Tensor) -> Tensor:
    """Return ``tau / (eigenvalue + tau^2)``, nothing for the constant."""
    return torch.where(eigenvalues > 0, TAU / (eigenvalues + TAU**2), 0.0)
