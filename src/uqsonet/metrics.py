"""How far a predicted law is from the true one (section 4, metrics).

Relative errors of mean and std, Wasserstein-2 distances between samples (exact, by POT) and
between Gaussians (Bures), CRPS and coverage of central bands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scoringrules
import torch
from jaxtyping import Float
from torch import Tensor


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
    import ot  # deferred: it imports every array library there is, for seconds

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
    root = _symmetric_root(covariance)
    cross = _symmetric_root(root @ other_covariance @ root)
    trace = (covariance + other_covariance - 2 * cross).diagonal(dim1=-2, dim2=-1).sum(-1)
    return ((mean - other_mean).square().sum(-1) + trace.clamp_min(0)).sqrt()


def _symmetric_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp_min(0).sqrt()[..., None, :]) @ vectors.transpose(-1, -2)


def crps(samples: Float[Tensor, "n M"], truth: Float[Tensor, " M"]) -> float:
    """Return the CRPS of an ensemble (n, M) against one outcome (M,), averaged over points.

    By probability-weighted moments: unbiased, so ensembles of different size compare, and
    O(n log n).
    """
    # scoringrules' own default (no weights) is not of the type that it declares.
    score: Callable[..., np.ndarray] = scoringrules.crps_ensemble  # pyright: ignore
    scores = score(truth.numpy(), samples.T.numpy(), estimator="pwm")
    return float(np.asarray(scores).mean())


def coverage(
    samples: Float[Tensor, "n M"], truth: Float[Tensor, " M"], levels: Sequence[float]
) -> list[float]:
    """Return the share of points at which the central band of samples holds the truth, by level."""
    tails = [(1 - level) / 2 for level in levels]
    edges = samples.new_tensor([*tails, *(1 - tail for tail in tails)])
    lower, upper = torch.quantile(samples, edges, dim=0).split(len(tails))
    inside = (truth >= lower) & (truth <= upper)
    return inside.double().mean(1).tolist()


def energy_score(
    samples: Float[Tensor, "n M"], truth: Float[Tensor, " M"], quadrature: Float[Tensor, " M"]
) -> float:
    """Return the energy score of functions (n, M) against one outcome (M,), in the norm of L2.

    ``mean |X - y| - mean |X - X'| / 2`` over pairs of different samples, so unbiased. Unlike the
    CRPS it judges whole functions: wrong correlations between points cost (Gneiting & Raftery
    2007).
    """
    root = quadrature.to(samples).sqrt()
    functions, outcome = samples * root, truth * root
    size = len(functions)
    apart = float(torch.cdist(functions[None], functions[None])[0].sum()) / (size * (size - 1))
    return float((functions - outcome).norm(dim=1).mean()) - apart / 2


def rank_shares(
    samples: Float[Tensor, "n M"], truth: Float[Tensor, " M"], bins: int
) -> list[float]:
    """Return the share of points whose truth has a rank among the samples in each of some bins.

    Bins are of equal width; a calibrated law fills them equally. Points without spread (a Dirichlet
    boundary) do not count.
    """
    free = samples.std(0) > 1e-12 * samples.abs().max()
    below = (samples[:, free] < truth[free]).double().mean(0)
    index = (below * bins).long().clamp_max(bins - 1)
    counts = torch.bincount(index, minlength=bins).double()
    return (counts / counts.sum()).tolist()
