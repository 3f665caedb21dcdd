"""Gaussian laws of fields of which each run shows some values only: pairs, then a factor model.

All fields of all runs stand side by side as rows of P numbers, NaN where nothing was read.

1. *Pairs* (`PairMoments`). Two points are read together in some runs: sums of products over these
   runs, and their number. A correlation that depends on distance alone is fitted to them
   (`stationary`), and each covariance is shrunk towards it, with the weight ``n / (n + c)`` of its
   n pairs (Johns, Nychka, Kittel, Daly, J. Appl. Meteorol. 42, 2003). Sums and numbers of
   neighbouring pairs may be added up before.
2. *Factors* (`Factors.improved`). The leading modes of that covariance start a factor model
   ``z = mean + factor a + left``, a ~ N(0, I), whose loadings are improved by expectation
   maximisation over the readings (Rubin, Thayer, Psychometrika 47, 1982; with missing values:
   Ilin, Raiko, JMLR 11, 2010). The start decides: from interpolated runs it takes hundreds of
   steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

READ_TOGETHER = 1 << 21  # numbers of responses to factors that are worked on at a time
EXPONENTS = (1.0, 1.9)  # of exp(-(d / length)^q): rough fields, and smooth ones
LENGTHS = 40  # lengths that are tried, from the smallest distance to twice the largest
BINS = 40  # classes of distance behind a fitted correlation
MIN_VARIANCE = 1e-6  # of what factors leave of a value, as a share of its variance
REGULAR = 1.01  # largest distance of neighbours over the smallest, of points that are regular
ROUNDING = 1e-9  # of sums over readings
EXACT_POINTS = 1000  # up to so many all modes are found, of more the leading ones


@dataclass(frozen=True)
class Readings:
    """What N runs show, padded to equal numbers: at points (N, L), values (N, L), which count."""

    at: Tensor
    values: Tensor
    mask: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Readings:
        """Return what rows (N, P) show, float64; NaN is nothing."""
        seen = ~rows.isnan()
        most = max(1, int(seen.sum(1).max()))
        at = seen.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
        mask = seen.gather(1, at)
        values = rows.gather(1, at).double().masked_fill(~mask, 0.0)
        return cls(at, values, mask)


def blocks(rows: Tensor, rank: int) -> Iterator[tuple[Tensor, Readings]]:
    """Yield rows (b, P) and what they show, so many that responses to factors are no more than few.

    Runs that show about as much come together, so that little is padding.
    """
    counts = (~rows.isnan()).sum(1)
    size = max(1, READ_TOGETHER // (int(counts.max()) + rank) // rank)
    for part in counts.argsort(stable=True).split(size):
        yield rows[part], Readings.of(rows[part])


@dataclass(frozen=True)
class PairMoments:
    """Sums over runs: mean (P,) and variance (P,) of what was read, products and counts (P, P)."""

    mean: Tensor  # drawn to what the designs say
    unsure: Tensor  # (P,), variance of the mean's error
    variance: Tensor
    counts: Tensor  # (P,), number of readings
    products: Tensor  # (P, P), of values less the mean
    pairs: Tensor  # (P, P), number of runs that show both

    @classmethod
    def of(cls, rows: Tensor, designs: Sequence[Tensor]) -> PairMoments:
        """Return the moments of rows (N, P): fields side by side, with a design (n, q) each."""
        sums = rows.nan_to_num().sum(0, dtype=torch.float64)
        counts = (~rows.isnan()).sum(0).double()
        mean = sums / counts.clamp_min(1)
        points = rows.shape[1]
        products, pairs = torch.zeros(2, points, points, dtype=torch.float64)
        for some in rows.split(max(1, READ_TOGETHER // points)):
            seen, off = (~some.isnan()).double(), (some.double() - mean).nan_to_num()
            products += off.T @ off
            pairs += seen.T @ seen
        variance = products.diagonal() / counts.clamp_min(1)
        sizes = [len(one) for one in designs]
        fields = zip(*(one.split(sizes) for one in (mean, variance, counts)), designs, strict=True)
        drawn, unsure = zip(*(regressed(*one) for one in fields), strict=True)
        return cls(torch.cat(drawn), torch.cat(unsure), variance, counts, products, pairs)

    def scaled(self, groups: Tensor, weight: float) -> Tensor:
        """Return the std (P,) of values, shrunk towards that of the point's group."""
        variance = self.variance.clone()
        for group in groups.unique():
            here = groups == group
            usual = (self.counts * self.variance)[here].sum() / self.counts[here].sum().clamp_min(1)
            n = self.counts[here]
            variance[here] = (n * variance[here] + weight * usual) / (n + weight)
        return variance.sqrt()


