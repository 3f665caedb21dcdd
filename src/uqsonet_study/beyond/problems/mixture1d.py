"""The equation of section 4.1 with one of two Gaussian fields for log k, each as likely.

GP(sin(2 pi x), 0.5^2 exp(-(x - x')^2 / 0.1^2)) or GP((cos(3 pi x) - 1) / 2,
0.5^2 exp(-(x - x')^2 / 0.4^2)), on the grids of `diffusion1d`.
"""

from __future__ import annotations

from math import pi

import torch

from uqsonet_study.beyond.priors.mixtures import MixtureField
from uqsonet_study.problems.diffusion1d import Diffusion1D, sine


class Mixture1D(Diffusion1D):
    """Equation (eq:1d) where log k is one of two fields."""

    name = "mixture1d"
    title = "One-dimensional diffusion, one of two Gaussian fields"

    def __init__(self) -> None:
        super().__init__()
        rough = self.gaussian(0.5, 0.1, sine)
        smooth = self.gaussian(0.5, 0.4, lambda x: 0.5 * torch.cos(3 * pi * x[:, 0]) - 0.5)
        self.prior = MixtureField([rough, smooth], [0.5, 0.5])
