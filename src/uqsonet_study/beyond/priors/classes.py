"""Two classes of a latent Gaussian field, and their posterior.

The latent values at the sensors are a Gaussian cut off to a box, given the class of each sensor
(`truncated_samples`); the rest follows by conditioning.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.laws.truncated import truncated_samples
from uqsonet_study.beyond.priors.mixtures import _coordinates, _Drawn, _Sensors
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.priors.law import Law

TWO_VALUED = 1e-4
"""Sensors of a field of two values may miss one of them by this part of their distance."""

SURE = 30.0  # log of the likelihood ratio from which on a noisy sensor tells a class beyond doubt


class ThresholdedField:
    """A field of two values: `high` where a latent Gaussian field is positive, else `low`.

    Parameters
    ----------
    low, high : float
        Of the transformed field.
    """

    def __init__(self, latent: GaussianField, low: float, high: float) -> None:
        self.latent, self._low, self._high = latent, low, high

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Draw `size` fields."""
        return self._of(_coordinates(self.latent, generator, size))

    def posterior(self, locations: Tensor, values: Tensor, noise_std: float) -> Law:
        """Return the law given values (m,) at locations (m, d).

        Raises
        ------
        ObservationError
            If noise leaves the class of a sensor in doubt, or a value without noise is neither of
            the two.
        """
        above = self._classes(values, noise_std)
        far = torch.full(values.shape, math.inf, dtype=torch.float64)
        lower, upper = torch.where(above, 0.0, -far), torch.where(above, far, 0.0)
        latent = _Sensors(self.latent, locations, 0.0)

        def draw(generator: np.random.Generator, size: int) -> Tensor:
            seed = torch.Generator().manual_seed(int(generator.integers(2**63)))
            law = latent.mean, latent.covariance, lower, upper
            seen = truncated_samples(*law, size, seed)
            xi = _coordinates(self.latent, generator, size)
            return self._of(latent.condition(generator, xi, seen))

        return _Drawn(draw)

    def _of(self, xi: Tensor) -> Tensor:
        values = torch.tensor([self._low, self._high], dtype=torch.float64)
        return values[(self.latent.field(xi) > 0).long()]

    def _classes(self, values: Tensor, noise_std: float) -> Tensor:
        """Return whether each value (m,) is of the class `high`."""
        apart = abs(self._high - self._low)
        off_high, off_low = (values - self._high).abs(), (values - self._low).abs()
        if noise_std == 0:
            sure = torch.minimum(off_high, off_low) <= TWO_VALUED * apart
        else:
            sure = (off_high**2 - off_low**2).abs() >= 2 * SURE * noise_std**2
        if not bool(sure.all()):
            raise ObservationError(
                f"a field of the values {self._low:g} and {self._high:g} (transformed) has no "
                f"posterior for the sensor value {float(values[~sure][0]):g} with noise_std "
                f"{noise_std:g}: sensors must tell beyond doubt which of the two they see"
            )
        return off_high < off_low
