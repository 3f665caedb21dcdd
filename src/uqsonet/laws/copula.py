"""A Gaussian copula: a latent Gaussian field, and at each point a rising map to the values.

For fields whose single values have any law (gamma, beta, rain with dry points), while a Gaussian
field ties them together: trans-Gaussian kriging (Cressie, Statistics for Spatial Data, 1993).
A reading of a value is one of the latent field, by the inverse map; a reading at an atom says that
the latent value lies beyond a cut.

At each point the map (`Margins`) is piecewise linear between knots, at which it takes the quantiles
of the training values (a normal score transform: Deutsch & Journel, GSLIB, 1998). Values that many
inputs share at their lower or upper end (dry points of rain, limits of detection) are atoms: there
the latent value is censored (Tobin, Econometrica 26, 1958).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import Domain
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.modes import empirical_modes
from uqsonet.laws.base import MIN_TAIL_NOISE, SeparateLaw, WholeFields, classes_of, farthest_tail
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases
from uqsonet.laws.censored import NO_CUT, ClippedNormals
from uqsonet.laws.latent import (
    LATENT_LAYOUT,
    LatentField,
    LowRank,
    Spectrum,
    fit_latent,
    latent_of,
    likeliest,
    unit,
)
from uqsonet.laws.truncated import MIN_LATENT_VARIANCE, Choices, among_choices, between, kriged
from uqsonet.sensors.sensors import Sensors

MIN_INPUTS = 50  # training inputs whose margins are estimated
MAX_MODES = 256  # modes of a latent field without atoms
LINEAR = 0.05  # noise of a latent value up to which its map counts as linear, in its std
MIN_READING_NOISE = 1e-6  # least noise of a reading, as a share of the range of the field
REACH = 6.0  # distance of a reading from values that it may stand for, in std of its noise
SPACING = 0.125  # distance between knots, in standard deviations of the latent field
SAME_POINT = 1e-6  # distance of a sensor that stands at a point, as a share of the domain
MIN_ATOM = 0.01  # share of the inputs that are equal at an end of their range, to be an atom
TESTED_POINTS = 200  # points whose margins are compared, at most
MAX_POOLED = 1 << 22  # values behind a margin that all points share
SAME_MARGINS = 1.36  # Kolmogorov distance times the root of N, below which margins are the same
END_ROUNDING = 1e-6  # values as near to an end of their range, as a share of it, are at the end


@dataclass(frozen=True)
class Margins:
    """Maps from latent values to values of a field, at some places."""

    knots: Tensor  # (K,)
    values: Tensor  # (..., K), rising values of the field at the knots
    cuts: Tensor  # (..., 2), beyond are censored values; `NO_CUT` where there is no atom
    limits: Tensor  # (..., 2), values of the field beyond the cuts

    def field(self, latent: Tensor) -> Tensor:
        """Return values (S, n) of the field, float32, for latent values (S, n)."""
        knots, values = self.knots.float(), self.values.float()
        low, high = self.cuts.float().unbind(-1)
        piece = torch.bucketize(latent.contiguous(), knots[1:-1])
        rows = len(knots) * torch.arange(latent.shape[1])
        start, end = (values.flatten()[rows + piece + k] for k in (0, 1))
        share = (latent - knots[piece]) / knots.diff()[piece]
        x = torch.lerp(start, end, share)
        x = torch.where(latent <= low, self.limits[:, 0].float(), x)
        x = torch.where(latent >= high, self.limits[:, 1].float(), x)
        return torch.clamp(x, *self.limits.float().unbind(-1))

    def latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return latent values of values x (..., N), censored at the cuts, and the map's slopes."""
        values = self.values.contiguous()
        x = x.contiguous()
        piece = (torch.searchsorted(values, x) - 1).clamp(0, len(self.knots) - 2)
        start, end = (values.gather(-1, piece + k) for k in (0, 1))
        slope = (end - start) / self.knots.diff()[piece]
        latent = self.knots[piece] + (x - start) / slope
        low, high = self.cuts[..., :1], self.cuts[..., 1:]
        rounding = END_ROUNDING * self.limits.diff()
        bottom, top = self.limits[..., :1] + rounding, self.limits[..., 1:] - rounding
        latent = torch.where(x <= bottom, low, torch.where(x >= top, high, latent))
        return torch.maximum(torch.minimum(latent, high), low), slope

    @property
    def atoms(self) -> Tensor:
        """Whether there is an atom at the lower and the upper end, (..., 2)."""
        return self.cuts.abs() < NO_CUT