def regressed(
    mean: Tensor, variance: Tensor, counts: Tensor, design: Tensor
) -> tuple[Tensor, Tensor]:
    """Return means (n,) drawn to a regression on a design (n, q), and their variance (n,).

    The regression counts for as many readings as its errors say; where nothing was read, it is the
    mean (Fay, Herriot, J. Am. Stat. Assoc. 74, 1979). Means are of so many readings each.
    """
    read = counts > 0
    known, n = mean[read], counts[read]
    weight = n.sqrt()[:, None]
    found = torch.linalg.lstsq(weight * design[read], weight * known[:, None], driver="gelsd")
    expected = (design @ found.solution)[:, 0]
    within = (counts @ variance / counts.sum().clamp_min(1)).clamp_min(1e-300)
    free = len(n) - design.shape[1]
    if free <= 0:
        return torch.where(read, mean, expected), within / counts.clamp_min(1)
    off = (known - expected[read]).square() - within / n
    between = (off.sum() / free).clamp_min(ROUNDING * within)
    weighed = counts + within / between
    return (counts * mean + within / between * expected) / weighed, within / weighed


@dataclass(frozen=True)
class Correlation:
    """The correlation ``share exp(-(d / length)^exponent)`` of values at distance d; 1 at 0."""

    share: float
    length: float
    exponent: float

    def of(self, distances: Tensor) -> Tensor:
        """Return it without the jump at zero."""
        return self.share * torch.exp(-((distances / self.length) ** self.exponent))


def fitted_correlation(distances: Tensor, correlations: Tensor, pairs: Tensor) -> Correlation:
    """Return the law by distance that is nearest to correlations of pairs, in least squares.

    All are (k,); each counts as often as it has pairs, in classes of distance.
    """
    order = distances.argsort()
    weight = pairs[order]
    number = (weight.cumsum(0) / weight.sum() * BINS).long().clamp_max(BINS - 1)
    total = torch.zeros(BINS, dtype=torch.float64).index_add_(0, number, weight)
    held = total > 0

    def averages(values: Tensor) -> Tensor:
        sums = torch.zeros(BINS, dtype=torch.float64).index_add_(0, number, weight * values)
        return sums[held] / total[held]

    d, known = averages(distances[order]), averages(correlations[order])
    best, found = np.inf, Correlation(0.5, float(d[0].clamp_min(1e-300)), 1.0)
    for exponent in EXPONENTS:
        for length in np.geomspace(float(d[0].clamp_min(1e-300)), 4 * float(d[-1]), LENGTHS):
            shape = Correlation(1.0, float(length), exponent).of(d)
            share = float((shape @ known) / (shape @ shape).clamp_min(1e-300))
            share = min(max(share, 0.01), 1 - MIN_VARIANCE)
            miss = float((share * shape - known).square().sum())
            if miss < best:
                best, found = miss, Correlation(share, float(length), exponent)
    return found


def smoothing(points: Tensor, width: float) -> Tensor:
    """Return weights (n, n) of neighbours of points (n, d), one for each point itself.

    On regular points they are a Gaussian kernel of fourth order, which leaves quadratic functions
    as they are (Wand, Schucany, Can. J. Statist. 18, 1990). Where points are denser here than there
    its negative weights would do harm: the kernel is the plain one. The width is in typical
    distances of neighbours.
    """
    if len(points) == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    apart = torch.cdist(points, points)
    nearest = torch.where(apart > 0, apart, torch.inf).amin(1)
    u = (apart / (width * nearest[nearest.isfinite()].median())).square()
    regular = float(nearest.max()) < REGULAR * float(nearest.min())
    return (1 - u / (points.shape[1] + 2) * regular) * torch.exp(-u / 2)


