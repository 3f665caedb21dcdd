"""Darcy flow through ground that rain has wetted: `rain1d` in the plane.

``-div((1/4 + rain) grad u) = 1`` on [0, 1]^2, ``u = 0``, on 64 x 64 points, by the scheme of
`darcy64`. Rain is ``max(0, w)^1.5``; the kernel of the Gaussian field w is a product of Matern
kernels of smoothness 3/2 and length 0.4.
"""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from uqsonet_study.priors.beyond import Prior
from uqsonet_study.priors.mapped import MappedField
from uqsonet_study.problems.darcy64 import Darcy64
from uqsonet_study.problems.rain1d import DRY


class Rain2D(Darcy64):
    """Flow whose coefficient rises with the rain, on 64 x 64 points."""

    name = "rain2d"
    title = "Darcy flow, rain, 64 x 64 points"
    input_symbol = "r"

    @cached_property
    def prior(self) -> Prior:
        """The law of rain."""
        return MappedField(self.smooth(1.0, 0.4), lambda w: w.clamp_min(0) ** 1.5, cut=0.0)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the equation with the coefficient that this rain makes."""
        return super().solve(DRY + kappa)
