"""Latent Gaussian fields, with correlations estimated from what inputs show of them.

Two descriptions of a field of variance one. Held-out inputs decide:

- `LowRank`: a factor of the correlations with landmarks (Nystroem), for any domain and any field
  that some tens of directions describe;
- `Spectrum`: independent coefficients of cosines, their variances those of a Whittle-Matern field
  on the box with free ends, or on a larger box, where its ends are not felt (Lindgren, Rue and
  Lindstroem 2011, J. R. Stat. Soc. B 73, 423). It has thousands of directions and few parameters:
  roughness below the spacing of the landmarks, which no low rank holds. A separable spectrum has
  a product of such variances, one for each axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uqsonet.fields.cloud import Grid
from uqsonet.fields.stacked import Domain

Correlation = Callable[[Tensor, Tensor, Tensor], Tensor]

LANDMARKS = 600  # points whose correlations with all others are estimated, at most

RANKS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 600)
"""Ranks of the latent covariance to try."""

POOLING = (0.0, 0.5, 0.9, 1.0)
"""Weights to try of the mean over all pairs of points with the same lag: for a stationary field it
removes most of the noise of estimation."""

MAX_COSINES = 4096  # cosines of a spectrum
BOXES = (0.0, 0.5)  # margins of a spectrum's box on each side to try, as a share of the grid
SPREAD = 200  # spread-out points that a spectrum is fitted at, each with a neighbour
MIN_POINTS = 8  # along each axis of the grid of a spectrum

EXPONENT, CONSTANT, LENGTH = (0.02, 50.0), (1e-6, 100.0), (0.005, 5.0)
"""Ranges of a spectrum's parameters; the exponent is in excess of half the number of axes."""

NEARLY = 1.05  # misfit of a spectrum of values, over the best factor's, up to which it is taken
LIKELIHOOD_NOISE = 0.01  # variance added to fields of variance one, of which a likelihood is taken
SPECTRUM_STEPS = 60  # iterations of the optimiser of a spectrum's parameters, at most
NODES = 24  # nodes of the quadrature of the bivariate normal distribution


@dataclass(frozen=True)
class LowRank:
    """Fields ``factor @ xi`` of independent standard normals xi, of variance one."""

    factor: Tensor  # (n, q), float32, rows of norm one

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self.factor.shape[1]

    def rows(self, domain: Domain, locations: Tensor) -> Tensor:
        """Return the factor (..., rank), of norm one, that multiplies xi at locations (..., d)."""
        return unit(domain.interpolate(self.factor.double(), locations))

    def fields(self, xi: Tensor) -> Tensor:
        """Return fields (S, n), float32, on the grid for xi (S, rank)."""
        return xi.float() @ self.factor.T

    def tensors(self, tail: str = "") -> dict[str, Tensor]:
        """Return the factor; its name ends with `tail`."""
        return {"factor" + tail: self.factor}


