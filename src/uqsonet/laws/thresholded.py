"""Truncated Gaussian simulation: a latent Gaussian field cut into classes by thresholds.

For inputs that take few values (rock or sand, one phase or another). At each point the class is
given by the thresholds between which a latent Gaussian field of variance one lies (Matheron et al.,
SPE 16753, 1987). Thresholds follow from how often each class occurs. Correlations of the latent
field follow from how often two points are on the same side: tetrachoric correlations (Pearson
1900), for two classes of equal share ``rho = sin(pi/2 tau)``. Given the classes at the sensors the
latent values there are a Gaussian truncated to a box; given those, the rest is kriging.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.seeds import restarted
from uqsonet.laws.base import InputLaw, InputPosterior
from uqsonet.laws.common import MIN_TAIL_NOISE, InputSample, classes_of, farthest_tail
from uqsonet.laws.latent import LatentField, LowRank, Spectrum, fit_latent
from uqsonet.laws.truncated import resampled, truncated_normal, truncated_samples
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.laws.bases import KarhunenLoeveBases

MOVES = 3
"""Number of Hamiltonian trajectories of the latent values at the sensors."""

NUGGET = 1e-6
"""Variance added to latent values at sensors."""

DOUBT = 1e-4
"""A sensor's class is uncertain if another class has at least this probability."""

SWEEPS = 10
"""Number of sweeps of Gibbs sampling over uncertain sensors."""

MIN_WIDTH = 0.01
"""Minimum width of a class between two others, in standard deviations of the latent field: a sensor
may read it where no training input had it."""

NODES = 24
"""Number of nodes of the quadrature of the bivariate normal distribution."""