class CopulaPosterior(WholeFields):
    """Latent values at the sensors, and fields through them (`uqsonet.laws.truncated`)."""

    def __init__(self, law: CopulaLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        super().__init__(bases)
        self._law = law
        field, margins, places = bases.fields.input, law.margins, sensors.locations[0].double()
        together = torch.cat([margins.values, margins.cuts, margins.limits], 1)
        seen = field.grid.interpolate(together, places).split([len(margins.knots), 2, 2], -1)
        self._margins = Margins(margins.knots, *seen)
        self._variance = max(MIN_LATENT_VARIANCE, float(law.remainder) ** 2)
        self._rows = (1 - self._variance) ** 0.5 * law.latent.rows(field.grid, places)
        self._places = places
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
            rows = self._rows[used]
            level = self._variance + self._levels[used].square() + MIN_TAIL_NOISE**2
            root = torch.linalg.cholesky(rows @ rows.T + level.diag())
            left = self._readings[used, None]
            distance = torch.linalg.solve_triangular(root, left, upper=False).square().sum()
            chance = torch.special.gammaincc(used.sum().double() / 2, distance / 2)
        return (2 * torch.minimum(farthest_tail(off), chance)).clamp_max(1)

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield fields (size, n), float32."""
        law, rows, variance = self._law, self._rows, self._variance
        values, level = self._latent(size, generator)
        xi = torch.randn(size, law.latent.rank, generator=generator, dtype=torch.float64)
        xi = kriged(xi, rows, values, level, generator)
        latent = law.latent.fields(xi)
        if variance > MIN_LATENT_VARIANCE:
            left = torch.randn(latent.shape, generator=generator, dtype=torch.float32)
            # At a sensor it is what the reading leaves of the latent field, less noise.
            points, share = bases.fields.input.grid.points(), variance / level
            distance, nearest = torch.cdist(self._places, points).min(1)
            here = distance < SAME_POINT * (points.amax(0) - points.amin(0)).max()
            off = share * (values - xi @ rows.T) / variance**0.5
            off = off + (1 - share).clamp_min(0).sqrt() * left[:, nearest]
            left[:, nearest[here]] = off[:, here].float()
            latent = (1 - variance) ** 0.5 * latent + variance**0.5 * left
        yield law.margins.field(latent)

    def _latent(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return latent readings (size, m), and the variance (m,) of each."""
        m, among = self._margins, self._rows @ self._rows.T
        nugget = torch.full((len(among),), self._variance, dtype=torch.float64)
        if self._uncertain:
            parts = zip(m.values, m.cuts, m.limits, self._values, self._noise, strict=True)
            pieces = [_pieces(m.knots, *one) for one in parts]
            covariance = among + nugget.diag()
            return among_choices([covariance], pieces, size, generator)[0], nugget
        values, (below, above) = self._readings, self._beyond.unbind(-1)
        level = torch.where(below | above, 0.0, self._levels.square()) + nugget
        lower, upper = (
            torch.where(at, end, values) for at, end in ((below, -math.inf), (above, math.inf))
        )
        covariance = among + level.diag()
        return between(covariance, lower, upper, size, generator, self._law.name), level


class CopulaLaw(SeparateLaw):
    """A latent Gaussian field with margins at the points of the grid (this module's text).

    The remainder is the standard deviation of what the latent field leaves out.
    """

    name = "copula"
    posterior = CopulaPosterior
    misfit = "they are too few, or take only a few values"
    whole = True
    layout: ClassVar = {
        "knots": ("K", torch.float64),
        "values": ("nK", torch.float64),
        "cuts": ("nc", torch.float64),
        "limits": ("nc", torch.float64),
        "remainder": ("", torch.float64),
        **LATENT_LAYOUT,
    }

    def __init__(self, margins: Margins, latent: LatentField, remainder: Tensor) -> None:
        self.margins, self.remainder, self.ends = margins, remainder, margins.limits
        self.latent = latent

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> list[CopulaLaw]:
        """Fit margins and the latent covariance; nothing for classes, and for few inputs."""
        fields = sample.fields
        if len(fields) < MIN_INPUTS or classes_of(fields) is not None:
            return []
        margins = fit_margins(fields)
        scores = margins.latent(fields.double().T)[0].T.float()
        latent = latent_of_scores(sample.bases.fields.input.grid, scores, margins.cuts)
        if isinstance(latent, Spectrum):
            return [cls(margins, latent, latent.finer.sqrt())]
        if latent is not None:
            return [cls(margins, latent, torch.zeros((), dtype=torch.float64))]
        count = min(len(fields) - 1, fields.shape[1], MAX_MODES)
        modes = empirical_modes(RowBlocks.of(scores), count, "modes")
        factor = modes.vectors * modes.std
        remainder = torch.tensor(modes.remainder, dtype=torch.float64)
        return [cls(margins, LowRank(unit(factor).float().contiguous()), remainder)]

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
        latent = latent_of(bases.fields.input.grid, tensors, "")
        return cls(margins, latent, tensors["remainder"])


def latent_of_scores(domain: Domain, scores: Tensor, cuts: Tensor) -> LatentField | None:
    """Return the field that scores (N, n) of variance one are, censored at the cuts (n, 2).

    A spectrum where pairs of held-out scores say that the field has one, else for censored scores a
    factor of the correlations of pairs. None where these ask for the modes of the scores.
    """
    censored = bool((cuts.abs() < NO_CUT).any())
    if not censored and not isinstance(domain, Grid):
        return None
    clipped = ClippedNormals(cuts)
    field = fit_latent(domain, scores, clipped.level, clipped.correlation, standard=True)
    if censored:
        return field
    return likeliest(field, scores) if isinstance(field, Spectrum) else None


def _pieces(
    knots: Tensor, values: Tensor, cuts: Tensor, limits: Tensor, value: Tensor, noise: Tensor
) -> Choices:
    """Return the pieces ``start + slope * latent`` of a map that a noisy reading may come from."""
    noise = noise.clamp_min(MIN_READING_NOISE * (limits[1] - limits[0]))
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
    start, slope, variance = start[kept], slope[kept], noise.square()

    def given(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the normal law on each piece, and the log density of the reading there."""
        spread = variance + (slope * std).square()
        off = value - start - slope * mean
        centre = mean + std.square() * slope / spread * off
        density = -off.square() / (2 * spread) - spread.log() / 2
        return centre, std * (variance / spread).sqrt(), density[0]

    return Choices(low[None, kept], high[None, kept], given)


def fit_margins(fields: Tensor) -> Margins:
    """Return the margins of fields (N, n): of all points together where they agree.

    Else those of the values less the mean, over the standard deviation, of their point; and where
    these do not agree either, those of each point.
    """
    size, n = fields.shape
    ends = torch.stack([fields.amin(0), fields.amax(0)], 1)
    shares = torch.stack([(fields == ends[:, k]).double().mean(0) for k in (0, 1)], 1)
    pooled = torch.stack([(fields == end).double().mean() for end in (ends.min(), ends.max())])
    highest = -float(torch.special.ndtri(torch.tensor(3 / (size + 6), dtype=torch.float64)))
    count = math.ceil(highest / SPACING)
    inner = SPACING * torch.arange(-count, count + 1, dtype=torch.float64)
    levels = torch.special.ndtr(inner)
    some = torch.linspace(0, n - 1, min(n, TESTED_POINTS)).long()
    centre, spread = fields.double().mean(0), fields.double().std(0).clamp_min(1e-12)
    ways = ((torch.zeros_like(centre), torch.ones_like(spread)), (centre, spread))
    for number, (at, by) in enumerate(ways):
        z = ((fields - at) / by).float()
        step = max(1, z.numel() // MAX_POOLED)
        marks = _quantiles(z.flatten()[::step, None], levels)[0]
        below = torch.stack([(z[:, some] <= mark).double().mean(0) for mark in marks.float()])
        below_all = below.mean(1, keepdim=True)
        if float((below - below_all).abs().amax(0).mean()) * math.sqrt(size) < SAME_MARGINS:
            values = at[:, None] + by[:, None] * marks
            if number == 0:
                whole = torch.stack([ends[:, 0].min(), ends[:, 1].max()])
                ends, shares = whole.expand(n, 2), pooled.expand(n, 2)
            break
    else:
        values = _quantiles(fields, levels)
    return _with_ends(inner, values, ends.double(), shares, bool((fields >= 0).all()))


def _quantiles(values: Tensor, levels: Tensor) -> Tensor:
    """Return quantiles (n, K) of columns (N, n), of which value k is that of (k - 1/2) / N."""
    found = np.quantile(values.double().numpy(), levels.numpy(), axis=0, method="hazen")
    return torch.from_numpy(found).T.contiguous()


def _with_ends(
    inner: Tensor, values: Tensor, ends: Tensor, shares: Tensor, positive: bool
) -> Margins:
    """Return margins from quantiles (n, K), continued to `NO_CUT` or atoms of these shares."""
    far = torch.tensor([NO_CUT], dtype=torch.float64)
    knots = torch.cat([-far, inner, far])
    before, after = inner[0] + NO_CUT, NO_CUT - inner[-1]
    slopes = (values[:, [2, -1]] - values[:, [0, -3]]) / (2 * SPACING)
    values = torch.cat(
        [values[:, :1] - before * slopes[:, :1], values, values[:, -1:] + after * slopes[:, 1:]], 1
    )
    atom = shares > MIN_ATOM
    far = far.expand(len(values))
    cuts = torch.where(atom, torch.special.ndtri(shares), -NO_CUT).clamp(-NO_CUT, NO_CUT)
    low = _up_to_atom(knots, values, ends[:, 0], cuts[:, 0], atom[:, 0])
    high = _up_to_atom(knots, -low.flip(1), -ends[:, 1], cuts[:, 1], atom[:, 1])
    values = -high.flip(1)
    # A rise of rounding where quantiles are equal: the map has an inverse.
    rise = 1e-9 * (values[:, -1:] - values[:, :1]).clamp_min(1e-30)
    values = values.cummax(1).values + rise * torch.arange(len(knots))
    limits = torch.where(atom, ends, values[:, [0, -1]])
    if positive:
        limits = limits.clamp_min(0)
    cuts = torch.stack([cuts[:, 0], -cuts[:, 1]], 1)
    return Margins(knots, values.contiguous(), cuts.contiguous(), limits.contiguous())


def _up_to_atom(knots: Tensor, values: Tensor, floor: Tensor, cut: Tensor, atom: Tensor) -> Tensor:
    """Return values (n, K) whose map meets the floor where latent values are cut from below."""
    first = torch.bucketize(cut + SPACING / 2, knots).clamp_max(len(knots) - 2)[:, None]
    start = values.gather(1, first)
    slope = (start - floor[:, None]) / (knots[first] - cut[:, None])
    line = floor[:, None] + slope.clamp_min(1e-9) * (knots - cut[:, None])
    return torch.where(atom[:, None] & (torch.arange(len(knots)) < first), line, values)
