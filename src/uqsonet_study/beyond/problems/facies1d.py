"""The equation of section 4.1 with a log k of two classes, each with a smooth field within.

Where a GP(0, exp(-(x - x')^2 / 0.4^2)) is negative, log k is a GP(-0.8, 0.3^2 exp(-(x - x')^2 /
0.2^2)), elsewhere a GP(0.8, 0.2^2 exp(-(x - x')^2 / 0.1^2)). Grids of `diffusion1d`.
"""

from __future__ import annotations

from uqsonet_study.beyond.priors.classes import ClassField
from uqsonet_study.problems.diffusion1d import Diffusion1D


class Facies1D(Diffusion1D):
    """Equation (eq:1d) where log k jumps between two smooth fields."""

    name = "facies1d"
    title = "One-dimensional diffusion, two classes with variation inside"

    def __init__(self) -> None:
        super().__init__()
        latent, low, high = (
            self.gaussian(std, length) for std, length in ((1.0, 0.4), (0.3, 0.2), (0.2, 0.1))
        )
        self.prior = ClassField(latent, [0.0], [-0.8, 0.8], [low, high])
