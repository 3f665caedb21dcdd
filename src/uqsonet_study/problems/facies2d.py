"""Darcy flow through a medium of two classes, each with a smooth field within.

``-div(k grad u) = 1`` on [0, 1]^2, ``u = 0``, on 64 x 64 points, by the scheme of `darcy64`. Where
a Gaussian field of length 0.4 is negative, log k is -1 and a field of std 0.2 and length 0.3,
elsewhere 1 and a field of std 0.2 and length 0.15. All kernels are products of Matern kernels of
smoothness 3/2.
"""

from __future__ import annotations

from functools import cached_property

from uqsonet.fields.field import Transform
from uqsonet_study.priors.beyond import Prior
from uqsonet_study.priors.classes import ClassField
from uqsonet_study.problems.darcy64 import Darcy64


class Facies2D(Darcy64):
    """Flow through a medium of two classes with variation inside, on 64 x 64 points."""

    name = "facies2d"
    title = "Darcy flow, two classes with variation inside, 64 x 64 points"
    transform = Transform("log")

    @cached_property
    def prior(self) -> Prior:
        """The law of log k."""
        low, high = self.smooth(0.2, 0.3), self.smooth(0.2, 0.15)
        return ClassField(self.smooth(1.0, 0.4), [0.0], [-1.0, 1.0], [low, high])
