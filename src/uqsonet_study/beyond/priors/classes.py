"""Classes of a latent Gaussian field, with or without Gaussian fields within, and their posteriors.

The latent values at the sensors are a Gaussian cut off to a box, given the class of each sensor
(`truncated_samples`); the rest follows by conditioning. Where fields within the classes leave a
sensor's class in doubt, each assignment of classes to sensors is weighed: the probability of its
box, by quasi-random integration (Genz 1992), times the density of the readings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.laws.truncated import truncated_samples
from uqsonet_study.beyond.priors.mixtures import _coordinates, _Drawn, _Sensors
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.priors.law import Law

TWO_VALUED = 1e-4
"""Sensors of a field of two values may miss one of them by this part of their distance."""

SURE = 30.0  # log of the likelihood ratio from which on a noisy sensor tells a class beyond doubt
UNLIKELY = 20.0
"""A class of a sensor is left out if its log density is so far below that of the likeliest."""

MAX_ASSIGNMENTS = 4096  # maximum number of assignments of classes to sensors
INTEGRATION = 12  # base-two logarithm of the number of points behind the probability of a box


class ClassField:
    """A field of a few values: those between whose thresholds a latent Gaussian field lies.

    Parameters
    ----------
    thresholds : sequence of float
        Ascending.
    values : sequence of float
        Of the transformed field, one more than thresholds.
    inner : sequence of GaussianField
        What is added to each value; none where the posterior does not ask for it.
    """

    def __init__(
        self,
        latent: GaussianField,
        thresholds: Sequence[float],
        values: Sequence[float],
        inner: Sequence[GaussianField] = (),
    ) -> None:
        self.latent, self._inner = latent, list(inner)
        self._values = torch.tensor(values, dtype=torch.float64)
        self._cuts = torch.tensor(thresholds, dtype=torch.float64)
        self._ends = torch.tensor([-math.inf, *thresholds, math.inf], dtype=torch.float64)

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Draw `size` fields."""
        within = [field.draw(generator, size) for field in self._inner]
        return self._of(_coordinates(self.latent, generator, size), within)

    def posterior(self, locations: Tensor, values: Tensor, noise_std: float) -> Law:
        """Return the law given values (m,) at locations (m, d).

        Raises
        ------
        ObservationError
            If too many assignments of classes are possible.
        """
        latent = _Sensors(self.latent, locations, 0.0)
        inner = [_Sensors(field, locations, noise_std) for field in self._inner]
        assignments = self._assignments(values, inner, noise_std)
        weights = np.array([self._weight(one, values, latent, inner) for one in assignments])
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()

        def draw(generator: np.random.Generator, size: int) -> Tensor:
            counts = generator.multinomial(size, weights)
            parts = [
                self._given(one, values, locations, noise_std, latent, generator, int(count))
                for one, count in zip(assignments, counts, strict=True)
                if count
            ]
            drawn = torch.cat(parts)
            return drawn[torch.from_numpy(generator.permutation(len(drawn)))]

        return _Drawn(draw)

    def _of(self, xi: Tensor, within: list[Tensor]) -> Tensor:
        numbers = torch.bucketize(self.latent.field(xi), self._cuts)
        field = self._values[numbers]
        for k, one in enumerate(within):
            field = torch.where(numbers == k, field + one, field)
        return field

    def _assignments(self, values: Tensor, inner: list[_Sensors], noise_std: float) -> list[Tensor]:
        """Return the classes (m,) that sensors may have."""
        off = values[:, None] - self._values - torch.stack([one.mean for one in inner], 1)
        variance = torch.stack([one.covariance.diagonal() for one in inner], 1) + noise_std**2
        density = -0.5 * (off.square() / variance + variance.log())
        possible = density > density.amax(1, keepdim=True) - UNLIKELY
        if math.prod(possible.sum(1).tolist()) > MAX_ASSIGNMENTS:
            raise ObservationError("these sensors leave too many classes in doubt")
        every = [row.nonzero()[:, 0].tolist() for row in possible]
        return [torch.tensor(one, dtype=torch.int64) for one in itertools.product(*every)]

    def _weight(
        self, classes: Tensor, values: Tensor, latent: _Sensors, inner: list[_Sensors]
    ) -> float:
        """Return the log of the probability of classes times the density of the readings."""
        lower, upper = self._ends[classes], self._ends[classes + 1]
        total = log_box(latent.covariance, lower - latent.mean, upper - latent.mean)
        for k, one in enumerate(inner):
            here = (classes == k).nonzero()[:, 0]
            if len(here):
                noise = one._noise**2 * torch.eye(len(here), dtype=torch.float64)
                law = torch.distributions.MultivariateNormal(
                    one.mean[here] + self._values[k], one.covariance[here][:, here] + noise
                )
                total += float(law.log_prob(values[here]))
        return total

    def _given(
        self, classes: Tensor, values: Tensor, locations: Tensor, noise_std: float,
        latent: _Sensors, generator: np.random.Generator, size: int,
    ) -> Tensor:  # fmt: skip
        """Draw fields given the class of each sensor."""
        seed = torch.Generator().manual_seed(int(generator.integers(2**63)))
        ends = self._ends[classes], self._ends[classes + 1]
        seen = truncated_samples(latent.mean, latent.covariance, *ends, size, seed)
        xi = latent.condition(generator, _coordinates(self.latent, generator, size), seen)
        within = []
        for k, field in enumerate(self._inner):
            here = classes == k
            inner = _coordinates(field, generator, size)
            if bool(here.any()):
                sensors = _Sensors(field, locations[here], noise_std)
                inner = sensors.condition(generator, inner, values[here] - self._values[k])
            within.append(field.field(inner))
        return self._of(xi, within)


class ThresholdedField(ClassField):
    """A field of two values: `high` where a latent Gaussian field is positive, else `low`.

    Parameters
    ----------
    low, high : float
        Of the transformed field.
    """

    def __init__(self, latent: GaussianField, low: float, high: float) -> None:
        super().__init__(latent, [0.0], [low, high])
        self._low, self._high = low, high

    def posterior(self, locations: Tensor, values: Tensor, noise_std: float) -> Law:
        """Return the law given values (m,) at locations (m, d).

        Raises
        ------
        ObservationError
            If noise leaves the class of a sensor in doubt, or a value without noise is neither of
            the two.
        """
        given = self._classes(values, noise_std).long(), values, locations, noise_std
        sensors = _Sensors(self.latent, locations, 0.0)
        return _Drawn(lambda generator, size: self._given(*given, sensors, generator, size))

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


def log_box(covariance: Tensor, lower: Tensor, upper: Tensor) -> float:
    """Return the log of the probability that a Gaussian vector lies in a box."""
    m = len(lower)
    if not m:
        return 0.0
    eye = torch.eye(m, dtype=torch.float64)
    root = torch.linalg.cholesky(covariance + 1e-9 * eye)
    points = torch.from_numpy(qmc.Sobol(m, rng=np.random.default_rng(0)).random_base2(INTEGRATION))
    y = torch.zeros(len(points), m, dtype=torch.float64)
    total = torch.zeros(len(points), dtype=torch.float64)
    for i in range(m):
        mean = y[:, :i] @ root[i, :i]
        low, high = (torch.special.ndtr((end[i] - mean) / root[i, i]) for end in (lower, upper))
        total += (high - low).clamp_min(1e-300).log()
        y[:, i] = torch.special.ndtri((low + points[:, i] * (high - low)).clamp(1e-15, 1 - 1e-15))
    return float(total.logsumexp(0)) - math.log(len(points))
