"""Helmholtz equation of the published tables: ``Lap u + u = f`` on [0, 1]^2, ``u = 0`` at the edge.

f is that of `poisson128` inside the square and zero on its boundary. Everything else is as there.
"""

from __future__ import annotations

from torch import Tensor

from uqsonet_study.priors.gaussian_process import CosineField
from uqsonet_study.problems.darcy64 import latent_std
from uqsonet_study.problems.poisson128 import Poisson128


class Helmholtz128(Poisson128):
    """A driven oscillation on 128 x 128 points."""

    name = "helmholtz128"
    title = "Helmholtz equation, 128 x 128 points"
    reaction = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.prior = CosineField(self.points, latent_std, envelope=_inside)


def _inside(x: Tensor) -> Tensor:
    """Return one inside the unit square and zero on its boundary, (k,), at locations (k, 2)."""
    return ((x > 0) & (x < 1)).all(-1).to(x.dtype)
