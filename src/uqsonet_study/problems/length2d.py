"""Darcy flow through a smooth medium whose correlation length is drawn anew for each function.

``-div(k grad u) = 1`` on [0, 1]^2, ``u = 0``, on 64 x 64 points, by the scheme of `darcy64`.
log k ~ GP(0, 0.5^2 exp(-|x - x'|^2 / l^2)) with l log-uniform from 0.1 to 1, on 32 values that are
7.7 % apart.
"""

from __future__ import annotations

from functools import cached_property

from uqsonet.fields.field import Transform
from uqsonet_study.priors.beyond import Prior
from uqsonet_study.priors.families import random_length
from uqsonet_study.priors.gaussian_process import SeparableField, squared_exponential, zero
from uqsonet_study.problems.darcy64 import Darcy64


class Length2D(Darcy64):
    """Flow through a lognormal medium of random length on 64 x 64 points."""

    name = "length2d"
    title = "Darcy flow, Gaussian fields of random length, 64 x 64 points"
    transform = Transform("log")

    @cached_property
    def prior(self) -> Prior:
        """The law of log k: a decomposition of 32 matrices, so not before it is needed."""
        axes = self.grid.axes()

        def field(length: float) -> SeparableField:
            kernel = squared_exponential(std=0.5**0.5, length=length)  # along each axis
            return SeparableField(axes, zero, kernel)

        return random_length(field, 0.1, 1.0, 32)