def stationary(moments: PairMoments, distances: Sequence[Tensor], std: Tensor) -> Tensor:
    """Return the covariance (P, P) by distance alone, without noise: zero between fields.

    `distances` are of the points of each field, one field after another.
    """
    found, first = torch.zeros_like(moments.products), 0
    for between in distances:
        here = slice(first, first + len(between))
        first += len(between)
        apart, pairs = between > 0, moments.pairs[here, here]
        used = apart & (pairs > 0)
        if not bool(used.any()):
            found[here, here] = torch.diag(std[here].square())
            continue
        scale = torch.outer(std[here], std[here])
        known = moments.products[here, here] / pairs.clamp_min(1) / scale
        law = fitted_correlation(between[used], known[used], pairs[used])
        found[here, here] = law.of(between) * scale
    return found


def shrunk(
    moments: PairMoments, target: Tensor, weight: float, kernel: Tensor | None = None
) -> Tensor:
    """Return the covariance (P, P) of pairs without noise, shrunk to a target by ``n / (n + c)``.

    With a kernel (P, P) each pair counts with its neighbours, by these weights. A point is no pair
    with itself, as noise adds to its variance. An infinite weight gives the target.
    """
    if math.isinf(weight):
        return target
    apart = 1 - torch.eye(len(target), dtype=torch.float64)
    products, pairs = moments.products * apart, moments.pairs * apart
    if kernel is not None:
        products, pairs = kernel @ products @ kernel.T, kernel @ pairs @ kernel.T
    return (products + weight * target) / (pairs + weight).clamp_min(weight)


class Sums(NamedTuple):
    """Sums over the readings of each point."""

    squares: Tensor  # (P, r + 1, r + 1), of factors and one
    cross: Tensor  # (P, r + 1), of these times the reading
    total: Tensor  # (P,), of squared readings
    counts: Tensor  # (P,), number of readings
    whole: Tensor  # (r + 1, r + 1), of factors and one, once for each run


