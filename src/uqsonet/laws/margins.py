"""The link of margins: at each point a rising map from a latent Gaussian field to the values.

For fields whose single values have any law (gamma, beta, rain with dry points), while a Gaussian
field ties them together: trans-Gaussian kriging (Cressie, Statistics for Spatial Data, 1993).
A reading of a value is one of the latent field, by the inverse map; a reading at an atom says that
the latent value lies beyond a cut.

At each point the map (`Maps`) is piecewise linear between knots, at which it takes the quantiles
of the training values (a normal score transform: Deutsch & Journel, GSLIB, 1998). Values that many
inputs share at their lower or upper end (dry points of rain, limits of detection) are atoms: there
the latent value is censored (Tobin, Econometrica 26, 1958).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import Domain
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.principal_components import empirical_modes
from uqsonet.laws.base import MIN_TAIL_NOISE, classes_of, farthest_tail
from uqsonet.laws.correlations import (
    LATENT_LAYOUT,
    LatentField,
    LowRank,
    Spectrum,
    bivariate_normal,
    fit_latent,
    latent_of,
    likeliest,
    unit,
)
from uqsonet.laws.truncated import MIN_LATENT_VARIANCE, Choices, Told

MIN_INPUTS = 50  # training inputs whose margins are estimated
MAX_MODES = 256  # modes of a latent field without atoms
HELD_SHARE = 5  # one of so many inputs shows what modes leave out of new ones
LINEAR = 0.05  # noise of a latent value up to which its map counts as linear, in its std
MIN_READING_NOISE = 1e-6  # least noise of a reading, as a share of the range of the field
REACH = 6.0  # distance of a reading from values that it may stand for, in std of its noise
SPACING = 0.125  # distance between knots, in standard deviations of the latent field
MIN_ATOM = 0.01  # share of the inputs that are equal at an end of their range, to be an atom
TESTED_POINTS = 200  # points whose margins are compared, at most
MAX_POOLED = 1 << 22  # values behind a margin that all points share
SAME_MARGINS = 1.36  # Kolmogorov distance times the root of N, below which margins are the same
END_ROUNDING = 1e-6  # values as near to an end of their range, as a share of it, are at the end
CUT_LEVELS = 32  # cuts are rounded to this number of shares
NO_CUT = 9.0  # a cut where there is none, in standard deviations: no value is beyond it
TABLE = 1001  # angles of a table of correlations


@dataclass(frozen=True)
class Maps:
    """Maps from latent values to values of a field, at some places."""

    knots: Tensor  # (K,)
    quantiles: Tensor  # (..., K), rising values of the field at the knots
    cuts: Tensor  # (..., 2), beyond are censored values; `NO_CUT` where there is no atom
    limits: Tensor  # (..., 2), values of the field beyond the cuts

    def field(self, latent: Tensor) -> Tensor:
        """Return values (S, n) of the field, float32, for latent values (S, n)."""
        knots, values = self.knots.float(), self.quantiles.float()
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
        values = self.quantiles.contiguous()
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


class Margins:
    """Maps at the points of the domain, and the latent field; of it the remainder is left out."""

    layout: ClassVar = {
        "knots": ("K", torch.float64),
        "quantiles": ("nK", torch.float64),
        "cuts": ("nc", torch.float64),
        "limits": ("nc", torch.float64),
        "remainder": ("", torch.float64),
        **LATENT_LAYOUT,
    }

    def __init__(self, maps: Maps, latent: LatentField, remainder: Tensor) -> None:
        self.maps, self.remainder, self.ends = maps, remainder, maps.limits
        self.latent = [latent]
        self.variance = max(MIN_LATENT_VARIANCE, float(remainder) ** 2)

    @classmethod
    def fit(cls, domain: Domain, fields: Tensor) -> Margins | None:
        """Fit maps and the latent covariance to inputs (N, n); None for classes, and for few."""
        if len(fields) < MIN_INPUTS or classes_of(fields) is not None:
            return None
        maps = fit_maps(fields)
        scores = maps.latent(fields.double().T)[0].T.float()
        latent = latent_of_scores(domain, scores, maps.cuts)
        if isinstance(latent, Spectrum):
            return cls(maps, latent, latent.finer.sqrt())
        if latent is not None:
            return cls(maps, latent, torch.zeros((), dtype=torch.float64))
        count = min(len(fields) - 1, fields.shape[1], MAX_MODES)
        modes = empirical_modes(RowBlocks.of(scores), count, "modes")
        remainder = _left_out(scores, count).clamp_min(modes.remainder)
        factor = unit(modes.vectors * modes.std).float().contiguous()
        return cls(maps, LowRank(factor), remainder)

    def told(self, domain: Domain, places: Tensor, values: Tensor, noise: Tensor) -> Told:
        """Return what readings (m,) with this noise say of the latent field at places (m, d)."""
        together = torch.cat([self.maps.quantiles, self.maps.cuts, self.maps.limits], 1)
        knots = self.maps.knots
        at = Maps(knots, *domain.interpolate(together, places).split([len(knots), 2, 2], -1))
        readings, slope = (one[..., 0] for one in at.latent(values[..., None]))
        levels, limits = noise / slope, at.limits
        beyond = torch.stack([readings <= at.cuts[:, 0], readings >= at.cuts[:, 1]], -1) & at.atoms
        near = ((values[..., None] - limits).abs() < REACH * noise[..., None]) & at.atoms
        nugget = torch.full_like(values, self.variance)
        rows = (1 - self.variance) ** 0.5 * self.latent[0].rows(domain, places)
        # A value beyond an atom is exact: what it is far off by is an error of the reading.
        tail = self._tail(rows, readings, levels, ~beyond.any(-1), values, noise, limits)
        if bool((near.any(-1) | (levels > LINEAR)).any()):
            parts = zip(at.quantiles, at.cuts, limits, values, noise, strict=True)
            pieces = [_pieces(knots, *one) for one in parts]
            return Told(readings[None], readings[None], nugget, pieces, tail)
        lower = torch.where(beyond[:, 0], -math.inf, readings)
        upper = torch.where(beyond[:, 1], math.inf, readings)
        level = torch.where(beyond.any(-1), 0.0, levels.square()) + nugget
        return Told(lower[None], upper[None], level, None, tail)

    def _tail(
        self, rows: Tensor, readings: Tensor, levels: Tensor, used: Tensor, values: Tensor,
        noise: Tensor, limits: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return the probability (1,) of values as far from the law as those of the sensors."""
        level = noise.clamp_min(1e-300)
        level = torch.maximum(level, MIN_TAIL_NOISE * (limits[:, 1] - limits[:, 0]) / 10)
        off = torch.maximum(values - limits[:, 1], limits[:, 0] - values).clamp_min(0) / level
        chance = torch.ones((), dtype=torch.float64)
        if bool(used.any()):
            level = self.variance + levels[used].square() + MIN_TAIL_NOISE**2
            root = torch.linalg.cholesky(rows[used] @ rows[used].T + level.diag())
            left = readings[used, None]
            distance = torch.linalg.solve_triangular(root, left, upper=False).square().sum()
            chance = torch.special.gammaincc(used.sum().double() / 2, distance / 2)
        return (2 * torch.minimum(farthest_tail(off), chance)).clamp_max(1)

    def fields(self, latent: list[Tensor]) -> Tensor:
        """Return inputs (S, n), float32, of the latent field (S, n)."""
        return self.maps.field(latent[0])

    def tensors(self) -> dict[str, Tensor]:
        """Return maps and the latent field."""
        return {**vars(self.maps), "remainder": self.remainder, **self.latent[0].tensors()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], domain: Domain) -> Margins:
        """Return the link that `tensors` were taken of."""
        maps = Maps(*(tensors[name] for name in ("knots", "quantiles", "cuts", "limits")))
        rises = all(bool((t.diff() > 0).all()) for t in (maps.knots, maps.quantiles))
        pairs = maps.cuts, maps.limits
        if not rises or any(t.shape[1] != 2 or bool((t.diff() <= 0).any()) for t in pairs):
            raise ValueError("knots, quantiles, and pairs of cuts and limits must rise")
        return cls(maps, latent_of(domain, tensors, ""), tensors["remainder"])


