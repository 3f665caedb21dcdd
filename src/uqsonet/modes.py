"""Empirical Karhunen-Loeve (principal component) bases of functions on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.errors import ConfigError


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


def empirical_modes(functions: Tensor, count: int, key: str) -> Modes:
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
    data = functions.double()
    mean = data.mean(0)
    centred = data - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / (size - 1))
    vectors, values = vectors.flip(1), values.flip(0).clamp_min(0)
    remainder = float((values[count:].sum() / points).sqrt())
    return Modes(mean, vectors[:, :count].contiguous(), values[:count].sqrt(), remainder)
