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

import torch
from torch import Tensor

from uqsonet.blocks import RowBlocks
from uqsonet.errors import ConfigError

EXACT_POINTS = 2000
"""Points up to which the covariance is formed; 2,000 take 32 MB and seconds."""

PASSES = 2
"""Applications of the covariance to the random directions."""


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


class _Mean:
    """The mean of row blocks, and blocks less a point near it: nothing large cancels later."""

    def __init__(self, points: int) -> None:
        self._sum = torch.zeros(points, dtype=torch.float64)
        self._size = 0
        self._shift: Tensor | None = None

    def centre(self, block: Tensor) -> Tensor:
        """Return a block (B, n) less the mean of the first block."""
        values = block.double()
        self._sum += values.sum(0)
        self._size += len(values)
        if self._shift is None:
            self._shift = values.mean(0)
        return values - self._shift

    def finish(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n,), and by how much it differs from what was subtracted."""
        assert self._shift is not None
        mean = self._sum / self._size
        return mean, mean - self._shift


def _exact(functions: RowBlocks, count: int) -> Modes:
    """Decompose the covariance, summed over blocks."""
    size, points = functions.shape
    moments, scatter = _Mean(points), torch.zeros(points, points, dtype=torch.float64)
    for block in functions.blocks():
        centred = moments.centre(block)
        scatter += centred.T @ centred
    mean, offset = moments.finish()
    scatter -= size * torch.outer(offset, offset)
    values, vectors = torch.linalg.eigh(scatter / (size - 1))
    vectors, values = vectors.flip(1), values.flip(0).clamp_min(0)
    remainder = float((values[count:].sum() / points).sqrt())
    return Modes(mean, vectors[:, :count].contiguous(), values[:count].sqrt(), remainder)


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
    mean, variance = torch.zeros(2, points, dtype=torch.float64)
    for sweep in range(PASSES):
        image = torch.zeros(points, width, dtype=torch.float64)
        single = directions.float()
        moments, squares = _Mean(points), torch.zeros(points, dtype=torch.float64)
        for block in functions.blocks():
            centred = moments.centre(block)
            if sweep == 0:
                squares += centred.square().sum(0)
            lower = centred.float()
            image += lower.T @ (lower @ single)
        mean, offset = moments.finish()
        image -= size * torch.outer(offset, offset @ directions)
        if sweep == 0:
            variance = (squares - size * offset**2) / (size - 1)
        directions = torch.linalg.qr(image).Q
    gram = torch.zeros(width, width, dtype=torch.float64)
    for block in functions.blocks():
        coefficients = (block.double() - mean) @ directions
        gram += coefficients.T @ coefficients
    values, turn = torch.linalg.eigh(gram / (size - 1))
    values, turn = values.flip(0)[:count].clamp_min(0), turn.flip(1)[:, :count]
    left = (variance.sum() - values.sum()).clamp_min(0)  # of the vectors returned, exactly
    return Modes(mean, directions @ turn, values.sqrt(), float((left / points).sqrt()))
