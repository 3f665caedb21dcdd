"""A rising map of a Gaussian field: single values of any law, with an atom at the lower end."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.laws.truncated import truncated_samples
from uqsonet_study.beyond.priors.mixtures import _coordinates, _Drawn, _Sensors
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.priors.law import Law

FAR = 7.0  # latent values beyond this, in standard deviations, do not occur
NODES = 200_001  # points on which a map is tabulated
ROUNDING = 1e-6  # values this near to the lower end, as a share of what they vary by, are at it


class MappedField:
    """A field whose value at each point is a rising function of a latent Gaussian field.

    Sensors are exact. Above the atom they tell the latent value, and the latent field follows in
    closed form. At the atom they say that it is below the cut: a Gaussian cut off to a box.

    Parameters
    ----------
    latent : GaussianField
        Of variance one.
    forward : callable
        From latent values to those of the transformed field, rising above the cut.
    cut : float
        Latent values below it have the same value; minus infinity without an atom.
    """

    def __init__(
        self, latent: GaussianField, forward: Callable[[Tensor], Tensor], cut: float = -math.inf
    ) -> None:
        self.latent, self.cut = latent, cut
        start = max(cut, -FAR)
        self._nodes = torch.linspace(start, FAR, NODES, dtype=torch.float64)
        self._values = forward(self._nodes)
        if not bool((self._values.diff() > 0).all()):
            raise ConfigError("the map of a latent field must rise above the cut")

    def _of(self, latent: Tensor) -> Tensor:
        found = np.interp(latent.numpy(), self._nodes.numpy(), self._values.numpy())
        return torch.from_numpy(found)

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Draw `size` fields."""
        return self._of(self.latent.draw(generator, size))

    def posterior(self, locations: Tensor, values: Tensor, noise_std: float) -> Law:
        """Return the law given values (m,) at locations (m, d).

        Raises
        ------
        ObservationError
            If there is noise.
        """
        if noise_std:
            raise ObservationError(
                f"the exact law of a mapped field is known without noise, found {noise_std:g}"
            )
        least = float(self._values[0])
        rounding = ROUNDING * float(self._of(torch.ones(1)) - least)
        below = (values <= least + rounding) & math.isfinite(self.cut)
        latent = np.interp(values.numpy(), self._values.numpy(), self._nodes.numpy())
        known, sensors = torch.from_numpy(latent), _Sensors(self.latent, locations, 0.0)
        seen = _Sensors(self.latent, locations[~below], 0.0)
        rows = sensors.rows[below]
        # Of the latent values below the cut, given those that are known.
        law = self.latent.condition(locations[~below], known[~below])
        mean, spread = sensors.mean[below] + rows @ law.mean, law.spread(rows)
        lower, upper = (torch.full_like(mean, end) for end in (-math.inf, self.cut))

        def draw(generator: np.random.Generator, size: int) -> Tensor:
            xi = _coordinates(self.latent, generator, size)
            if not bool(below.any()):
                return self._of(self.latent.field(seen.condition(generator, xi, known)))
            seed = torch.Generator().manual_seed(int(generator.integers(2**63)))
            every = known.repeat(size, 1)
            covariance = spread @ spread.T
            every[:, below] = truncated_samples(mean, covariance, lower, upper, size, seed)
            return self._of(self.latent.field(sensors.condition(generator, xi, every)))

        return _Drawn(draw)