@dataclass(frozen=True)
class Spectrum:
    """Cosines on a box whose coefficients are independent.

    Values (3 + d,), float64, are: exponent, size of the constant's variance relative to the
    spectrum's own, share by which the box is larger on each side, and length of correlation along
    each axis as a share of the grid's. The variance of a cosine of wave number k (per length) is
    ``(1 + |length k|^2 / (2 exponent))^-exponent``, before fields are scaled to variance one; of a
    separable spectrum it is the product of these over the axes.
    """

    grid: Grid
    values: Tensor
    separable: bool = False

    @classmethod
    def of(cls, domain: Domain, values: Tensor, separable: bool = False) -> Spectrum:
        """Return the spectrum that `tensors` were taken of; ValueError if these are none."""
        if not isinstance(domain, Grid) or len(values) != 3 + domain.dim:
            raise ValueError(
                f"a spectrum of {len(values)} parameters does not fit the input's grid"
            )
        if not bool((values.isfinite() & (values >= 0)).all() & (values[3:] > 0).all()):
            raise ValueError("parameters of a spectrum are finite and not negative")
        return cls(domain, values, separable)

    @cached_property
    def count(self) -> list[int]:
        """Cosines along each axis."""
        most = round(MAX_COSINES ** (1 / self.grid.dim))
        # Twice the points: kinks of a kernel need more cosines than the grid resolves.
        wider = 1 + 2 * float(self.values[2].detach())
        return [min(most, math.ceil(2 * wider * points)) for points in self.grid.shape]

    @property
    def rank(self) -> int:
        """Number of cosines."""
        return math.prod(self.count)

    @cached_property
    def std(self) -> Tensor:
        """Standard deviation of each cosine (K_1, ..., K_d), float64."""
        return self._variance(self.count).sqrt()

    @property
    def finer(self) -> Tensor:
        """Share of the variance that finer cosines have."""
        whole = self._variance([2 * count for count in self.count]).sum()
        return (1 - self.std.square().sum() / whole).clamp_min(0)

    def _variance(self, counts: list[int]) -> Tensor:
        exponent, constant, wider, *lengths = self.values
        total = torch.ones(counts, dtype=torch.float64)
        for axis, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            k = math.pi * torch.arange(count, dtype=torch.float64) / (1 + 2 * wider)
            shape = [-1 if other == axis else 1 for other in range(self.grid.dim)]
            along = (length * k).square().reshape(shape) / (2 * exponent)
            total = total * (1 + along) if self.separable else total + along
        variance = total**-exponent
        first = torch.zeros_like(variance)
        first.view(-1)[0] = 1
        return (variance * (1 - first + constant * first)).clamp_min(1e-200)

    def _along(self, axis: int, places: Tensor) -> Tensor:
        """Return the cosines (..., K) of an axis at coordinates (...)."""
        low, high = self.grid.lower[axis], self.grid.upper[axis]
        wider = float(self.values[2].detach())
        t = ((places - low) / (high - low) + wider) / (1 + 2 * wider)
        k = torch.arange(self.count[axis], dtype=torch.float64)
        return torch.cos(math.pi * t[..., None] * k) * torch.where(k > 0, math.sqrt(2), 1.0)

    def rows(self, domain: Domain, locations: Tensor) -> Tensor:
        """Return cosines (..., rank) at locations (..., d), times their std, of norm one."""
        cosines = self._along(0, locations[..., 0].double())
        for axis in range(1, self.grid.dim):
            along = self._along(axis, locations[..., axis].double())
            cosines = (cosines[..., :, None] * along[..., None, :]).flatten(-2)
        return unit(cosines * self.std.flatten())

    @cached_property
    def _on_grid(self) -> tuple[list[Tensor], Tensor]:
        """Return the cosines along each axis (points, K), float32, and the fields' std (n,)."""
        along = [self._along(axis, places) for axis, places in enumerate(self.grid.axes())]
        variance = _through(self.std.square()[None], [a.square() for a in along])
        return [a.float() for a in along], variance.sqrt().flatten().float()

    def fields(self, xi: Tensor) -> Tensor:
        """Return fields (S, n), float32, on the grid for xi (S, rank)."""
        along, std = self._on_grid
        weighted = (xi * self.std.flatten()).float().reshape(-1, *self.count)
        return _through(weighted, along).flatten(1) / std

    def tensors(self, tail: str = "") -> dict[str, Tensor]:
        """Return the parameters; their name ends with `tail`."""
        return {(SEPARABLE if self.separable else "spectrum") + tail: self.values}


LatentField = LowRank | Spectrum  # a Gaussian field of variance one

SEPARABLE = "separable_spectrum"  # name of its parameters in weight files

LATENT_LAYOUT = {
    "factor*": ("n?", torch.float32),
    "spectrum*": ("?", torch.float64),
    SEPARABLE + "*": ("?", torch.float64),
}
"""Part of a law's `layout`: a factor or a spectrum for each latent field."""


