"""Scores of a predicted law against what came true: errors, CRPS, coverage, ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

MIN_SPAN = 0.01
"""Bands do not count at points where they span a smaller share of their largest span: they hold the
value at a sensor without noise, or on a boundary, whatever their level."""


def relative_error(
    predicted: Float[Tensor, "*batch M"], reference: Float[Tensor, "*other M"]
) -> Float[Tensor, "*errors"]:
    """Return ``|predicted - reference|_2 / |reference|_2`` over the last axis."""
    return (predicted - reference).norm(dim=-1) / reference.norm(dim=-1)


def ascending(samples: Float[Tensor, "n M"]) -> Float[Tensor, "M n"]:
    """Return the samples of every point in ascending order.

    CRPS, coverage and ranks need nothing else, and sorting is what they cost. numpy sorts with
    vector instructions, ten times faster than `torch.quantile` does.
    """
    return torch.from_numpy(np.sort(samples.T.contiguous().numpy(), axis=-1))


def crps(ordered: Float[Tensor, "M n"], truth: Float[Tensor, " M"]) -> float:
    """Return the CRPS of `ascending` samples against one outcome (M,), averaged over points.

    Unbiased (``E|X - y| - E|X - X'| / 2`` over pairs of different samples), so ensembles of
    different size compare.
    """
    n = ordered.shape[1]
    apart = pair_distances(ordered) / (n * (n - 1))
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


def pair_distances(ordered: Float[Tensor, "M n"]) -> Float[Tensor, " M"]:
    """Return the sum of ``|x - x'|`` over pairs of ascending samples."""
    n = ordered.shape[1]
    centred = ordered - ordered[:, n // 2 :][:, :1]  # large offsets would cancel
    return centred @ (2 * torch.arange(n, dtype=ordered.dtype) - (n - 1))


def coverage(
    ordered: Float[Tensor, "M n"], truth: Float[Tensor, "*outcomes M"], levels: Sequence[float]
) -> list[float]:
    """Return the share of points (and outcomes) at which a central band holds the truth, by level.

    `ordered` (M, n) are `ascending` samples; ends of bands are interpolated linearly between them.
    The truth is one outcome (M,), or samples (k, M) of the law that the bands should be those of.
    Points without spread (a Dirichlet boundary) do not count: there a band of any level holds all
    or, by rounding, nothing.
    """
    free = has_spread(ordered)
    ends = [[end[free] for end in central_band(ordered, level)] for level in levels]
    truth = truth[..., free]
    return [float(((truth >= a) & (truth <= b)).double().mean()) for a, b in ends]


def central_band(ordered: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Return the ends (M,) of a central band, interpolated between `ascending` samples."""
    return quantile(ordered, (1 - level) / 2), quantile(ordered, (1 + level) / 2)


def quantile(ordered: Tensor, level: float) -> Tensor:
    """Return a quantile (M,), interpolated linearly between `ascending` samples (M, n)."""
    last = ordered.shape[1] - 1
    place = level * last
    low = int(place)
    return torch.lerp(ordered[:, low], ordered[:, min(low + 1, last)], place - low)


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
    free = has_spread(ordered)
    below = torch.searchsorted(ordered, truth[:, None])[free, 0].double() / ordered.shape[1]
    index = (below * bins).long().clamp_max(bins - 1)
    counts = torch.bincount(index, minlength=bins).double()
    return (counts / counts.sum()).tolist()


def has_spread(ordered: Tensor) -> Tensor:
    """Return where `ascending` samples (M, n) differ by more than rounding."""
    low, high = ordered[:, 0], ordered[:, -1]
    return high - low > 1e-12 * torch.maximum(low.abs(), high.abs()).max()
