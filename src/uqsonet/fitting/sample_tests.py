"""Tests of a law by samples and truths of many runs: ranks, TARP, a classifier of two samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from scipy.stats import chisquare


def tarp(samples: np.ndarray, truth: np.ndarray, reference: np.ndarray) -> float:
    """Return the share of samples (n, M) that are nearer to a reference (M,) than a truth is.

    Over runs, and with references that do not depend on the truths, it is uniform in [0, 1] for a
    calibrated law (Lemos et al., ICML 2023).
    """
    away = np.linalg.norm(samples - reference, axis=1)
    return float((away < np.linalg.norm(truth - reference)).mean())


def residuals(samples: np.ndarray, truth: np.ndarray, pick: int) -> np.ndarray:
    """Return 4 projections (2, 4) of a truth (M,) and of one of its samples (n, M), standardised.

    They are the mean over points and random ones, and have one law if truth and samples have.
    Runs that share random numbers have to pick different samples.
    """
    weights = np.random.default_rng(0).standard_normal((len(truth), 4))
    weights[:, 0] = 1
    drawn = samples @ weights
    both = np.stack([truth @ weights, drawn[pick % len(drawn)]])
    return (both - drawn.mean(0)) / np.maximum(drawn.std(0), np.finfo(float).tiny)


def c2st(truths: np.ndarray, samples: np.ndarray) -> tuple[float, float]:
    """Return how often a classifier tells truths from samples (B, q) of the same runs, and p.

    A point is taken for what most of its nearest others are, the root of their number (Lopez-Paz
    and Oquab, ICLR 2017; for posteriors Lueckmann et al., AISTATS 2021). The share is about 1/2 for
    a calibrated law; p is the chance of as large a one, by 400 exchanges of truths and samples.
    """
    points, size = np.concatenate([truths, samples]), len(truths)
    most = int(np.sqrt(2 * size)) // 2 * 2 + 1  # odd, and so without ties
    near = np.asarray(KDTree(points).query(points, most + 1)[1])[:, 1:]
    swapped = np.random.default_rng(0).random((401, size)) < 0.5
    swapped[0] = False
    true = np.concatenate([~swapped, swapped], 1)
    shares = np.array([((row[near].mean(1) > 0.5) == row).mean() for row in true])
    return float(shares[0]), float((shares >= shares[0]).mean())


def uneven(shares: Sequence[float]) -> float:
    """Return the chance that uniform shares are as uneven in [0, 1] (chi-squared)."""
    bins = max(2, min(10, len(shares) // 5))
    return float(chisquare(np.histogram(shares, bins, (0, 1))[0]).pvalue)


def chances(rows: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Return p of ``functional`` ranks, ``tarp`` and ``residuals`` of runs, and C2ST's share."""
    share, p = c2st(*np.stack(rows["residuals"], 1))
    ranks, distances = uneven(rows["functional"]), uneven(rows["tarp"])
    return {"ranks_p": ranks, "tarp_p": distances, "c2st_p": p, "c2st": share}