def latent_of(domain: Domain, tensors: Mapping[str, Tensor], tail: str) -> LatentField:
    """Return the latent field that tensors whose names end like this hold."""
    for name in ("spectrum", SEPARABLE):
        if name + tail in tensors:
            return Spectrum.of(domain, tensors[name + tail], name == SEPARABLE)
    if "factor" + tail not in tensors:
        raise ValueError(f"it needs one of factor{tail}, spectrum{tail}, {SEPARABLE}{tail}")
    return LowRank(tensors["factor" + tail])


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


def _through(weights: Tensor, along: list[Tensor]) -> Tensor:
    """Return sums (S, points, ...) of products of functions of each axis, weights (S, K, ...)."""
    for functions in along:
        weights = weights.movedim(1, -1) @ functions.T  # the axis goes to the end
    return weights


def unit(rows: Tensor) -> Tensor:
    """Return rows scaled to norm one."""
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def fit_latent(
    domain: Domain, side: Tensor, cut: Tensor, correlation: Correlation,
    inside: Tensor | None = None, standard: bool = False,
) -> LatentField:  # fmt: skip
    """Estimate the correlations of the latent field.

    Parameters
    ----------
    domain : Domain
        Of n points.
    side : Tensor, shape (N, n)
        What inputs show of the field: one where they are below a cut and zero elsewhere, say.
    cut : Tensor, shape (n,)
        What `correlation` has to know of each point.
    correlation : callable
        Maps the mean product of what inputs show at two points, and both cuts, to a correlation.
    inside : Tensor, shape (N, n), optional
        One where an input shows the field, by default everywhere.
    standard : bool
        Whether `side` is values, which are brought to mean zero and variance one in each half of
        the inputs. Of these a spectrum that is nearly as good as the best factor is taken.
    """
    points = domain.points()
    marks = _landmarks(points, LANDMARKS)
    seen = _landmarks(points, 4 * LANDMARKS)  # points whose pairs with landmarks decide
    shown = (None, None) if inside is None else inside.tensor_split(2)
    sides = [_standard(half) if standard else half for half in side.tensor_split(2)]
    parts, law = list(zip(sides, shown, strict=True)), (cut, correlation)
    every = torch.arange(len(points))
    halves = [_correlations(*part, every, marks, *law) for part in parts]
    lags = _lags(points, marks)
    best: tuple[float, float, int] = (math.inf, 0.0, RANKS[0])
    for pooling in POOLING:
        factors = [_factor(_pooled(half, lags, pooling), marks) for half in halves]
        for rank in (rank for rank in RANKS if rank <= factors[0].shape[1]):
            rows = [unit(factor[:, :rank]) for factor in factors]
            misfit = sum(
                _misfit(rows[i][seen], rows[i][marks], halves[1 - i][seen]) for i in range(2)
            )
            best = min(best, (misfit, pooling, rank))
    if isinstance(domain, Grid) and min(domain.shape) >= MIN_POINTS:
        places = _near(points, _landmarks(points, SPREAD))
        among = [_correlations(*part, places, places, *law) for part in parts]
        least, best_kind = best[0] * (NEARLY if standard else 1), None
        for kind in itertools.product(BOXES, (False, True)[: domain.dim]):
            misfit = 0.0
            for i in range(2):
                field = _fitted_spectrum(domain, points[places], among[i], *kind)
                rows = field.rows(domain, points[seen]), field.rows(domain, points[marks])
                misfit += _misfit(*rows, halves[1 - i][seen])
            if misfit < least:  # False if it is not a number
                least, best_kind = misfit, kind
        if best_kind is not None:
            return _fitted_spectrum(domain, points[places], (among[0] + among[1]) / 2, *best_kind)
    _, pooling, rank = best
    whole = _factor(_pooled((halves[0] + halves[1]) / 2, lags, pooling), marks)
    return LowRank(unit(whole[:, :rank]).float())


