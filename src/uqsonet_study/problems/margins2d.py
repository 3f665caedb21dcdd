"""Darcy flow through a medium with gamma margins: `margins1d` in the plane.

``-div(k grad u) = 1`` on [0, 1]^2, ``u = 0``, on 64 x 64 points, by the scheme of `darcy64`. k is
at each point the quantile of a gamma law of shape 3 and mean 1 that a Gaussian field is of a normal
law. The field's kernel is a product of Matern kernels of smoothness 3/2 and length 0.2.
"""

from __future__ import annotations

from functools import cached_property

from uqsonet.fields.field import Transform
from uqsonet_study.priors.beyond import Prior
from uqsonet_study.priors.mapped import MappedField
from uqsonet_study.problems.darcy64 import Darcy64
from uqsonet_study.problems.margins1d import log_gamma


class Margins2D(Darcy64):
    """Flow through a medium with gamma margins on 64 x 64 points."""

    name = "margins2d"
    title = "Darcy flow, gamma margins, 64 x 64 points"
    transform = Transform("log")

    @cached_property
    def prior(self) -> Prior:
        """The law of log k."""
        return MappedField(self.smooth(std=1.0, length=0.2), log_gamma)
