"""Gaussian fields whose correlation length is drawn anew for each function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uqsonet_study.priors.beyond import Law, MixtureField
from uqsonet_study.priors.gaussian_process import GaussianField


class LengthField:
    """A Gaussian field of a random length, log-uniform on so many values.

    The posterior is exact: that of each length, weighted by the likelihood of the values.

    Parameters
    ----------
    field : callable
        Maps a length to the field.
    shortest, longest : float
    count : int
        Number of lengths.
    """

    def __init__(
        self,
        field: Callable[[float], GaussianField],
        shortest: float,
        longest: float,
        count: int,
    ) -> None:
        self._field = field
        self.lengths = torch.from_numpy(np.geomspace(shortest, longest, count))

    @cached_property
    def mixture(self) -> MixtureField:
        """The fields of all lengths: a decomposition each, so not before they are needed."""
        fields = [self._field(length) for length in self.lengths.tolist()]
        return MixtureField(fields, [1.0] * len(fields))

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Draw `size` fields."""
        return self.mixture.draw(generator, size)

    def posterior(self, locations: Tensor, values: Tensor, noise_std: float) -> Law:
        """Return the law given values (m,) at locations (m, d)."""
        return self.mixture.posterior(locations, values, noise_std)
