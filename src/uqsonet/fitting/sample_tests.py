"""Tests of a law by samples and truths of many runs: ranks, TARP, a classifier of two samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from scipy.stats import chisquare

PROJECTIONS = 4
"""Number of projections of a function that a classifier sees."""

PERMUTATIONS = 400
"""Number of exchanges of truths and samples that show what chance gives."""


def tarp(samples: np.ndarray, truth: np.ndarray, reference: np.ndarray) -> float:
    """Return the share of samples (n, M) that are nearer to a reference (M,) than a truth is.

    Over runs, and with references that do not depend on the truths, it is uniform in [0, 1] for a
    calibrated law (Lemos et al., ICML 2023).
    """
    away = np.linalg.norm(samples - reference, axis=1)
    return float((away < np.linalg.norm(truth - reference)).mean())


def residuals(samples: np.ndarray, truth: np.ndarray, pick: int) -> np.ndarray:
    """Return projections (2, q) of a truth (M,) and of one of its samples (n, M), standardised.

    They are the mean over points and random ones, and have one law if truth and samples have.
    Runs that share random numbers have to pick different samples.
    """
    weights = np.random.default_rng(0).standard_normal((len(truth), PROJECTIONS))
    weights[:, 0] = 1
    drawn = samples @ weights
    both = np.stack([truth @ weights, drawn[pick % len(drawn)]])
    return (both - drawn.mean(0)) / np.maximum(drawn.std(0), np.finfo(float).tiny)


def c2st(truths: np.ndarray, samples: np.ndarray) -> tuple[float, float]:
    """Return how often a classifier tells truths from samples (B, q) of the same runs, and p.

    A point is taken for what most of its nearest others are, the root of their number (Lopez-Paz
    and Oquab, ICLR 2017; for posteriors Lueckmann et al., AISTATS 2021). The share is about 1/2 for
    a calibrated law; p is the chance of as large a one, by exchanging truth and sample of runs.
    """
    points, size = np.concatenate([truths, samples]), len(truths)
    most = int(np.sqrt(2 * size)) // 2 * 2 + 1  # odd, and so without ties
    near = np.asarray(KDTree(points).query(points, most + 1)[1])[:, 1:]
    swapped = np.random.default_rng(0).random((PERMUTATIONS + 1, size)) < 0.5
    swapped[0] = False
    true = np.concatenate([~swapped, swapped], 1)
    shares = np.array([((row[near].mean(1) > 0.5) == row).mean() for row in true])
    return float(shares[0]), float((shares >= shares[0]).mean())


def uneven(shares: Sequence[float]) -> float:
    """Return the chance that uniform shares are as uneven in [0, 1] (chi-squared)."""
    bins = max(2, min(10, len(shares) // 5))
    return float(chisquare(np.histogram(shares, bins, (0, 1))[0]).pvalue)


def seen(samples: Any, truth: Any, reference: Any, pick: int) -> tuple[float, np.ndarray]:
    """Return `tarp` and `residuals` of one run."""
    drawn, true = samples.numpy(), truth.numpy()
    return tarp(drawn, true, reference.numpy()), residuals(drawn, true, pick)


def chances(ranks: Sequence[float], runs: Sequence[tuple[float, np.ndarray]]) -> dict[str, float]:
    """Return p of ranks, and by what was `seen` of all runs that of TARP and C2ST."""
    shares, pairs = zip(*runs, strict=True)
    share, p = c2st(*np.stack(pairs, 1))
    return {"ranks_p": uneven(ranks), "tarp_p": uneven(shares), "c2st_p": p, "c2st": share}
