"""The equation of section 4.1 with a log k of three values, cut from one latent field.

log k is -1, 0 or 1.2 where a GP(0, exp(-(x - x')^2 / 0.3^2)) is below -0.5, between, or above 0.5.
Grids of `diffusion1d`.
"""

from __future__ import annotations

from uqsonet_study.priors.classes import ClassField
from uqsonet_study.problems.base import BEYOND
from uqsonet_study.problems.diffusion1d import Diffusion1D


class Classes1D(Diffusion1D):
    """Equation (eq:1d) where log k has three values."""

    name = "classes1d"
    title = "One-dimensional diffusion, three values"
    section = BEYOND

    def __init__(self) -> None:
        super().__init__()
        latent = self.gaussian(std=1.0, length=0.3)
        self.prior = ClassField(latent, [-0.5, 0.5], [-1.0, 0.0, 1.2])
