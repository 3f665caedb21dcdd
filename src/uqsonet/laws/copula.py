"""A Gaussian copula: a latent Gaussian field, and at each point a rising map to the values.

For fields whose single values have any law (gamma, beta, rain with dry points), while a Gaussian
field ties them together: trans-Gaussian kriging (Cressie, Statistics for Spatial Data, 1993).
A reading of a value is one of the latent field, by the inverse map; a reading at an atom says that
the latent value lies beyond a cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.modes import empirical_modes
from uqsonet.laws.base import InputPosterior, SeparateLaw, WholeFields
from uqsonet.laws.censored import censored_factor
from uqsonet.laws.common import MIN_TAIL_NOISE, InputSample, classes_of, farthest_tail
from uqsonet.laws.constrained import NUGGET, Choices, among_choices, between, kriged
from uqsonet.laws.latent import LowRank
from uqsonet.laws.margins import Margins, fit_margins
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.laws.bases import KarhunenLoeveBases

MIN_INPUTS = 50
"""Minimum number of training inputs whose margins are estimated."""

MAX_MODES = 256
"""Maximum number of modes of a latent field without atoms."""

LINEAR = 0.05
"""Noise of a latent value up to which its map counts as linear, in its standard deviations."""

REACH = 6.0
"""Distance of a reading from the values that it may stand for, in standard deviations of noise."""


class CopulaLaw(SeparateLaw):
    """A latent Gaussian field with margins (this module's text).

    Parameters
    ----------
    margins : Margins
        At the points of the grid.
    factor : Tensor, shape (n, q)
        Of the latent field's correlations, with rows of norm one.
    remainder : Tensor, scalar
        Standard deviation of what the latent field's directions leave out.
    """

    name = "copula"
    whole = True
    layout: ClassVar = {
        "knots": ("K", torch.float64),
        "values": ("nK", torch.float64),
        "cuts": ("nc", torch.float64),
        "limits": ("nc", torch.float64),
        "remainder": ("", torch.float64),
        "factor": ("nq", torch.float32),
    }

    def __init__(self, margins: Margins, factor: Tensor, remainder: Tensor) -> None:
        self.margins, self.remainder, self.ends = margins, remainder, margins.limits
        self.latent = LowRank(factor.float().contiguous())

    @classmethod
    def fit(cls, sample: InputSample) -> CopulaLaw | None:
        """Fit margins and the latent covariance; None for classes, and for few inputs."""
        fields = sample.fields
        if len(fields) < MIN_INPUTS or classes_of(fields) is not None:
            return None
        margins = fit_margins(fields)
        scores = margins.latent(fields.double().T)[0].T.float()
        if bool(margins.atoms.any()):
            grid = sample.bases.fields.input.grid
            fitted = censored_factor(grid, scores, margins.cuts)
            return None if fitted is None else cls(margins, *fitted)
        count = min(len(fields) - 1, fields.shape[1], MAX_MODES)
        modes = empirical_modes(RowBlocks.of(scores), count, "modes")
        factor = modes.vectors * modes.std
        remainder = torch.tensor(modes.remainder, dtype=torch.float64)
        return cls(margins, factor / factor.norm(dim=1, keepdim=True).clamp_min(1e-12), remainder)

    def tensors(self) -> dict[str, Tensor]:
        """Return margins and the latent field."""
        return {**vars(self.margins), "remainder": self.remainder, **self.latent.tensors()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> CopulaLaw:
        """Return the law that `tensors` were taken of."""
        margins = Margins(*(tensors[name] for name in ("knots", "values", "cuts", "limits")))
        rises = all(bool((t.diff() > 0).all()) for t in (margins.knots, margins.values))
        pairs = margins.cuts, margins.limits
        if not rises or any(t.shape[1] != 2 or bool((t.diff() <= 0).any()) for t in pairs):
            raise ValueError("knots, values, and pairs of cuts and limits must rise")
        return cls(margins, tensors["factor"], tensors["remainder"])

    def condition_one(self, bases: KarhunenLoeveBases, sensors: Sensors) -> InputPosterior:
        """Return the law of whole fields given values at the sensors."""
        return CopulaPosterior(self, bases, sensors)


class CopulaPosterior(WholeFields):
    """Latent values at the sensors, and fields through them (`uqsonet.laws.constrained`)."""

    def __init__(self, law: CopulaLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        super().__init__(bases)
        self._law = law
        field, margins, places = bases.fields.input, law.margins, sensors.locations[0].double()
        together = torch.cat([margins.values, margins.cuts, margins.limits], 1)
        seen = field.grid.interpolate(together, places).split([len(margins.knots), 2, 2], -1)
        self._margins = Margins(margins.knots, *seen)
        self._rows = law.latent.rows(field.grid, places)
        self._values = field.transform.forward(sensors.values[0].double())
        self._noise = sensors.noise()[0]
        latent, slope = (one[..., 0] for one in self._margins.latent(self._values[..., None]))
        self._readings, self._levels = latent, self._noise / slope
        low, high = self._margins.cuts.unbind(-1)
        atoms, off = self._margins.atoms, REACH * self._noise[..., None]
        limits = self._margins.limits
        beyond = torch.stack([latent <= low, latent >= high], -1) & atoms
        near = ((self._values[..., None] - limits).abs() < off) & atoms
        self._beyond = beyond
        self._uncertain = bool((near.any(-1) | (self._levels > LINEAR)).any())
        # A value beyond an atom is exact: what it is far off by is an error of the reading.
        self.tail = self._tail(limits)

    def _tail(self, limits: Tensor) -> Tensor:
        """Return the probability (1,) of values as far from the law as those of the sensors."""
        values, level = self._values, self._noise.clamp_min(1e-300)
        level = torch.maximum(level, MIN_TAIL_NOISE * (limits[:, 1] - limits[:, 0]) / 10)
        off = torch.maximum(values - limits[:, 1], limits[:, 0] - values).clamp_min(0) / level
        chance, used = torch.ones((), dtype=torch.float64), ~self._beyond.any(-1)
        if bool(used.any()):
            rows, level = self._rows[used], self._levels[used].square() + MIN_TAIL_NOISE**2
            root = torch.linalg.cholesky(rows @ rows.T + level.diag())
            left = self._readings[used, None]
            distance = torch.linalg.solve_triangular(root, left, upper=False).square().sum()
            chance = torch.special.gammaincc(used.sum().double() / 2, distance / 2)
        return (2 * torch.minimum(farthest_tail(off), chance)).clamp_max(1)

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield fields (size, n), float32."""
        law, rows = self._law, self._rows
        variance = max(NUGGET, float(law.remainder) ** 2)
        values, level = self._latent(variance, size, generator)
        xi = torch.randn(size, law.latent.rank, generator=generator, dtype=torch.float64)
        latent = law.latent.fields(kriged(xi, rows, values, level, generator))
        if variance > NUGGET:
            left = torch.randn(latent.shape, generator=generator, dtype=torch.float32)
            latent = (1 - variance) ** 0.5 * latent + variance**0.5 * left
        yield law.margins.field(latent)

    def _latent(
        self, variance: float, size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return latent readings (size, m), and the variance (m,) of each."""
        m, among = self._margins, self._rows @ self._rows.T
        nugget = torch.full((len(among),), variance, dtype=torch.float64)
        if self._uncertain:
            parts = zip(m.values, m.cuts, m.limits, self._values, self._noise, strict=True)
            pieces = [_Pieces.of(m.knots, *one) for one in parts]
            covariance = among + nugget.diag()
            return among_choices([covariance], pieces, size, generator)[0][0], nugget
        values, (below, above) = self._readings, self._beyond.unbind(-1)
        level = torch.where(below | above, 0.0, self._levels.square()) + nugget
        lower, upper = (
            torch.where(at, end, values) for at, end in ((below, -math.inf), (above, math.inf))
        )
        covariance = among + level.diag()
        return between(covariance, lower, upper, size, generator, self._law.name), level


@dataclass(frozen=True)
class _Pieces(Choices):
    """The pieces (P,) of a map that a noisy reading may come from: ``start + slope * latent``."""

    start: Tensor
    slope: Tensor
    value: Tensor
    variance: Tensor

    @classmethod
    def of(
        cls, knots: Tensor, values: Tensor, cuts: Tensor, limits: Tensor, value: Tensor,
        noise: Tensor,
    ) -> _Pieces:  # fmt: skip
        """Return the pieces within reach of a reading, of a map with these values at its knots."""
        noise = noise.clamp_min(NUGGET * (limits[1] - limits[0]))
        slope = values.diff() / knots.diff()
        start = values[:-1] - slope * knots[:-1]
        low, high = (knots[k : len(knots) - 1 + k].clamp(cuts[0], cuts[1]) for k in (0, 1))
        end, flat = torch.full((1,), math.inf, dtype=torch.float64), torch.zeros(2).double()
        low = torch.cat([low, -end, cuts[1:]])
        high = torch.cat([high, cuts[:1], end])
        start, slope = torch.cat([start, limits]), torch.cat([slope, flat])
        ends = [start + (slope * at).nan_to_num(nan=0.0) for at in (low, high)]
        off = torch.maximum(value - ends[1], ends[0] - value).clamp_min(0)
        off = torch.where(low < high, off, math.inf)
        kept = off <= torch.maximum(REACH * noise, off.min())
        ends = low[None, kept], high[None, kept]
        return cls(*ends, start[kept], slope[kept], value, noise.square())

    def given(self, mean: Tensor, std: Tensor, which: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the normal law on each piece, and the log density of the reading there."""
        spread = self.variance + (self.slope * std).square()
        off = self.value - self.start - self.slope * mean
        centre = mean + std.square() * self.slope / spread * off
        density = -off.square() / (2 * spread) - spread.log() / 2
        return centre, std * (self.variance / spread).sqrt(), density[0]
