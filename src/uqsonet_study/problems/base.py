"""What a problem is: its fields, the law of its input, its solver.

A new equation is one file in this folder that defines a subclass of `Problem` with a `name`;
it is found by its name in the configuration, and nothing else needs an edit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.priors.law import Law, Prior

GPU_BLOCK = 2048  # functions solved at a time on a GPU: enough to fill it

Affine = Literal["kappa", "unobserved"]


class Problem(ABC):
    """An operator kappa -> u with a random input.

    Where the operator itself is random (sections 4.3 and 4.4) a second input, which no sensor
    sees, enters the equation: the `unobserved` one.

    Attributes
    ----------
    grid : Grid
        The grid of kappa and of u.
    prior : Prior
        The law of the transformed input on that grid: a `GaussianField`, or one of
        `uqsonet_study.beyond.priors`, or anything that draws fields and conditions them.
    """

    name: str
    title: str
    input_symbol: str = "k"
    output_symbol: str = "u"
    transform: Transform = Transform()
    grid: Grid
    prior: Prior
    unobserved: GaussianField | None = None
    """Law of the (transformed) second input, independent of kappa; None for a fixed operator."""
    unobserved_transform: Transform = Transform()
    affine: Affine | None = None
    """The untransformed Gaussian input that u depends on affinely while the other is held fixed.
    Moments of u given the other are then known in closed form."""
    solve_dtype: torch.dtype = torch.float64
    """float32 only where docs/data.md states a measured bound of what that costs."""
    tolerance: float = 0.0
    """Relative error of solutions where the solver lets it be chosen, else zero."""
    output_stride: int = 1
    """Training sees every `output_stride`-th point of the output grid along each axis."""
    zero_boundary: bool = False  # whether u vanishes on the boundary
    block: int = 1000
    """Functions drawn and solved at a time, so that they stay in the processor's cache."""

    @abstractmethod
    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Map inputs (B, n) on the grid to outputs (B, n) on the grid.

        Parameters
        ----------
        kappa : Tensor, shape (B, n)
        unobserved : Tensor, shape (B, n) or (1, n), optional
            The second input, where there is one.
        """

    def sample(
        self, generator: np.random.Generator, size: int, device: torch.device | str = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """Draw `size` independent pairs (kappa, u), each (size, n), float64, on the CPU.

        Fields are drawn on the CPU, so that a seed means the same inputs everywhere; equations
        are solved on `device`, in larger blocks where that is a GPU.
        """
        block = self.block if torch.device(device).type == "cpu" else max(self.block, GPU_BLOCK)
        if isinstance(self.prior, GaussianField):
            made, pairs_of = self.normals(generator, size), self.pairs
        else:
            made, pairs_of = self.inputs(self.prior, generator, size), self.outcomes
        first, second = made
        pairs = [
            pairs_of(
                first[start : start + block],
                None if second is None else second[start : start + block],
                device,
            )
            for start in range(0, size, block)
        ]
        kappa, u = (torch.cat(part) for part in zip(*pairs, strict=True))
        return kappa, u

    @property
    def gaussian_prior(self) -> GaussianField:
        """The prior, where it is a Gaussian field.

        Raises
        ------
        ConfigError
            If it is not.
        """
        if not isinstance(self.prior, GaussianField):
            raise ConfigError(
                f"problem {self.name}: its input is no Gaussian field; references of it come from "
                "estimator monte_carlo or none"
            )
        return self.prior

    def normals(self, generator: np.random.Generator, size: int) -> tuple[Tensor, Tensor | None]:
        """Draw the coordinates of `size` pairs: those of kappa, then the unobserved ones."""
        xi = torch.from_numpy(generator.standard_normal((size, self.gaussian_prior.rank)))
        return xi, self._unobserved(generator, size)

    def inputs(
        self, law: Law, generator: np.random.Generator, size: int
    ) -> tuple[Tensor, Tensor | None]:
        """Draw `size` transformed inputs (size, n) of a law, then the unobserved coordinates."""
        return law.draw(generator, size), self._unobserved(generator, size)

    def _unobserved(self, generator: np.random.Generator, size: int) -> Tensor | None:
        if self.unobserved is None:
            return None
        return torch.from_numpy(generator.standard_normal((size, self.unobserved.rank)))

    def pairs(
        self, xi: Tensor, unobserved: Tensor | None = None, device: torch.device | str = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """Map coordinates of both inputs to pairs (kappa, u), each (B, n), float64, on the CPU."""
        return self.outcomes(self.gaussian_prior.field(xi), unobserved, device)

    def outcomes(
        self, field: Tensor, unobserved: Tensor | None = None, device: torch.device | str = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """Map transformed inputs (B, n) and unobserved coordinates to pairs, as `pairs` does."""
        kappa = self.transform.inverse(field)
        ready = kappa.to(device, self.solve_dtype)
        if self.unobserved is None:
            return kappa, self.solve(ready).cpu().double()
        assert unobserved is not None
        second = self.unobserved_transform.inverse(self.unobserved.field(unobserved))
        return kappa, self.solve(ready, second.to(device, self.solve_dtype)).cpu().double()

    def solve_affine(self, other: Tensor | None, sources: Tensor) -> Tensor:
        """Return u for many values of the affine input at once.

        Parameters
        ----------
        other : Tensor, shape (B, n), or None
            Values of the other input (not transformed); None where there is none (B = 1).
        sources : Tensor, shape (R, n)
            Values of the input that u is affine in.

        Returns
        -------
        Tensor, shape (B, R, n), dtype of `sources`
        """
        raise NotImplementedError(f"{self.name} is not declared affine in an input")

    def symmetries(self) -> list[Tensor]:
        """Return permutations (n,) of the grid under which the law of the operator is invariant.

        The identity comes first. They act on the unobserved input and on u together.
        """
        return [torch.arange(self.grid.size)]

    @property
    def fields(self) -> OperatorFields:
        """What a model has to know of this problem."""
        return OperatorFields(
            self.name,
            Field(self.input_symbol, self.grid, self.transform),
            Field(self.output_symbol, self.grid),
            self.output_stride,
            self.zero_boundary,
            self.unobserved is not None,
        )

    def training_grid(self) -> tuple[Grid, Tensor]:
        """Return the grid of outputs seen in training and its flat indices in `grid`."""
        return self.grid.subgrid(self.output_stride)
