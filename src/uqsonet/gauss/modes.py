"""Empirical Karhunen-Loeve (principal component) bases of functions on a grid.

Functions come in row blocks and are never held as a whole. On few points their covariance is
summed and decomposed. On many points its leading eigenvectors are found by randomised subspace
iteration: the covariance is applied to `count` and some more random directions, `PASSES` times.
Eigenvalue k then has a relative error of about (lambda_l / lambda_k)^(2 PASSES), l the number of
directions: rounding for leading modes of a smooth field, per cents for the last ones of a rough
one. `std` and `remainder` belong to the vectors returned and have no such error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.gauss.blocks import RowBlocks, RunningMoments

EXACT_POINTS = 2000
"""Largest number of points for which the covariance matrix is formed (32 MB, seconds)."""

PASSES = 2
"""Number of power iterations of the randomised method."""


@dataclass(frozen=True)
class Modes:
    """Leading principal components of a sample of functions, float64.

    Attributes
    ----------
    mean : Tensor, shape (n,)
    vectors : Tensor, shape (n, k)
        Orthonormal columns, by falling variance.
    std : Tensor, shape (k,)
        Standard deviation of each coefficient.
    remainder : float
        Root mean square, over points and samples, of what k modes leave out.
    """

    mean: Tensor
    vectors: Tensor
    std: Tensor
    remainder: float

    def coefficients(self, functions: Tensor) -> Tensor:
        """Project functions (N, n) to coefficients (N, k)."""
        return (functions.double() - self.mean) @ self.vectors


def empirical_modes(functions: RowBlocks, count: int, key: str) -> Modes:
    """Return the leading `count` principal components of functions (N, n).

    Raises
    ------
    ConfigError
        If more modes are asked for than samples or points can give; `key` names the setting.
    """
    size, points = functions.shape
    most = min(size - 1, points)
    if count > most:
        raise ConfigError(
            f"{key} = {count}: {size} functions on {points} points give at most {most} modes"
        )
    if points <= EXACT_POINTS:
        return _exact(functions, count)
    return _randomised(functions, count)


def _exact(functions: RowBlocks, count: int) -> Modes:
    """Decompose the covariance, summed over blocks."""
    moments = RunningMoments(lambda rows: rows.T @ rows).add_all(functions.blocks())
    values, vectors = torch.linalg.eigh(moments.covariance)
    vectors, values = vectors.flip(1), values.flip(0).clamp_min(0)
    remainder = float((values[count:].sum() / functions.shape[1]).sqrt())
    return Modes(moments.mean, vectors[:, :count].contiguous(), values[:count].sqrt(), remainder)


def _applied(directions: Tensor, rows: Tensor) -> Tensor:
    """Return ``rows.T @ rows @ directions``, in the precision of the directions."""
    lower = rows.to(directions.dtype)
    return lower.T @ (lower @ directions)


def _randomised(functions: RowBlocks, count: int) -> Modes:
    """Find the leading eigenvectors of the covariance without forming it.

    Products with blocks are in float32 and summed in float64: they only turn the subspace. The
    last pass, which gives variances, is in float64 throughout.
    """
    size, points = functions.shape
    width = min(points, count + max(32, count // 4))
    # Part of the method and no random input: the same directions for every seed.
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(points, width, generator=generator, dtype=torch.float64)
    moments = RunningMoments()
    for _ in range(PASSES):
        moments = RunningMoments(partial(_applied, directions.float()))
        moments.add_all(functions.blocks())
        directions = torch.linalg.qr(moments.covariance).Q
    mean, gram = moments.mean, torch.zeros(width, width, dtype=torch.float64)
    for block in functions.blocks():
        coefficients = (block.double() - mean) @ directions
        gram += coefficients.T @ coefficients
    values, turn = torch.linalg.eigh(gram / (size - 1))
    values, turn = values.flip(0)[:count].clamp_min(0), turn.flip(1)[:, :count]
    # Of the vectors returned, exactly.
    left = (moments.variance.sum() - values.sum()).clamp_min(0)
    return Modes(mean, directions @ turn, values.sqrt(), float((left / points).sqrt()))
