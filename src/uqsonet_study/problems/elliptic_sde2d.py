"""Two-dimensional elliptic SDE, section 4.4: ``-div(k grad u) = f`` on [0, 1]^2, ``u = 0``.

Both inputs are random and independent: log k ~ GP(0, exp(-|x - x'|^2 / (2 0.1^2))) and f as in
section 4.2. 101 x 101 points; training sees u on 51 x 51 of them. The operator maps f to u, as the
section's own formula says; the appendix says that k is observed: `elliptic_sde2d_k` is that
reading.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet.fields.field import Transform
from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import SeparableField, squared_exponential, zero
from uqsonet_study.problems.base import Problem
from uqsonet_study.problems.poisson2d import source_field
from uqsonet_study.solvers.elliptic2d import EllipticOperator2D, solve_elliptic2d

SOURCES = 16
"""Right-hand sides solved together: they share the processor's cache with the preconditioner."""


def coefficient_field(grid: Grid) -> SeparableField:
    """Return the law of log k (eqn:2d-gp with mean zero)."""
    return SeparableField(
        grid.axes(),
        mean=zero,
        kernel=squared_exponential(std=1.0, length=0.1, halved=True),
    )


class EllipticSDE2D(Problem):
    """Equation (eqn:2d-sde): observed source f, unobserved coefficient k."""

    name = "elliptic_sde2d"
    title = "Two-dimensional elliptic stochastic differential equation"
    input_symbol = "f"
    affine = "kappa"
    unobserved_transform = Transform("log")
    output_stride = 2
    zero_boundary = True
    block = 16

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (101, 101))
        self.prior = source_field(self.grid)
        self.unobserved = coefficient_field(self.grid)

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Solve the second-order central-difference system for pairs of f and k."""
        assert unobserved is not None
        return self.solve_pairs(unobserved, kappa)

    def solve_pairs(self, k: Tensor, f: Tensor) -> Tensor:
        """Return u (B, n) for coefficients (B, n) and sources (B, n) or (1, n)."""
        shape, (spacing, _) = self.grid.shape, self.grid.spacing()
        k, f = k.reshape(-1, *shape), f.reshape(-1, *shape)
        return solve_elliptic2d(k, f, spacing).flatten(1)

    def solve_affine(self, other: Tensor | None, sources: Tensor) -> Tensor:
        """Return u for every pair of a coefficient (B, n) and a source (R, n): (B, R, n)."""
        assert other is not None
        shape, (spacing, _) = self.grid.shape, self.grid.spacing()
        f = sources.reshape(1, -1, *shape)
        found = []
        for k in other.reshape(-1, 1, *shape):
            operator = EllipticOperator2D(k, spacing)
            found.append(torch.cat([operator.solve(some) for some in f.split(SOURCES, 1)], 1))
        return torch.cat(found).flatten(2)

    def symmetries(self) -> list[Tensor]:
        """Return the eight symmetries of the square as permutations of grid points."""
        index = torch.arange(self.grid.size).reshape(self.grid.shape)
        turns = [index.rot90(quarter) for quarter in range(4)]
        return [turn.flatten() for turn in turns] + [turn.T.flatten() for turn in turns]
