"""The equation of section 4.1 with a correlation length that is drawn anew for each function.

log k ~ GP(sin(2 pi x), 0.5^2 exp(-(x - x')^2 / l^2)) with l log-uniform from 0.05 to 0.5, on 64
values that are 3.7 % apart. Grids of `diffusion1d`.
"""

from __future__ import annotations

from functools import cached_property

from uqsonet_study.beyond.priors.mixtures import random_length
from uqsonet_study.priors.law import Prior
from uqsonet_study.problems.diffusion1d import Diffusion1D, sine


class Length1D(Diffusion1D):
    """Equation (eq:1d) where log k has a random length."""

    name = "length1d"
    title = "One-dimensional diffusion, Gaussian fields of random length"

    @cached_property
    def prior(self) -> Prior:
        """The law of log k: a decomposition of 64 matrices, so not before it is needed."""
        return random_length(lambda length: self.gaussian(0.5, length, sine), 0.05, 0.5, 64)
