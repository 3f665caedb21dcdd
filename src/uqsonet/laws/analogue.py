"""Training inputs that fit the sensors, moved onto them by local kriging: no assumption on shape.

A posterior sample is a training input whose values at the sensors are near the observed ones, plus
the linear correction that local regression on the sensors' values asks for. This is regression
adjustment of an accepted sample (Beaumont, Zhang & Balding, Genetics 162, 2002) with fields for
parameters. It keeps the shape of real fields, and needs more inputs the more sensors there are.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from uqsonet.laws.base import InputPosterior, SeparateLaw
from uqsonet.laws.bases import InputSample
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.laws.bases import KarhunenLoeveBases

NEAR_SHARES = (0.03, 0.1, 0.3, 1.0)  # shares of the training inputs that count as near, to try
SENSOR_RIDGE = 1e-3  # ridge on the covariance of readings, as a share of their mean variance
MAX_KEPT_VALUES = 1 << 26  # values of all kept training inputs together


class AnaloguePosterior(InputPosterior):
    """Training inputs with weights, each moved onto the sensors."""

    def __init__(self, law: AnalogueLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        self._law, self._bases, self._sensors = law, bases, sensors

    @cached_property
    def _weighted(self) -> tuple[Tensor, Tensor]:
        """Weights (k,) and moved coefficients (k, r)."""
        law, o, field = self._law, self._sensors, self._bases.fields.input
        if not o.values.shape[1]:
            return torch.ones(len(law.fields)), law.coefficients
        seen = field.grid.interpolate(law.by_point, o.locations[0]).T.double()  # (N, m)
        generator = torch.Generator().manual_seed(1)
        drawn = torch.randn(seen.shape, generator=generator, dtype=torch.float64)
        observed = field.transform.forward(o.values[0].double())
        away = observed - (seen + o.noise()[0] * drawn)
        near, weights = _nearest(away, max(20, round(float(law.share) * len(law.fields))))
        a = law.coefficients[near].double()
        return weights, (a + away[near] @ _slope(a, away[near], weights)).float()

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return moved training inputs, picked by their weights."""
        weights, a = self._weighted
        return a[torch.multinomial(weights, size, replacement=True, generator=generator)][None]


class AnalogueLaw(SeparateLaw):
    """Training inputs near the sensors, moved onto them (this module's text).

    Of N inputs there are transformed fields (N, n) and coefficients (N, r), both float32; `share`
    of them counts as near.
    """

    name = "analogue"
    posterior = AnaloguePosterior
    layout: ClassVar = {
        "fields": ("Nn", torch.float32),
        "coefficients": ("Nr", torch.float32),
        "share": ("", torch.float64),
    }

    def __init__(self, fields: Tensor, coefficients: Tensor, share: float | Tensor) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"the share must be above 0 and at most 1, found {float(share)}")
        self.fields, self.coefficients = fields, coefficients
        self.share = torch.as_tensor(share, dtype=torch.float64)

    @cached_property
    def by_point(self) -> Tensor:
        """Training inputs (n, N): sensors read a few of their points."""
        return self.fields.T.contiguous()

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> list[AnalogueLaw]:
        """Return the law of the first training inputs, as many as `MAX_KEPT_VALUES` allows."""
        most = max(100, MAX_KEPT_VALUES // sample.fields.shape[1])
        kept = sample.fields[:most], sample.coefficients[:most].float()
        return [cls(*kept, share) for share in NEAR_SHARES]

    def refitted(self, sample: InputSample, seed: int) -> AnalogueLaw:
        """Return the law of other inputs, of which the same share counts as near."""
        return next(one for one in self.fit(sample, seed) if one.share == self.share)


def _nearest(away: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the nearest inputs (k,) by Mahalanobis distance, and Epanechnikov's weights."""
    centred = away - away.mean(0)
    covariance = centred.T @ centred / len(away)
    ridge = SENSOR_RIDGE * covariance.diagonal().mean() + 1e-300
    covariance = covariance + ridge * torch.eye(len(covariance), dtype=covariance.dtype)
    root = torch.linalg.cholesky(covariance)
    distance = torch.linalg.solve_triangular(root, away.T, upper=False).square().sum(0)
    count = min(count, len(away))
    nearest = distance.topk(count, largest=False)
    if count == len(away):
        return nearest.indices, torch.ones(count, dtype=torch.float64)
    far = nearest.values[-1].clamp_min(1e-300)
    return nearest.indices, (1 - nearest.values / (1.02 * far)).clamp_min(1e-6)


def _slope(a: Tensor, away: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted regression slopes (m, r) of coefficients (k, r) on sensors' values."""
    share = (weights / weights.sum())[:, None]
    y = -(away - (share * away).sum(0))
    x = a - (share * a).sum(0)
    covariance = (share * y).T @ y
    ridge = SENSOR_RIDGE * covariance.diagonal().mean() + 1e-12
    covariance = covariance + ridge * torch.eye(len(covariance), dtype=covariance.dtype)
    return torch.linalg.solve(covariance, (share * y).T @ x)
