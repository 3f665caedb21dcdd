"""How far a predicted law is from the true one (section 4, metrics).

Relative errors of mean and std, Wasserstein-2 distances between samples (exact, by POT) and
between Gaussians (Bures), Wasserstein-1 distances at single points, CRPS and coverage of central
bands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.gauss.gaussian import covariance_root


def relative_error(
    predicted: Float[Tensor, "*batch M"], reference: Float[Tensor, "*other M"]
) -> Float[Tensor, "*errors"]:
    """Return ``|predicted - reference|_2 / |reference|_2`` over the last axis."""
    return (predicted - reference).norm(dim=-1) / reference.norm(dim=-1)


def wasserstein2(
    first: Float[Tensor, "n M"], second: Float[Tensor, "k M"], quadrature: Float[Tensor, " M"]
) -> float:
    """Return the exact W2 distance between two empirical laws of functions.

    Parameters
    ----------
    first, second : Tensor, shape (n, M)
        Equally weighted sample functions at the same M points.
    quadrature : Tensor, shape (M,)
        Quadrature weights: the ground distance is the L2 norm of the domain.

    Notes
    -----
    Two samples of the same law are at a positive distance, which falls slowly with n; read it
    beside the distance of two independent reference draws.
    """
    try:
        import ot  # deferred: it imports every array library there is, for seconds
    except ImportError:
        raise ImportError("wasserstein2 needs POT: pip install 'uqsonet[study]'") from None

    root = quadrature.double().sqrt()
    cost = torch.cdist(first.double() * root, second.double() * root).square().numpy()
    uniform = np.full(len(first), 1 / len(first)), np.full(len(second), 1 / len(second))
    return float(np.sqrt(max(ot.emd2(*uniform, cost, numItermax=1_000_000), 0.0)))


def bures_wasserstein2(
    mean: Float[Tensor, "*batch k"],
    covariance: Float[Tensor, "*batch k k"],
    other_mean: Float[Tensor, "*batch k"],
    other_covariance: Float[Tensor, "*batch k k"],
) -> Float[Tensor, "*batch"]:
    """Return W2 between Gaussians, batched over leading axes (float64).

    Parameters
    ----------
    mean, other_mean : Tensor, shape (..., k)
        In coordinates of an orthonormal basis.
    covariance, other_covariance : Tensor, shape (..., k, k)
    """
    root = covariance_root(covariance)
    cross = covariance_root(root @ other_covariance @ root)
    trace = (covariance + other_covariance - 2 * cross).diagonal(dim1=-2, dim2=-1).sum(-1)
    return ((mean - other_mean).square().sum(-1) + trace.clamp_min(0)).sqrt()


def ascending(samples: Float[Tensor, "n M"]) -> Float[Tensor, "M n"]:
    """Return the samples of every point in ascending order.

    CRPS, coverage and ranks need nothing else, and sorting is what they cost. numpy sorts with
    vector instructions, ten times faster than `torch.quantile` does.
    """
    return torch.from_numpy(np.sort(samples.T.contiguous().numpy(), axis=-1))


def quantile_bins(ordered: Float[Tensor, "M n"], bins: int) -> Float[Tensor, "bins M"]:
    """Return the means of equal bins of `ascending` samples: the quantile function in steps.

    Bin k holds the samples between the levels ``k / bins`` and ``(k + 1) / bins``. A sample on the
    edge of two bins counts in both, each time with its share, so any number of samples will do.

    Parameters
    ----------
    ordered : Tensor, shape (M, n)
    bins : int

    Returns
    -------
    Tensor, shape (bins, M), float64
    """
    n = ordered.shape[1]
    middle = ordered[:, n // 2 :][:, :1].double()  # sums of large offsets would lose digits
    sums = torch.nn.functional.pad((ordered.double() - middle).cumsum(1), (1, 0))
    place = torch.arange(bins + 1, dtype=torch.float64) * (n / bins)
    low = place.long().clamp_max(n - 1)
    edges = torch.lerp(sums[:, low], sums[:, low + 1], place - low)
    return (edges.diff(dim=1) * (bins / n) + middle).T


def marginal_w1(
    first: Float[Tensor, "bins M"], second: Float[Tensor, "bins M"], std: Float[Tensor, " M"]
) -> float:
    """Return the W1 distance of two laws at single points, averaged, over their mean spread.

    At a point W1 is the mean distance between quantiles of the same level (Villani 2003, theorem
    2.18). It sees the shape of a law, where mean and standard deviation see only two numbers.

    Parameters
    ----------
    first, second : Tensor, shape (bins, M)
        `quantile_bins` of samples of both laws.
    std : Tensor, shape (M,)
        Standard deviations of the law that the other one is compared with.

    Notes
    -----
    Within a bin the distance is that of the means, so W1 is a little too small: by what the laws
    differ in shape within a two-hundredth of their mass.
    """
    return float((first.double() - second.double()).abs().mean() / std.double().mean())


def crps(ordered: Float[Tensor, "M n"], truth: Float[Tensor, " M"]) -> float:
    """Return the CRPS of `ascending` samples against one outcome (M,), averaged over points.

    Unbiased (``E|X - y| - E|X - X'| / 2`` over pairs of different samples), so ensembles of
    different size compare.
    """
    n = ordered.shape[1]
    apart = _distances(ordered) / (n * (n - 1))
    return float(((ordered - truth[:, None]).abs().mean(1) - apart).mean())


def gaussian_crps(
    mean: Float[Tensor, "*batch"], std: Float[Tensor, "*batch"], truth: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return the CRPS of normal laws against outcomes, elementwise.

    In closed form (Gneiting & Raftery 2007, equation 21); without spread it is the distance.
    """
    distance = (truth - mean).abs()
    z = distance / std.clamp_min(1e-300)
    density = torch.exp(-z.square() / 2) * (2 / torch.pi) ** 0.5
    found = std * (z * (2 * torch.special.ndtr(z) - 1) + density - torch.pi**-0.5)
    return torch.where(std > 0, found, distance)


def expected_crps(ordered: Float[Tensor, "M n"], outcomes: Float[Tensor, "M k"]) -> float:
    """Return the CRPS of `ascending` samples expected under the law of outcomes, over points.

    ``E|X - Y| - E|X - X'| / 2`` over all pairs, those of X and X' of different samples: the mean of
    `crps` over outcomes, so unbiased too, at the cost of sorting. By how much two laws differ here
    is free of the chance of a single outcome, which is larger than most differences.

    Parameters
    ----------
    ordered : Tensor, shape (M, n)
    outcomes : Tensor, shape (M, k)
        `ascending` samples of the law that outcomes come from.
    """
    n, k = ordered.shape[1], outcomes.shape[1]
    pooled = ascending(torch.cat([ordered, outcomes], dim=1).T)
    apart = _distances(ordered)
    between = _distances(pooled) - apart - _distances(outcomes)
    return float((between / (n * k) - apart / (n * (n - 1))).mean())


def _distances(ordered: Float[Tensor, "M n"]) -> Float[Tensor, " M"]:
    """Return the sum of ``|x - x'|`` over pairs of ascending samples."""
    n = ordered.shape[1]
    centred = ordered - ordered[:, n // 2 :][:, :1]  # large offsets would cancel
    return centred @ (2 * torch.arange(n, dtype=ordered.dtype) - (n - 1))


def coverage(
    ordered: Float[Tensor, "M n"], truth: Float[Tensor, "*outcomes M"], levels: Sequence[float]
) -> list[float]:
    """Return the share of points (and outcomes) at which a central band holds the truth, by level.

    Parameters
    ----------
    ordered : Tensor, shape (M, n)
        `ascending` samples. Ends of bands are interpolated linearly between them.
    truth : Tensor, shape (M,) or (k, M)
        One outcome, or samples of the law that the bands should be those of.
    levels : sequence of float

    Notes
    -----
    Points without spread (a Dirichlet boundary) do not count: there a band of any level holds all
    or, by rounding, nothing.
    """
    free = _free(ordered)
    ends = [[end[free] for end in _band(ordered, level)] for level in levels]
    truth = truth[..., free]
    return [float(((truth >= a) & (truth <= b)).double().mean()) for a, b in ends]


def mass_within(
    ordered: Float[Tensor, "M n"], bins: Float[Tensor, "bins M"], levels: Sequence[float]
) -> list[float]:
    """Return the mass of another law inside central bands, averaged over points, by level.

    That is `coverage` expected under that law, free of the chance of single outcomes.

    Parameters
    ----------
    ordered : Tensor, shape (M, n)
        `ascending` samples, whose bands are meant.
    bins : Tensor, shape (bins, M)
        `quantile_bins` of the other law. Between the middles of bins, and beyond the last ones,
        its distribution function is interpolated linearly: a 95 % band of a normal law holds
        0.03 points too little with 200 bins, and half a point with 50.
    levels : sequence of float
    """
    free = _free(ordered)
    theirs = bins.double().T[free].contiguous()
    count = theirs.shape[1]

    def level_of(value: Tensor) -> Tensor:
        value = value.double()[:, None]
        right = torch.searchsorted(theirs, value).clamp(1, count - 1)
        low, high = theirs.gather(1, right - 1), theirs.gather(1, right)
        share = (value - low) / (high - low).clamp_min(1e-300)
        return ((right - 0.5 + share.clamp(-0.5, 1.5)) / count)[:, 0].clamp(0, 1)

    bands = [_band(ordered[free], level) for level in levels]
    return [float((level_of(b) - level_of(a)).mean()) for a, b in bands]


def _band(ordered: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Return the ends (M,) of a central band, interpolated between `ascending` samples."""
    last = ordered.shape[1] - 1

    def quantile(level: float) -> Tensor:
        place = level * last
        low = int(place)
        return torch.lerp(ordered[:, low], ordered[:, min(low + 1, last)], place - low)

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


def energy_score(
    samples: Float[Tensor, "n M"],
    truth: Float[Tensor, "*outcomes M"],
    quadrature: Float[Tensor, " M"],
) -> float:
    """Return the energy score of functions (n, M) in the norm of L2.

    Against one outcome (M,), or expected under the law that outcomes (k, M) are samples of.
    ``mean |X - y| - mean |X - X'| / 2`` over pairs of different samples, so unbiased. Unlike the
    CRPS it judges whole functions: wrong correlations between points cost (Gneiting & Raftery
    2007).
    """
    root = quadrature.to(samples).sqrt()
    functions, outcomes = samples * root, torch.atleast_2d(truth) * root
    size = len(functions)
    apart = float(torch.cdist(functions[None], functions[None])[0].sum()) / (size * (size - 1))
    return float(torch.cdist(functions[None], outcomes[None]).mean()) - apart / 2


def rank_shares(
    ordered: Float[Tensor, "M n"], truth: Float[Tensor, " M"], bins: int
) -> list[float]:
    """Return the share of points whose truth's rank among `ascending` samples is in each bin.

    Bins are of equal width; a calibrated law fills them equally. Points without spread (a Dirichlet
    boundary) do not count.
    """
    free = _free(ordered)
    below = torch.searchsorted(ordered, truth[:, None])[free, 0].double() / ordered.shape[1]
    index = (below * bins).long().clamp_max(bins - 1)
    counts = torch.bincount(index, minlength=bins).double()
    return (counts / counts.sum()).tolist()


def _free(ordered: Tensor) -> Tensor:
    """Return where `ascending` samples (M, n) differ by more than rounding."""
    low, high = ordered[:, 0], ordered[:, -1]
    return high - low > 1e-12 * torch.maximum(low.abs(), high.abs()).max()
