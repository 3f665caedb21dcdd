"""The equation of section 4.1 with a correlation length that is drawn anew for each function.

log k ~ GP(sin(2 pi x), 0.5^2 exp(-(x - x')^2 / l^2)) with l log-uniform from 0.05 to 0.5, on 64
values that are 3.7 % apart. Grids of `diffusion1d`.
"""

from __future__ import annotations

from math import pi

import torch

from uqsonet_study.priors.families import LengthField
from uqsonet_study.priors.gaussian_process import GaussianField, squared_exponential
from uqsonet_study.problems.base import BEYOND
from uqsonet_study.problems.diffusion1d import Diffusion1D


class Length1D(Diffusion1D):
    """Equation (eq:1d) where log k has a random length."""

    name = "length1d"
    title = "One-dimensional diffusion, Gaussian fields of random length"
    section = BEYOND

    def __init__(self) -> None:
        super().__init__()
        points = self.grid.points()

        def field(length: float) -> GaussianField:
            kernel = squared_exponential(std=0.5, length=length)
            return GaussianField(points, lambda x: torch.sin(2 * pi * x[:, 0]), kernel)

        self.prior = LengthField(field, 0.05, 0.5, 64)