@dataclass(frozen=True)
class Factors:
    """The law ``z = mean + factor a + left``: a ~ N(0, I_r), left independent with a variance.

    `groups` number the points that share the variance of what is left: the fields.
    """

    mean: Tensor  # (P,)
    factor: Tensor  # (P, r)
    variance: Tensor  # (P,)
    groups: Tensor  # (P,)

    @classmethod
    def of(cls, moments: PairMoments, covariance: Tensor, rank: int, groups: Tensor) -> Factors:
        """Return the law of leading modes of a covariance (P, P) without noise."""
        values, vectors = leading(covariance, rank)
        factor = vectors * values.clamp_min(0).sqrt()
        left = moments.variance - factor.square().sum(1)
        found, n = torch.empty_like(left), moments.counts
        for group in groups.unique():
            here = groups == group
            share = n[here] / n[here].sum().clamp_min(1)
            least = MIN_VARIANCE * (share @ moments.variance[here]).clamp_min(MIN_VARIANCE)
            found[here] = torch.maximum(share @ left[here], least)
        return cls(moments.mean, factor, found, groups)

    def given(self, seen: Readings) -> tuple[Tensor, Tensor]:
        """Return mean (N, r) and covariance (N, r, r) of a given readings."""
        level = self.variance[seen.at].sqrt()
        rows = self.factor[seen.at] * (seen.mask / level)[..., None]
        off = (seen.values - self.mean[seen.at]) * seen.mask / level
        eye = torch.eye(rows.shape[2], dtype=torch.float64)
        root = torch.linalg.cholesky(rows.transpose(1, 2) @ rows + eye)
        covariance = torch.cholesky_inverse(root)
        mean = covariance @ (rows.transpose(1, 2) @ off[..., None])
        return mean[..., 0], covariance

    def values_given(self, seen: Readings) -> tuple[Tensor, Tensor]:
        """Return mean (N, P) and variance (N, P) of new readings given others, in closed form."""
        level = self.variance[seen.at] + (~seen.mask).double()
        rows = self.factor[seen.at] * seen.mask[..., None]
        between = rows @ rows.transpose(1, 2) + torch.diag_embed(level)
        off = (seen.values - self.mean[seen.at]) * seen.mask
        root = torch.linalg.cholesky(between)
        right = torch.cat([off[..., None], rows @ self.factor.T], 2)
        white = torch.linalg.solve_triangular(root, right, upper=False)
        off, cross = white[..., :1], white[..., 1:]
        mean = self.mean + (off.transpose(1, 2) @ cross)[:, 0]
        prior = self.factor.square().sum(1) + self.variance
        return mean, (prior - cross.square().sum(1)).clamp_min(MIN_VARIANCE * self.variance)

    def improved(
        self, rows: Tensor, start: Factors, weight: float = 0.0, kernel: Tensor | None = None
    ) -> Factors:
        """Return the law after a step of expectation maximisation over rows (N, P).

        Loadings of each point are drawn to those of the start as by so many readings (`weight`).
        With a kernel (P, P) they are fitted to readings of neighbours, too, by these weights.
        """
        sums = self._sums(rows)
        prior = torch.cat([start.factor, start.mean[:, None]], 1)
        squares, ridge = self._known(sums, weight, kernel)
        cross = sums.cross if kernel is None else kernel @ sums.cross
        right = cross + ridge[:, None] * prior
        loadings = torch.linalg.solve(squares, right[..., None])[..., 0]
        left = sums.total - 2 * (sums.cross * loadings).sum(1)
        left = left + torch.einsum("pi,pij,pj->p", loadings, sums.squares, loadings)
        variance = self.variance.clone()
        for group in self.groups.unique():
            here = self.groups == group
            n = sums.counts[here].sum().clamp_min(1)
            least = MIN_VARIANCE * (sums.total[here].sum() / n).clamp_min(MIN_VARIANCE)
            variance[here] = torch.maximum(left[here].sum() / n, least)
        # Factors as they came out are standardised: without that, scales hardly move where little
        # is left (parameter expansion: Liu, Rubin, Wu, Biometrika 85, 1998).
        mean, second = sums.whole[:-1, -1], sums.whole[:-1, :-1] / sums.whole[-1, -1]
        mean = mean / sums.whole[-1, -1]
        root = torch.linalg.cholesky(second - torch.outer(mean, mean))
        factor = loadings[:, :-1]
        return replace(
            self, mean=loadings[:, -1] + factor @ mean, factor=factor @ root, variance=variance
        )

    def unsure(self, rows: Tensor, weight: float, kernel: Tensor | None = None) -> Tensor:
        """Return the variance (P,) that errors of the loadings add to new values.

        Loadings that readings of known factors give have the covariance ``variance (sum of squares
        + weight)^-1``, as in a regression, and a new value has it times factors of variance one.
        """
        if math.isinf(weight):
            return torch.zeros_like(self.variance)
        squares, _ = self._known(self._sums(rows), weight, kernel)
        return self.variance * torch.linalg.inv(squares).diagonal(0, 1, 2).sum(1)

    def _known(self, sums: Sums, weight: float, kernel: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return squares of factors (P, r + 1, r + 1) with the ridge (P,) of the start in them."""
        squares = sums.squares
        if kernel is not None:
            squares = (kernel @ squares.flatten(1)).view_as(squares)
        ridge = weight + ROUNDING * sums.counts.clamp_min(1)
        eye = torch.eye(squares.shape[1], dtype=torch.float64)
        return squares + ridge[:, None, None] * eye, ridge

    def _sums(self, rows: Tensor) -> Sums:
        """Return sums over the readings of each point of what is expected of (a, 1) and of them."""
        r, points = self.factor.shape[1] + 1, len(self.mean)
        squares = torch.zeros(points, r * r, dtype=torch.float64)
        cross = torch.zeros(points, r, dtype=torch.float64)
        total, counts = torch.zeros(2, points, dtype=torch.float64)
        whole = torch.zeros(r, r, dtype=torch.float64)
        for some, seen in blocks(rows, r):
            mean, covariance = self.given(seen)
            known = torch.cat([mean, torch.ones(len(mean), 1, dtype=torch.float64)], 1)
            second = known[:, :, None] * known[:, None]
            second[:, :-1, :-1] += covariance
            values, there = some.double().nan_to_num(), (~some.isnan()).double()
            squares += there.T @ second.flatten(1)
            cross += values.T @ known
            total += values.square().sum(0)
            counts += there.sum(0)
            whole += second.sum(0)
        return Sums(squares.view(points, r, r), cross, total, counts, whole)


def leading(covariance: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues (r,) of a symmetric matrix (P, P) and their vectors (P, r)."""
    if len(covariance) <= EXACT_POINTS:
        values, vectors = torch.linalg.eigh(covariance)
    else:
        from scipy.sparse.linalg import eigsh

        start = np.ones(len(covariance))
        found = eigsh(covariance.numpy(), min(rank, len(covariance) - 1), v0=start)
        values, vectors = map(torch.from_numpy, found)
    return values[-rank:].flip(0), vectors[:, -rank:].flip(1)
