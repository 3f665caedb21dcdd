"""Gaussian fields of which one is chosen or scaled at random, and what all laws condition by.

All laws here condition by one device (`_Sensors`), Matheron's rule in the coordinates of a Gaussian
field, ``xi + R^T (R R^T + noise)^-1 (values - what xi gives there)``, with the likelihood of the
values from the same matrix. Values come from single-precision data, so sensors never count as more
exact than `ROUNDING`.

Values and fields are those of the transformed input; fields are (size, n), float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.priors.law import Law

ROUNDING = 1e-7  # least noise of a sensor: what single precision leaves of values about one
SCALES = 20_000  # points on which the law of a scale is tabulated


@dataclass(frozen=True)
class _Drawn:
    """A law whose samples a function draws."""

    by: Callable[[np.random.Generator, int], Tensor]

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        return self.by(generator, size)


class _Sensors:
    """What sensors see of a Gaussian field ``mean + scale * factor @ xi``.

    Parameters
    ----------
    locations : Tensor, shape (m, d)
    """

    def __init__(self, field: GaussianField, locations: Tensor, noise_std: float) -> None:
        self.mean, self.rows = field.rows(locations)
        self.covariance = self.rows @ self.rows.T
        values, self._vectors = torch.linalg.eigh(self.covariance)
        self._values, self._noise = values.clamp_min(0), max(noise_std, ROUNDING)

    def log_likelihood(self, values: Tensor, scale: Tensor) -> Tensor:
        """Return the log density (k,) of values (m,) under scales (k,), up to a constant."""
        variance = scale[:, None] ** 2 * self._values + self._noise**2
        seen = (values - self.mean) @ self._vectors
        return -0.5 * (variance.log() + seen**2 / variance).sum(1)

    def condition(
        self,
        generator: np.random.Generator,
        xi: Tensor,
        values: Tensor,
        scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Move prior coordinates (size, r) onto values (m,) or (size, m) under scales (size,)."""
        scale = torch.as_tensor(scale, dtype=torch.float64).reshape(-1, 1)
        noise = self._noise * torch.from_numpy(generator.standard_normal((len(xi), len(self.rows))))
        missing = values - self.mean - scale * (xi @ self.rows.T) - noise
        weights = (missing @ self._vectors) / (scale**2 * self._values + self._noise**2)
        return xi + scale * (weights @ self._vectors.T) @ self.rows


def _coordinates(field: GaussianField, generator: np.random.Generator, size: int) -> Tensor:
    return torch.from_numpy(generator.standard_normal((size, field.rank)))


class MixtureField:
    """One of several Gaussian fields, each with its probability.

    The posterior is the mixture of their posteriors, with weights by the likelihood of the values.

    Parameters
    ----------
    fields : sequence of GaussianField
        On one grid.
    weights : sequence of float
        Their probabilities, up to a factor.
    """

    def __init__(self, fields: Sequence[GaussianField], weights: Sequence[float]) -> None:
        self._fields = fields
        self._log_weights = torch.tensor(weights, dtype=torch.float64).log()

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Draw `size` fields."""
        return self._draw(generator, size, self._log_weights, None, None)

    def posterior(self, locations: Tensor, values: Tensor, noise_std: float) -> Law:
        """Return the law given values (m,) at locations (m, d)."""
        sensors = [_Sensors(field, locations, noise_std) for field in self._fields]
        one = torch.ones(1, dtype=torch.float64)
        weights = self._log_weights + torch.cat([s.log_likelihood(values, one) for s in sensors])
        return _Drawn(lambda generator, size: self._draw(generator, size, weights, sensors, values))

    def _draw(
        self,
        generator: np.random.Generator,
        size: int,
        log_weights: Tensor,
        sensors: list[_Sensors] | None,
        values: Tensor | None,
    ) -> Tensor:
        chosen = generator.choice(len(self._fields), size, p=log_weights.softmax(0).numpy())
        found = torch.empty(size, len(self._fields[0].mean), dtype=torch.float64)
        for k, field in enumerate(self._fields):
            mine = torch.from_numpy(chosen == k)
            xi = _coordinates(field, generator, int(mine.sum()))
            if sensors is not None and values is not None:
                xi = sensors[k].condition(generator, xi, values)
            found[mine] = field.field(xi)
        return found


class StudentField:
    """A Student-t process: a Gaussian field whose fluctuation has one random scale for all points.

    The scale is ``sqrt(degrees / chi^2)``, cut off at `largest`. Given the scale the posterior is
    Gaussian; the posterior of the scale is tabulated on `SCALES` points and inverted.

    Parameters
    ----------
    field : GaussianField
        The process where the scale is one.
    degrees : float
        Degrees of freedom.
    largest : float
        Largest scale.
    """

    def __init__(self, field: GaussianField, degrees: float, largest: float) -> None:
        self._field = field
        # below a thirtieth of the largest: chi^2 above 300 for three degrees, never met
        log_scale = math.log(largest) + torch.linspace(
            -math.log(30), 0, SCALES, dtype=torch.float64
        )
        self._scale = log_scale.exp()
        # chi^2 = degrees / scale^2, so a density of log scale of chi^degrees exp(-chi^2 / 2)
        self._log_density = -degrees * log_scale - 0.5 * degrees / self._scale**2

    def draw(self, generator: np.random.Generator, size: int) -> Tensor:
        """Draw `size` fields."""
        xi, scale = self._inputs(generator, size, self._log_density)
        return self._field.mean + scale[:, None] * self._field.fluctuation(xi)

    def posterior(self, locations: Tensor, values: Tensor, noise_std: float) -> Law:
        """Return the law given values (m,) at locations (m, d)."""
        sensors = _Sensors(self._field, locations, noise_std)
        log_density = self._log_density + sensors.log_likelihood(values, self._scale)

        def draw(generator: np.random.Generator, size: int) -> Tensor:
            xi, scale = self._inputs(generator, size, log_density)
            xi = sensors.condition(generator, xi, values, scale)
            return self._field.mean + scale[:, None] * self._field.fluctuation(xi)

        return _Drawn(draw)

    def _inputs(
        self, generator: np.random.Generator, size: int, log_density: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw coordinates (size, r) and scales (size,), those by inversion of the table."""
        density = torch.softmax(log_density, 0).numpy()
        share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        uniform = generator.random(size) * share[-1]
        scale = np.exp(np.interp(uniform, share, self._scale.log().numpy()))
        return _coordinates(self._field, generator, size), torch.from_numpy(scale)


def random_length(
    field: Callable[[float], GaussianField], shortest: float, longest: float, count: int
) -> MixtureField:
    """Return a Gaussian field of a random length, log-uniform on so many values.

    The posterior is exact: that of each length, weighted by the likelihood of the values.
    """
    lengths = np.geomspace(shortest, longest, count).tolist()
    return MixtureField([field(length) for length in lengths], [1.0] * count)
