"""Pointwise and modal moments of laws of functions, as quantities that add and subtract.

A law of u with independent parts has the sum of their moments; a control variate subtracts its
sample moments and adds its exact ones. Everything is float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.gauss.blocks import RunningMoments

BURES_MODES = 32  # leading principal components on which the Gaussian W2 is computed


@dataclass(frozen=True)
class Moments:
    """First and second moments of functions on n points and of their k mode coefficients."""

    # (n,)
    mean: Tensor
    variance: Tensor
    mode_mean: Tensor  # (k,)
    mode_covariance: Tensor  # (k, k)

    @property
    def std(self) -> Tensor:
        """Pointwise standard deviation; a variance below zero is noise about zero."""
        return self.variance.clamp_min(0).sqrt()

    def __add__(self, other: Moments) -> Moments:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Moments(*(own + others for own, others in pairs))

    def __mul__(self, factor: float) -> Moments:
        return Moments(*(value * factor for value in vars(self).values()))

    def __sub__(self, other: Moments) -> Moments:
        return self + other * -1.0


def gaussian_moments(mean: Tensor, factor: Tensor, vectors: Tensor) -> Moments:
    """Return the moments of ``N(mean, factor @ factor.T)``.

    Parameters
    ----------
    mean : Tensor, shape (n,)
    factor : Tensor, shape (n, r)
    vectors : Tensor, shape (n, k)
        Test vectors of the modes.
    """
    modes = vectors.T @ factor
    return Moments(mean, factor.square().sum(1), vectors.T @ mean, modes @ modes.T)


class SampleMoments(RunningMoments):
    """Running unbiased moments of functions that come in blocks (B, n).

    Parameters
    ----------
    vectors : Tensor, shape (n, k)
        Test vectors of the modes.
    """

    def __init__(self, vectors: Tensor) -> None:
        super().__init__(self._modal)
        self._vectors = vectors

    def _modal(self, rows: Tensor) -> Tensor:
        coefficients = rows @ self._vectors
        return coefficients.T @ coefficients

    def finish(self) -> Moments:
        """Return mean, variance and their modal counterparts of all blocks."""
        return Moments(self.mean, self.variance, self.mean @ self._vectors, self.covariance)


def bures_basis(u: Tensor, quadrature: Tensor) -> Tensor:
    """Return test vectors (n, k): ``u @ vectors`` are leading coefficients in L2 of the domain."""
    root = quadrature.double().sqrt()
    centred = (u.double() - u.double().mean(0)) * root
    _, _, right = torch.linalg.svd(centred, full_matrices=False)
    return root[:, None] * right[:BURES_MODES].T
