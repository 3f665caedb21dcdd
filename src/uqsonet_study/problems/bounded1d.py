"""Regression of a Gaussian process within bounds (Shi et al., NeurIPS 2025): u is k itself.

k ~ GP(0, Matern 3/2, length 0.3, variance 1) on 128 points of [0, 1], given that |k| <= 1.2 at all
of them. Source: `regression/OFM_TGP_Regression.ipynb` of github.com/yzshi5/SPL_OFM, whose sensors
stand at points 17, 50 and 79 with noise of variance 0.001.
"""

from __future__ import annotations

from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet_study.priors.beyond import BoundedField
from uqsonet_study.priors.gaussian_process import GaussianField, matern, zero
from uqsonet_study.problems.base import BEYOND, Problem


class Bounded1D(Problem):
    """The identity on a Gaussian process within bounds."""

    name = "bounded1d"
    title = "Gaussian process within bounds"
    section = BEYOND

    def __init__(self) -> None:
        self.grid = Grid((0.0,), (1.0,), (128,))
        field = GaussianField(self.grid.points(), zero, matern(std=1.0, length=0.3))
        self.prior = BoundedField(field, -1.2, 1.2)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Return k."""
        return kappa.clone()
