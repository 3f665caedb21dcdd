"""The covariance of a Gaussian field of which only values between two cuts are seen.

Stochastic expectation maximisation (Celeux & Diebolt, Comput. Stat. Q. 2, 1985): what is hidden
of each training field is drawn given what is seen of it, by Hamiltonian Monte Carlo between walls
(`uqsonet.laws.truncated`), and the covariance is that of the completed fields. Correlations of
pairs of points would be simpler, but their errors drown the small directions of a smooth field,
unless the field is stationary: a spectrum has few parameters, and pairs give them best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import Domain, JointDomain
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.laws.class_rules import bivariate_normal
from uqsonet.laws.latent import LowRank, Spectrum, farthest_points, fit_latent, likeliest, unit
from uqsonet.laws.truncated import Walls

MAX_COMPLETED_POINTS = 500  # of a field; the factor is interpolated to others
MAX_ALIKE = 0.99  # correlation of neighbours; above it a coarser grid is taken if there is one
CENSORED_STEPS = 18  # of expectation maximisation; the first complete a quarter of the fields
FULL_STEPS = 6  # steps at the end that complete all fields
AVERAGED_STEPS = 4  # steps at the end whose moments are averaged
MIN_QUARTER = 500  # fields that the first steps complete
FIELD_MOVES = 2  # moves of each field in a step
MAX_WORK = 4e10  # fields times points cubed: fewer fields are completed on many points
TOGETHER = 1 << 21  # covariances that are worked on at a time
NUGGET = 1e-6  # variance that makes the covariance of what is seen of a field regular
FIRST_SHARE = 0.02  # smaller directions of the censored fields' correlations are left out
CUT_LEVELS = 32  # cuts are rounded to this number of shares
NO_CUT = 9.0  # a cut where there is none, in standard deviations: no value is beyond it
TABLE = 1001  # angles of a table of correlations
NEGLIGIBLE_DIRECTION = 1e-9  # variance, relative to the largest, that is left out


def censored_field(domain: Domain, scores: Tensor, cuts: Tensor) -> tuple[LowRank, Tensor] | None:
    """Return a field by its correlations, and the standard deviation of what it leaves out.

    Scores (N, n) are fields of mean zero and variance one at the n points of the domain, censored
    at the cuts (n, 2). None where these are too many and cannot be interpolated.
    """
    coarse, index = _coarse(domain, scores)
    if coarse.size > MAX_COMPLETED_POINTS:
        return None
    size = max(20, int(MAX_WORK / coarse.size**3))
    scores = scores[:size].double()
    correlations, completed = _completed(scores[:, index], cuts[index])
    values, vectors = torch.linalg.eigh(correlations)
    kept = values > NEGLIGIBLE_DIRECTION * values[-1]
    factor = (vectors[:, kept] * values[kept].sqrt()).flip(1)
    points = domain.points()
    factor = coarse.interpolate(factor, points)
    if coarse.size == domain.size:
        left = torch.zeros((), dtype=torch.float64)
    else:
        # Where fields are seen between the points: the median of a square, scaled to its mean.
        off = coarse.interpolate(completed.T.contiguous(), points).T - scores
        between = _inside(scores, cuts)
        between[:, index] = False
        left = off[between].abs().median() / 0.6745
    return LowRank(unit(factor).float().contiguous()), left


def stationary_spectrum(domain: Domain, scores: Tensor, cuts: Tensor) -> Spectrum | None:
    """Return the spectrum of a field, None where pairs of held-out scores say that it has none.

    Scores and cuts as in `censored_field`; a field without cuts may be given too.
    """
    if not isinstance(domain, Grid):
        return None
    clipped = ClippedNormals(cuts)
    field = fit_latent(domain, scores, clipped.level, clipped.correlation, standard=True)
    if not isinstance(field, Spectrum):
        return None
    return field if bool((cuts.abs() < NO_CUT).any()) else likeliest(field, scores)


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


def _coarse(domain: Domain, scores: Tensor) -> tuple[Domain, Tensor]:
    """Return the domain of some points, and their numbers: enough that neighbours differ."""
    coarse, index = domain, torch.arange(domain.size)
    for coarse, index in _coarser(domain):
        if coarse.size <= MAX_COMPLETED_POINTS:
            points = coarse.points()
            near = torch.cdist(points, points).fill_diagonal_(torch.inf).argmin(1)
            here = scores[:, index] - scores[:, index].mean(0)
            there = here[:, near]
            size = here.square().sum() * there.square().sum()
            if float((here * there).sum() / size.sqrt()) < MAX_ALIKE:
                break
    return coarse, index


def _coarser(domain: Domain) -> Iterator[tuple[Domain, Tensor]]:
    """Yield the domain of all points and of fewer and fewer of them, with their numbers."""
    yield domain, torch.arange(domain.size)
    if isinstance(domain, JointDomain):
        return
    if isinstance(domain, Grid):
        last = 0 if domain.periodic else 1
        for stride in range(2, 1 + min(domain.shape) // 8):
            if not any((n - last) % stride for n in domain.shape):
                yield domain.subgrid(stride)
    if domain.size > MAX_COMPLETED_POINTS:
        points = domain.points()
        index = farthest_points(points, MAX_COMPLETED_POINTS, points.mean(0)).sort().values
        yield PointCloud.of(points[index].numpy()), index


def _inside(fields: Tensor, cuts: Tensor) -> Tensor:
    """Return which values of fields (N, n) are not censored."""
    rounding = 1e-5  # of scores in single precision
    return (fields > cuts[:, 0] + rounding) & (fields < cuts[:, 1] - rounding)


def _completed(fields: Tensor, cuts: Tensor) -> tuple[Tensor, Tensor]:
    """Return correlations (n, n) of fields (N, n), and the fields as last completed."""
    generator = torch.Generator().manual_seed(0)
    seen = _inside(fields, cuts)
    values, vectors = torch.linalg.eigh(torch.corrcoef(fields.T).view(len(cuts), -1))
    kept = values > FIRST_SHARE * values[-1]
    factor = vectors[:, kept] * values[kept].sqrt()
    correlations = _scaled(factor @ factor.T + FIRST_SHARE * torch.eye(len(factor)).double())
    # Hidden values start half a standard deviation beyond their cuts.
    hidden = torch.where(fields > cuts.mean(1), cuts[:, 1] + 0.5, cuts[:, 0] - 0.5)
    fields, total = torch.where(seen, fields, hidden), torch.zeros_like(correlations)
    step = max(1, TOGETHER // len(correlations) ** 2)
    for number in range(CENSORED_STEPS):
        root = covariance_root(correlations)
        early = number < CENSORED_STEPS - FULL_STEPS
        used = slice(max(MIN_QUARTER, len(fields) // 4) if early else len(fields))
        parts = zip(fields[used].split(step), seen[used].split(step), strict=True)
        now = torch.cat([_moved(*part, cuts, correlations, root, generator) for part in parts])
        fields = torch.cat([now, fields[len(now) :]])
        moments = now.T @ now
        correlations = _scaled(moments)
        if number >= CENSORED_STEPS - AVERAGED_STEPS:
            total += moments
    return _scaled(total), fields


def _scaled(covariance: Tensor) -> Tensor:
    """Return the correlations of a covariance."""
    scale = covariance.diagonal().rsqrt()
    return covariance * scale * scale[:, None]


def _moved(
    fields: Tensor, seen: Tensor, cuts: Tensor, correlations: Tensor, root: Tensor,
    generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """Return fields (b, n) whose hidden values are moved given the others, to beyond their cuts."""
    both = seen[:, :, None] & seen[:, None, :]
    extra = torch.where(seen, NUGGET, 1.0).double()
    among = torch.linalg.cholesky(torch.where(both, correlations, 0.0) + torch.diag_embed(extra))
    cross = (correlations * seen[:, None, :]).transpose(1, 2)
    gain = torch.cholesky_solve(cross, among).transpose(1, 2)
    mean = (gain @ (fields * seen)[..., None])[..., 0]
    covariance = correlations - gain @ cross
    covariance = (covariance + covariance.transpose(1, 2)) / 2
    covariance.diagonal(dim1=1, dim2=2).add_(NUGGET)
    above = fields > cuts.mean(1)
    lower = torch.where(~seen & above, cuts[:, 1], -math.inf) - mean
    upper = torch.where(~seen & ~above, cuts[:, 0], math.inf) - mean
    walls, position = Walls(covariance, lower, upper, 1), fields - mean
    for _ in range(FIELD_MOVES):
        z = torch.randn(3, *fields.shape, dtype=torch.float64, generator=generator)
        drawn = z[0] @ root
        error = (drawn + NUGGET**0.5 * z[1]) * seen
        velocity = drawn - (gain @ error[..., None])[..., 0] + NUGGET**0.5 * z[2]
        position = walls.move(position, velocity)
    return torch.where(seen, fields, position + mean)