def _standard(side: Tensor) -> Tensor:
    """Return columns (N, n) less their mean, over their standard deviation."""
    return (side - side.mean(0)) / side.std(0, correction=0).clamp_min(1e-12)


def _landmarks(points: Tensor, most: int) -> Tensor:
    """Return the numbers of at most so many points (n, d) that are spread out, ascending.

    The first is the nearest to the centre, each other the farthest from those before.
    """
    if len(points) <= most:
        return torch.arange(len(points))
    chosen = [int((points - points.mean(0)).square().sum(1).argmin())]
    nearest = torch.full((len(points),), torch.inf, dtype=points.dtype)
    while len(chosen) < most:
        nearest = torch.minimum(nearest, (points - points[chosen[-1]]).square().sum(1))
        chosen.append(int(nearest.argmax()))
    return torch.tensor(chosen).sort().values


def _near(points: Tensor, marks: Tensor) -> Tensor:
    """Return landmarks, and for each a neighbour at most as far as the next landmark."""
    generator = torch.Generator().manual_seed(0)
    order = torch.cdist(points[marks], points).argsort(1)
    most = min(points.shape[0] - 1, 2 * len(points) // len(marks))
    steps = torch.randint(1, most + 1, (len(marks),), generator=generator)
    return torch.cat([marks, order.gather(1, steps[:, None])[:, 0]]).unique()


def _correlations(
    side: Tensor, inside: Tensor | None, rows: Tensor, columns: Tensor, cut: Tensor,
    correlation: Correlation,
) -> Tensor:  # fmt: skip
    """Return latent correlations of points with other points."""
    both = (side[:, rows].T @ side[:, columns]).double()
    h, k = torch.broadcast_tensors(cut[rows][:, None], cut[columns])
    if inside is None:
        both = both / len(side)
    else:  # where few inputs show both points, these are as if independent
        alone = torch.special.ndtr(h) * torch.special.ndtr(k)
        count = (inside[:, rows].T @ inside[:, columns]).double()
        both = (both + alone) / (count + 1)
    return torch.where(rows[:, None] == columns, 1.0, correlation(both, h, k))


def _factor(correlations: Tensor, marks: Tensor) -> Tensor:
    """Return the factor (n, L) by Nystroem's formula, leading directions first."""
    among = correlations[marks]
    values, vectors = torch.linalg.eigh((among + among.T) / 2)
    keep = values > 1e-6 * values[-1]
    root = vectors[:, keep].flip(1) * values[keep].flip(0).rsqrt()
    return correlations @ root


def _lags(points: Tensor, marks: Tensor) -> Tensor:
    """Return the number (n, L) of the lag between each point and each landmark."""
    among = torch.cdist(points[marks], points)
    spacing = among.masked_fill(among == 0, math.inf).amin().clamp_min(1e-12)
    steps = ((points[:, None] - points[marks]).abs() / spacing).round().long()  # (n, L, d)
    number = torch.zeros(steps.shape[:2], dtype=torch.int64)
    for axis in steps.unbind(-1):
        number = number * (int(axis.amax()) + 1) + axis
    return number.flatten().unique(return_inverse=True)[1].view_as(number)


def _pooled(correlations: Tensor, lags: Tensor, pooling: float) -> Tensor:
    """Return correlations (n, L), moved towards their mean over pairs of the same lag."""
    if pooling == 0:
        return correlations
    flat = lags.flatten()
    total = torch.zeros(int(flat.amax()) + 1, dtype=correlations.dtype)
    count = total.clone().index_add_(0, flat, torch.ones_like(flat, dtype=total.dtype))
    total.index_add_(0, flat, correlations.flatten())
    return torch.lerp(correlations, (total / count)[lags], pooling)


def _angles(correlations: Tensor) -> Tensor:
    """Return arc sines: the errors of their estimates hardly depend on the correlation."""
    return correlations.clamp(-1, 1).asin()


def _misfit(rows: Tensor, columns: Tensor, other: Tensor) -> float:
    """Return the mean squared distance of a field's correlations from those of other inputs."""
    return float((_angles(rows @ columns.T) - _angles(other)).square().mean())


def _fitted_spectrum(
    grid: Grid, points: Tensor, target: Tensor, wider: float, separable: bool
) -> Spectrum:
    """Return the spectrum whose correlations among points (L, d) are nearest to a target (L, L).

    Angles are weighted by the inverse of their variance, ``p (1 - p)`` with the share p of inputs
    where both points lie on different sides: those of near points are known best.
    """
    angles = _angles(target)
    share = (0.5 - angles / math.pi).clamp(1e-3, 1 - 1e-3)
    weight = 1 / (share * (1 - share))
    weight = weight * (1 - torch.eye(len(weight), dtype=weight.dtype))
    weight = weight / weight.sum()

    def misfit(raw: Tensor) -> Tensor:
        """Return the weighted squared distance of the spectrum's angles from the target's."""
        rows = _spectrum(grid, raw, wider, separable).rows(grid, points)
        correlations = (rows @ rows.T).clamp(-1 + 1e-9, 1 - 1e-9)
        return (weight * (correlations.asin() - angles).square()).sum()

    raw = _least(misfit, torch.zeros(2 + grid.dim, dtype=torch.float64))
    return _spectrum(grid, raw, wider, separable)


def likeliest(field: Spectrum, fields: Tensor) -> Spectrum:
    """Return the spectrum under which fields (N, n) are likeliest, from a first guess on.

    Pairs of points hardly tell how rough fields are, on which the answer between sensors depends.
    Noise is added to fields and spectrum, so that directions of less variance, which are errors of
    the margins, do not count.
    """
    grid, points, wider = field.grid, field.grid.points(), float(field.values[2])
    places = _near(points, _landmarks(points, SPREAD))
    seen = _standard(fields[:, places].double())
    noise, unity = LIKELIHOOD_NOISE, torch.eye(len(places), dtype=torch.float64)
    target = seen.T @ seen / len(seen) + noise * unity

    def misfit(raw: Tensor) -> Tensor:
        """Return minus twice the log likelihood of a field at a point, up to a constant."""
        one = _spectrum(grid, raw, wider, field.separable)
        rows, finer = one.rows(grid, points[places]), one.finer
        root = torch.linalg.cholesky((1 - finer) * rows @ rows.T + (finer + noise) * unity)
        inverse = torch.cholesky_inverse(root)
        return (2 * root.diagonal().log().sum() + (inverse * target).sum()) / len(places)

    guess = torch.cat([field.values[:1] - grid.dim / 2, field.values[1:2], field.values[3:]])
    low, high = _ranges(grid)
    start = ((guess.log() - low) / (high - low)).logit(1e-6)
    return _spectrum(grid, _least(misfit, start), wider, field.separable)


def _ranges(grid: Grid) -> Tensor:
    """Return the logarithms of the least and the largest parameters of a spectrum, (2, 2 + d)."""
    ranges = [EXPONENT, CONSTANT, *[LENGTH] * grid.dim]
    return torch.tensor(ranges, dtype=torch.float64).log().T


def _spectrum(grid: Grid, raw: Tensor, wider: float, separable: bool) -> Spectrum:
    """Return the spectrum of unbounded parameters (2 + d,)."""
    low, high = _ranges(grid)
    values = torch.lerp(low, high, raw.sigmoid()).exp()
    exponent = grid.dim / 2 + values[0]  # from here on variances are finite
    head = torch.stack([exponent, values[1], values.new_tensor(wider)])
    return Spectrum(grid, torch.cat([head, values[2:]]), separable)


def _least(misfit: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return the parameters of least misfit, by a quasi-Newton method."""
    raw = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([raw], max_iter=SPECTRUM_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        """Return the misfit with its gradient."""
        optimiser.zero_grad()
        value = misfit(raw)
        value.backward()
        return value

    optimiser.step(closure)
    return raw.detach()
