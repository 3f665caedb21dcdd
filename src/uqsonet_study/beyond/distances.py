"""How a law that is no Gaussian field's differs: W1 at single points, and its mass inside bands."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.gauss.metrics import central_band, has_spread


def quantile_bins(ordered: Float[Tensor, "M n"], bins: int) -> Float[Tensor, "bins M"]:
    """Return the means of equal bins of `ascending` samples: the quantile function in steps.

    Bin k holds the samples between the levels ``k / bins`` and ``(k + 1) / bins``. A sample on the
    edge of two bins counts in both, each time with its share, so any number of samples will do.

    Parameters
    ----------
    ordered : Tensor, shape (M, n)

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
        0.03 points too little with 200 bins, and half a point with 50. A band holds what is equal
        to one of its ends.
    """
    free = has_spread(ordered)
    theirs = bins.double().T[free].contiguous()
    count = theirs.shape[1]

    def level_of(value: Tensor, upper: bool) -> Tensor:
        value = value.double()[:, None]
        place = torch.searchsorted(theirs, value, right=upper)
        right = place.clamp(1, count - 1)
        low, high = theirs.gather(1, right - 1), theirs.gather(1, right)
        share = (value - low) / (high - low).clamp_min(1e-300)
        level = (right - 0.5 + share.clamp(-0.5, 1.5)) / count
        tied = theirs.gather(1, (place - int(upper)).clamp(0, count - 1)) == value
        return torch.where(tied, place / count, level)[:, 0].clamp(0, 1)

    bands = [central_band(ordered[free], level) for level in levels]
    return [float((level_of(b, True) - level_of(a, False)).mean()) for a, b in bands]
