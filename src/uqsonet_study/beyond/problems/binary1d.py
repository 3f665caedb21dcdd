"""The equation of section 4.1 with a log k of two values: layers.

log k is 0.8 where a GP(0, exp(-(x - x')^2 / 0.2^2)) is positive, and -0.8 elsewhere. Grids of
`diffusion1d`.
"""

from __future__ import annotations

from uqsonet_study.beyond.priors.classes import ThresholdedField
from uqsonet_study.problems.diffusion1d import Diffusion1D


class Binary1D(Diffusion1D):
    """Equation (eq:1d) where log k has two values."""

    name = "binary1d"
    title = "One-dimensional diffusion, two values"

    def __init__(self) -> None:
        super().__init__()
        self.prior = ThresholdedField(self.gaussian(std=1.0, length=0.2), low=-0.8, high=0.8)
