"""Darcy flow through ground that rain has wetted: `rain1d` in the plane.

``-div((1/4 + rain) grad u) = 1`` on [0, 1]^2, ``u = 0``, on 64 x 64 points, by the scheme of
`darcy128`. Rain is ``max(0, w)^1.5``; the kernel of the Gaussian field w is a product of Matern
kernels of smoothness 3/2 and length 0.4.
"""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from uqsonet_study.beyond.priors.mapped import MappedField
from uqsonet_study.beyond.problems.darcy128 import Darcy128
from uqsonet_study.beyond.problems.rain1d import DRY
from uqsonet_study.priors.gaussian_process import SeparableField, matern, zero
from uqsonet_study.priors.law import Prior


class Rain2D(Darcy128):
    """Flow whose coefficient rises with the rain, on 64 x 64 points."""

    name = "rain2d"
    title = "Darcy flow, rain, 64 x 64 points"
    input_symbol = "r"
    points = 64

    @cached_property
    def prior(self) -> Prior:
        """The law of rain."""
        latent = SeparableField(self.grid.axes(), zero, matern(1.0, 0.4))
        return MappedField(latent, lambda w: w.clamp_min(0) ** 1.5, cut=0.0)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the equation with the coefficient that this rain makes."""
        return super().solve(DRY + kappa)
