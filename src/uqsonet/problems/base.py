"""What a problem is: grids, the law of its input, its solver, its boundary factor.

A new equation is one file in this folder that defines a subclass of `Problem` with a `name`;
it is found by its name in the configuration, and nothing else needs an edit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet.gaussian_process import GaussianField
from uqsonet.grids import Grid


@dataclass(frozen=True)
class Transform:
    """A pointwise map from the observed field kappa to the field that is Gaussian.

    Attributes
    ----------
    name : str
        ``identity`` or ``log``. Observation noise is additive in the transformed field: on
        ``log`` that is the multiplicative noise ``k exp(eps)`` of section 4.1.
    """

    name: str = "identity"

    def forward(self, kappa: Tensor) -> Tensor:
        """Map kappa to the Gaussian field."""
        return kappa.log() if self.name == "log" else kappa

    def inverse(self, field: Tensor) -> Tensor:
        """Map the Gaussian field to kappa."""
        return field.exp() if self.name == "log" else field


class Problem(ABC):
    """An operator kappa -> u with a random input.

    Attributes
    ----------
    grid : Grid
        The grid of kappa and of u.
    prior : GaussianField
        The law of the transformed input on that grid.
    """

    name: str
    title: str
    section: str
    """Section of the paper."""
    transform: Transform = Transform()
    grid: Grid
    prior: GaussianField
    output_stride: int = 1
    """Training sees every `output_stride`-th point of the output grid along each axis."""

    @abstractmethod
    def solve(self, kappa: Tensor) -> Tensor:
        """Map inputs (B, n) on the grid to outputs (B, n) on the grid, float64."""

    def boundary_factor(self, queries: Tensor) -> Tensor:
        """Return the factor (...,) that enforces u = 0 on the boundary at queries (..., d)."""
        return torch.ones_like(queries[..., 0])

    def sample(self, generator: np.random.Generator, size: int) -> tuple[Tensor, Tensor]:
        """Draw `size` independent pairs (kappa, u), each (size, n), float64."""
        xi = torch.from_numpy(generator.standard_normal((size, self.prior.rank)))
        kappa = self.transform.inverse(self.prior.field(xi))
        return kappa, self.solve(kappa)

    def training_grid(self) -> tuple[Grid, Tensor]:
        """Return the grid of outputs seen in training and its flat indices in `grid`."""
        return self.grid.subgrid(self.output_stride)