def _left_out(scores: Tensor, count: int) -> Tensor:
    """Return what modes of most scores (N, n) leave of the others, root mean square."""
    held, rest = scores.tensor_split([len(scores) // HELD_SHARE])
    modes = empirical_modes(RowBlocks.of(rest), min(count, len(rest) - 1), "modes")
    left = held.double() - modes.mean
    left -= left @ modes.vectors @ modes.vectors.T
    return left.square().mean().sqrt()


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


def fit_maps(fields: Tensor) -> Maps:
    """Return the maps of fields (N, n): of all points together where they agree.

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


def _with_ends(inner: Tensor, values: Tensor, ends: Tensor, shares: Tensor, positive: bool) -> Maps:
    """Return maps from quantiles (n, K), continued to `NO_CUT` or atoms of these shares."""
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
    return Maps(knots, values.contiguous(), cuts.contiguous(), limits.contiguous())


def _up_to_atom(knots: Tensor, values: Tensor, floor: Tensor, cut: Tensor, atom: Tensor) -> Tensor:
    """Return values (n, K) whose map meets the floor where latent values are cut from below."""
    first = torch.bucketize(cut + SPACING / 2, knots).clamp_max(len(knots) - 2)[:, None]
    start = values.gather(1, first)
    slope = (start - floor[:, None]) / (knots[first] - cut[:, None])
    line = floor[:, None] + slope.clamp_min(1e-9) * (knots - cut[:, None])
    return torch.where(atom[:, None] & (torch.arange(len(knots)) < first), line, values)


class ClippedNormals:
    """Correlations of standard normals, of those of their values clipped at cuts.

    The covariance of two clipped values rises with the correlation r of the normals at a rate that
    is the probability of both between their cuts (Price, IRE Trans. Inf. Theory 4, 1958). Cuts
    (n, 2) are rounded, so that a few tables of this covariance do for all points.
    """

    def __init__(self, cuts: Tensor) -> None:
        shares = (CUT_LEVELS * torch.special.ndtr(cuts)).round() / CUT_LEVELS
        levels, self.level = shares.unique(dim=0, return_inverse=True)
        self._ends = torch.special.ndtri(levels).clamp(-NO_CUT, NO_CUT)
        self._angle = torch.linspace(-math.pi / 2, math.pi / 2, TABLE, dtype=torch.float64)
        self._tables: dict[tuple[int, int], Tensor] = {}

    def correlation(self, seen: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return correlations for those of clipped values at points of these levels."""
        found, (first, second) = torch.empty_like(seen), torch.broadcast_tensors(first, second)
        pairs = first * len(self._ends) + second
        for pair in pairs.unique().tolist():
            here = pairs == pair
            of_clipped = self._table(*divmod(pair, len(self._ends)))
            normals = np.interp(seen[here].numpy(), of_clipped.numpy(), self._angle.sin().numpy())
            found[here] = torch.from_numpy(normals)
        return found

    def _table(self, i: int, j: int) -> Tensor:
        """Return correlations of clipped values at two levels by the angle: the sine is r."""
        if (i, j) not in self._tables:
            variances = [self._covariances(k, k)[-1] for k in (i, j)]
            self._tables[i, j] = self._covariances(i, j) / (variances[0] * variances[1]).sqrt()
        return self._tables[i, j]

    def _covariances(self, i: int, j: int) -> Tensor:
        r, rate = self._angle.sin(), torch.zeros_like(self._angle)
        signs = -1.0, 1.0  # of the lower and the upper cut
        for first, h in zip(signs, self._ends[i], strict=True):
            for second, k in zip(signs, self._ends[j], strict=True):
                rate += first * second * bivariate_normal(h, k, r)
        rate *= self._angle.cos()
        steps = (rate[1:] + rate[:-1]) / 2 * (self._angle[1] - self._angle[0])
        total = torch.cat([torch.zeros(1, dtype=torch.float64), steps.cumsum(0)])
        return total - total[TABLE // 2]