def bivariate_normal(h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
    """Return P(X <= h, Y <= k) of standard normals with correlation rho (Drezner & Wesolowsky)."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    top = torch.asin(rho)
    total = torch.zeros_like(rho)
    for x, w in zip(nodes, weights, strict=True):
        theta = top * ((x + 1) / 2)
        sine, cosine = theta.sin(), theta.cos().square().clamp_min(1e-300)
        total += w * torch.exp(-(h * h + k * k - 2 * h * k * sine) / (2 * cosine))
    ndtr = torch.special.ndtr
    return ndtr(h) * ndtr(k) + total * top / (4 * math.pi)


def tetrachoric(both: Tensor, h: Tensor, k: Tensor) -> Tensor:
    """Return the correlation for which P(X <= h, Y <= k) is `both`, by Newton's method."""
    ndtr = torch.special.ndtr
    p, q = ndtr(h), ndtr(k)
    spread = (p * (1 - p) * q * (1 - q)).sqrt().clamp_min(1e-12)
    rho = torch.sin(math.pi / 2 * ((both - p * q) / spread).clamp(-0.9999, 0.9999))
    if not bool(h.any()) and not bool(k.any()):
        return torch.sin(2 * math.pi * (both - 0.25))
    for _ in range(12):
        off = bivariate_normal(h, k, rho) - both
        left = 1 - rho.square()
        density = torch.exp(-(h * h + k * k - 2 * rho * h * k) / (2 * left))
        step = off * 2 * math.pi * left.sqrt() / density.clamp_min(1e-12)
        rho = (rho - step.clamp(-0.2, 0.2)).clamp(-0.9999, 0.9999)
    return rho


class ThresholdedLaw(InputLaw):
    """A latent Gaussian field cut into classes (this module's text).

    Parameters
    ----------
    values : Tensor, shape (K,)
        Values of the classes, ascending.
    thresholds : Tensor, shape (n, K - 1)
        Thresholds of the latent field at each point, ascending.
    latent : LatentField
    """

    name = "thresholded"
    separate = True
    whole = True
    layout: ClassVar = {
        "values": ("K", torch.float64),
        "thresholds": ("nT", torch.float64),
        "factor": ("nq", torch.float32),
        "spectrum": ("s", torch.float64),
    }

    def __init__(self, values: Tensor, thresholds: Tensor, latent: LatentField) -> None:
        self.values, self.thresholds, self.latent = values, thresholds, latent

    @classmethod
    def fit(cls, sample: InputSample) -> ThresholdedLaw | None:
        """Estimate thresholds and the latent covariance from training inputs.

        Returns
        -------
        ThresholdedLaw or None
            None where inputs take more than a few values, or some point has but one.
        """
        values = classes_of(sample.fields)
        if values is None:
            return None
        edges = ((values[1:] + values[:-1]) / 2).float()
        size = len(sample.fields)
        below = torch.stack([(sample.fields <= e).float().mean(0) for e in edges], 1).double()
        if not bool(((below > 0) & (below < 1)).any(1).all()):
            return None
        pooled = below.mean(0)
        # Shares that differ between points by no more than chance are one share.
        chance = pooled * (1 - pooled) / size
        if bool(((below - pooled).square().mean(0) < 2 * chance).all()):
            below = pooled.expand_as(below)
        least = 0.5 / size
        thresholds = torch.special.ndtri(below.clamp(least, 1 - least)).contiguous()
        for k in range(1, len(edges)):
            thresholds[:, k] = thresholds[:, k].maximum(thresholds[:, k - 1] + MIN_WIDTH)
        # The edge whose share is nearest to one half; two fields side by side each have their own.
        middle = (below - 0.5).abs().argmin(1)
        side = (sample.fields <= edges[middle]).float()
        cut = thresholds.gather(1, middle[:, None])[:, 0]
        if bool((cut == cut[0]).all()) and abs(float(cut[0])) < 3 / math.sqrt(size):
            cut = torch.zeros_like(cut)
        grid = sample.bases.fields.input.grid
        return cls(values, thresholds, fit_latent(grid, side, cut, tetrachoric))

    @classmethod
    def layout_of(cls, names: Collection[str]) -> Mapping[str, tuple[str, torch.dtype]]:
        """Return the layout with the latent field's own tensor: a spectrum, or else a factor."""
        other = "factor" if "spectrum" in names else "spectrum"
        return {name: axes for name, axes in cls.layout.items() if name != other}

    def tensors(self) -> dict[str, Tensor]:
        """Return values, thresholds and the latent field."""
        return {"values": self.values, "thresholds": self.thresholds, **self.latent.tensors()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> ThresholdedLaw:
        """Return the law that `tensors` were taken of."""
        values, thresholds = tensors["values"], tensors["thresholds"]
        if thresholds.shape[1] != len(values) - 1:
            raise ValueError(f"{len(values)} values have {thresholds.shape[1]} thresholds")
        if not bool((values.diff() > 0).all() & (thresholds.diff() > 0).all()):
            raise ValueError("values and thresholds must rise")
        if "factor" in tensors:
            return cls(values, thresholds, LowRank(tensors["factor"]))
        return cls(values, thresholds, Spectrum.of(bases.fields.input.grid, tensors["spectrum"]))

    def condition(self, bases: KarhunenLoeveBases, sensors: Sensors) -> InputPosterior:
        """Return the law of whole fields given the classes at the sensors."""
        return ThresholdedPosterior(self, bases, sensors)


class ThresholdedPosterior(InputPosterior):
    """Latent values at the sensors by exact Hamiltonian Monte Carlo, the rest by kriging."""

    def __init__(self, law: ThresholdedLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        self._law, self._bases, o = law, bases, sensors
        grid, forward = bases.fields.input.grid, bases.fields.input.transform.forward
        locations = o.locations.double()
        rows, cuts = law.latent.rows(grid, locations), grid.interpolate(law.thresholds, locations)
        self._rows, self._mask = rows, o.mask
        edges = (law.values[1:] + law.values[:-1]) / 2
        values = forward(o.values.double())
        which = torch.bucketize(values, edges)
        # A value between the classes is wrong or noisy; without noise the gap is its scale.
        gap = (law.values[1:] - law.values[:-1]).amin()
        level = o.noise().clamp_min(MIN_TAIL_NOISE * float(gap))
        self.tail = farthest_tail((values - law.values[which]).abs() / level, o.mask)
        ends = torch.full_like(cuts[..., :1], torch.inf)
        walls = self._walls = torch.cat([-ends, cuts, ends], -1)
        # Log likelihood of each class given each reading, (B, m, K); constant on padding.
        z = (values[..., None] - law.values) / level[..., None]
        self._likelihood = torch.where(o.mask[..., None], -z.square() / 2, 0.0).log_softmax(-1)
        second = self._likelihood.exp().topk(2).values[..., 1]
        self._uncertain = (second * o.mask > DOUBT).any(-1)
        lower = walls.gather(-1, which[..., None])[..., 0]
        upper = walls.gather(-1, which[..., None] + 1)[..., 0]
        self._lower, self._upper = lower, upper

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients of thresholded fields."""
        every = self.fields(self._bases, size, generator)
        return torch.stack([self._bases.coefficients_of(fields) for fields in every])

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield thresholded fields (size, n) of each set, float32."""
        normal = partial(torch.randn, generator=generator, dtype=torch.float64)
        for s in restarted(generator, range(len(self._rows))):  # fields on fine grids are large
            rows = self._rows[s, self._mask[s]]
            covariance = rows @ rows.T + NUGGET * torch.eye(len(rows), dtype=rows.dtype)
            latent = self._latent(s, covariance, size, generator) if len(rows) else None
            xi = normal(size, rows.shape[1])
            if latent is not None:
                off = latent - xi @ rows.T - normal(size, len(rows)) * NUGGET**0.5
                xi = xi + torch.linalg.solve(covariance, off.T).T @ rows
            yield self._classes(self._law.latent.fields(xi))

    def _latent(self, s: int, covariance: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Return latent values (size, m) at the sensors of a set."""
        used = self._mask[s]
        if bool(self._uncertain[s]):
            law = self._walls[s, used], self._likelihood[s, used]
            return _uncertain_values(covariance, *law, size, generator)
        lower, upper = self._lower[s, used], self._upper[s, used]
        law = torch.zeros_like(lower), covariance, lower, upper
        try:
            return truncated_samples(*law, size, generator, MOVES)
        except ObservationError:
            raise ObservationError(
                "the classes at these sensors contradict one another under the model's law of "
                "the input ('thresholded'): no latent field is known that has them"
            ) from None

    def _classes(self, latent: Tensor) -> Tensor:
        """Return the values of the classes of latent fields (size, n), float32."""
        values = self._law.values.float()
        fields = torch.full_like(latent, float(values[0]))
        for cut, low, high in zip(
            self._law.thresholds.T.float(), values[:-1], values[1:], strict=True
        ):
            fields += (latent > cut) * (high - low)
        return fields


def _uncertain_values(
    covariance: Tensor, walls: Tensor, likelihood: Tensor, size: int, generator: torch.Generator
) -> Tensor:
    """Return latent values (size, m) at sensors some of whose classes are uncertain.

    Particles draw class and value of one sensor after another, given those before, and are
    resampled; Gibbs sampling then moves them. Both use the likelihood of each class.

    Parameters
    ----------
    covariance : Tensor, shape (m, m)
    walls : Tensor, shape (m, K + 1)
        Ends of the classes, from minus to plus infinity.
    likelihood : Tensor, shape (m, K)
        Log likelihood of each class.
    """
    m = len(covariance)
    root, precision = torch.linalg.cholesky(covariance), torch.linalg.inv(covariance)
    xi = torch.zeros(size, m, dtype=torch.float64)

    def drawn(i: int, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return standardised values of a sensor, and the log probability of its reading."""
        uniform = torch.rand(2, size, generator=generator, dtype=torch.float64)
        ends = (walls[i] - mean[:, None]) / std
        share = torch.special.log_ndtr(ends)
        share = share[:, 1:] + torch.log1p(-torch.exp(share[:, :-1] - share[:, 1:]).clamp_max(1))
        share = share.nan_to_num(nan=-torch.inf) + likelihood[i]
        total = share.logsumexp(1)
        below = (share - total[:, None]).exp().cumsum(1)
        which = (below < uniform[0][:, None]).sum(1).clamp_max(share.shape[1] - 1)
        low, high = (ends.gather(1, (which + k)[:, None])[:, 0] for k in (0, 1))
        return truncated_normal(low, high, uniform[1])[0], total

    for i in range(m):
        xi[:, i], weight = drawn(i, xi[:, :i] @ root[i, :i], root[i, i])
        xi = xi[resampled(weight[None], generator)[0]]
    values = xi @ root.T
    for _ in range(SWEEPS):
        for i in range(m):
            std = precision[i, i].rsqrt()
            mean = values[:, i] - (values @ precision[i]) / precision[i, i]
            values[:, i] = mean + std * drawn(i, mean, std)[0]
    return values
