"""Section 4.4 as its appendix reads: the coefficient k is observed, the source f is not.

Everything else is that of `elliptic_sde2d`. Choose it by an experiment's `problem`.
"""

from __future__ import annotations

from torch import Tensor

from uqsonet.fields.field import Transform
from uqsonet_study.problems.base import Problem
from uqsonet_study.problems.elliptic_sde2d import EllipticSDE2D, coefficient_field
from uqsonet_study.problems.poisson2d import source_field


class EllipticSDE2DObservedK(EllipticSDE2D):
    """Equation (eqn:2d-sde): observed coefficient k, unobserved source f."""

    name = "elliptic_sde2d_k"
    title = "Two-dimensional elliptic stochastic differential equation, k observed"
    input_symbol = "k"
    transform = Transform("log")
    affine = "unobserved"
    unobserved_transform = Transform()

    def __init__(self) -> None:
        super().__init__()
        self.prior, self.unobserved = coefficient_field(self.grid), source_field(self.grid)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the second-order central-difference system for pairs of k and f."""
        assert unobserved is not None
        return self.solve_pairs(kappa, unobserved)

    def symmetries(self) -> list[Tensor]:
        """Return the identity: the mean of f is not symmetric."""
        return Problem.symmetries(self)
