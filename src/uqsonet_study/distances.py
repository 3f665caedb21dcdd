"""Distances between a predicted law and a reference posterior (section 4, metrics).

Wasserstein-2 distances between samples (exact, by POT) and between Gaussians (Bures), and scores
expected under the reference's law.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.gauss.gaussian import covariance_root
from uqsonet.gauss.metrics import ascending, pair_distances


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
    apart = pair_distances(ordered)
    between = pair_distances(pooled) - apart - pair_distances(outcomes)
    return float((between / (n * k) - apart / (n * (n - 1))).mean())
