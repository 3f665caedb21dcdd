"""The equation of section 4.1 where the input is rain: zero at half of all points.

Rain is ``max(0, w)^1.5`` with w ~ GP(0, exp(-(x - x')^2 / 0.3^2)), on the grids of `diffusion1d`,
and the coefficient of the equation is ``1/4 + rain``: wet ground conducts more. The atom is in the
input, as sensors that read zero are what a law of the input has to understand.
"""

from __future__ import annotations

from torch import Tensor

from uqsonet.fields.field import Transform
from uqsonet_study.beyond.priors.mapped import MappedField
from uqsonet_study.problems.diffusion1d import Diffusion1D

DRY = 0.25  # coefficient of the equation where there is no rain


class Rain1D(Diffusion1D):
    """Equation (eq:1d) with a coefficient that rises with the rain."""

    name = "rain1d"
    title = "One-dimensional diffusion, rain"
    input_symbol = "r"
    transform = Transform()

    def __init__(self) -> None:
        super().__init__()
        latent = self.gaussian(std=1.0, length=0.3)
        self.prior = MappedField(latent, lambda w: w.clamp_min(0) ** 1.5, cut=0.0)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the equation with the coefficient that this rain makes."""
        return super().solve(DRY + kappa)
