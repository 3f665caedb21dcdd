"""The law of single values: a rising map from a latent standard normal to a field's values.

At each point the map is piecewise linear between knots, at which it takes the quantiles of the
training values (a normal score transform: Deutsch & Journel, GSLIB, 1998). Values that many inputs
share at their lower or upper end (dry points of rain, limits of detection) are atoms: there the
latent value is censored (Tobin, Econometrica 26, 1958), so that it is known to lie beyond a cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

FAR = 9.0
"""Latent values beyond this, in standard deviations, do not occur."""

SPACING = 0.125
"""Distance between knots, in standard deviations of the latent field."""

MIN_ATOM = 0.01
"""Minimum share of the inputs that are equal at an end of their range for that to be an atom."""

TESTED_POINTS = 200
"""Maximum number of points whose margins are compared."""

MAX_POOLED = 1 << 22
"""Maximum number of values behind a margin that all points share."""

SAME = 1.36
"""Kolmogorov distance, times the root of the number of inputs, below which margins are the same."""


ROUNDING = 1e-6
"""Values are at an end of their range if they are as near to it as this share of the range."""


@dataclass(frozen=True)
class Margins:
    """Maps from latent values to values of a field, at some places.

    Attributes
    ----------
    knots : Tensor, shape (K,)
    values : Tensor, shape (..., K)
        Rising values of the field at the knots.
    cuts : Tensor, shape (..., 2)
        Latent values beyond these are censored; at `FAR` where there is no atom.
    limits : Tensor, shape (..., 2)
        Values of the field beyond the cuts.
    """

    knots: Tensor
    values: Tensor
    cuts: Tensor
    limits: Tensor

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
        rounding = ROUNDING * self.limits.diff()
        bottom, top = self.limits[..., :1] + rounding, self.limits[..., 1:] - rounding
        latent = torch.where(x <= bottom, low, torch.where(x >= top, high, latent))
        return torch.maximum(torch.minimum(latent, high), low), slope

    @property
    def atoms(self) -> Tensor:
        """Whether there is an atom at the lower and the upper end, (..., 2)."""
        return self.cuts.abs() < FAR


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
        marks = _quantiles(z.flatten()[::step].sort().values[:, None], levels)[0]
        below = torch.stack([(z[:, some] <= mark).double().mean(0) for mark in marks.float()])
        below_all = below.mean(1, keepdim=True)
        if float((below - below_all).abs().amax(0).mean()) * math.sqrt(size) < SAME:
            values = at[:, None] + by[:, None] * marks
            if number == 0:
                ends, shares = (one.expand(n, 2) for one in (_extent(ends), pooled))
            break
    else:
        values = _quantiles(fields.sort(0).values, levels)
    return _with_ends(inner, values, ends.double(), shares, bool((fields >= 0).all()))


def _extent(ends: Tensor) -> Tensor:
    return torch.stack([ends[:, 0].min(), ends[:, 1].max()])


def _quantiles(ordered: Tensor, levels: Tensor) -> Tensor:
    """Return quantiles (n, K) of columns of ascending values (N, n)."""
    place = (levels * len(ordered) - 0.5).clamp(0, len(ordered) - 1)
    low = place.floor().long()
    high = (low + 1).clamp_max(len(ordered) - 1)
    return torch.lerp(ordered[low].double(), ordered[high].double(), (place - low)[:, None]).T


def _with_ends(
    inner: Tensor, values: Tensor, ends: Tensor, shares: Tensor, positive: bool
) -> Margins:
    """Return margins from quantiles (n, K), continued to `FAR` or up to atoms of these shares."""
    far = torch.tensor([FAR], dtype=torch.float64)
    knots = torch.cat([-far, inner, far])
    before, after = inner[0] + FAR, FAR - inner[-1]
    slopes = (values[:, [2, -1]] - values[:, [0, -3]]) / (2 * SPACING)
    values = torch.cat(
        [values[:, :1] - before * slopes[:, :1], values, values[:, -1:] + after * slopes[:, 1:]], 1
    )
    atom = shares > MIN_ATOM
    far = far.expand(len(values))
    cuts = torch.where(atom, torch.special.ndtri(shares), -FAR).clamp(-FAR, FAR)
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
