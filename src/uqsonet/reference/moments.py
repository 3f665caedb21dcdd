"""Pointwise and modal moments of laws of functions, as quantities that add and subtract.

A law of u with independent parts has the sum of their moments; a control variate subtracts its
sample moments and adds its exact ones. Everything is float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.gaussian import GaussianLaw

BURES_MODES = 32
"""Leading principal components on which the Gaussian W2 is computed."""


@dataclass(frozen=True)
class Moments:
    """First and second moments of functions on n points and of their k mode coefficients.

    Attributes
    ----------
    mean, variance : Tensor, shape (n,)
    mode_mean : Tensor, shape (k,)
    mode_covariance : Tensor, shape (k, k)
    """

    mean: Tensor
    variance: Tensor
    mode_mean: Tensor
    mode_covariance: Tensor

    @property
    def std(self) -> Tensor:
        """Pointwise standard deviation; a variance below zero is noise about zero."""
        return self.variance.clamp_min(0).sqrt()

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.mean + other.mean,
            self.variance + other.variance,
            self.mode_mean + other.mode_mean,
            self.mode_covariance + other.mode_covariance,
        )

    def __mul__(self, factor: float) -> Moments:
        return Moments(
            self.mean * factor,
            self.variance * factor,
            self.mode_mean * factor,
            self.mode_covariance * factor,
        )

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


class AffineImage:
    """Exact moments of ``offset + xi @ response`` under Gaussian laws of the coordinates xi.

    Parameters
    ----------
    offset : Tensor, shape (n,)
    response : Tensor, shape (r, n)
    vectors : Tensor, shape (n, k)
        Test vectors of the modes.
    """

    def __init__(self, offset: Tensor, response: Tensor, vectors: Tensor) -> None:
        self._response, self._vectors = response, vectors
        self._prior = gaussian_moments(offset, response.T, vectors)

    def moments(self, law: GaussianLaw) -> Moments:
        """Return the moments: those of the prior, less what the sensors take away."""
        taken = (1 - (1 - law.shrink) ** 2).sqrt()[:, None] * law.directions
        shift = law.mean @ self._response
        return self._prior - gaussian_moments(-shift, (taken @ self._response).T, self._vectors)


class SampleMoments:
    """Running unbiased moments of functions that come in blocks (B, n)."""

    def __init__(self, vectors: Tensor) -> None:
        points, modes = vectors.shape
        self._vectors, self._size = vectors, 0
        self._shift: Tensor | None = None
        self._sum, self._square = torch.zeros(points).double(), torch.zeros(points).double()
        self._modes, self._cross = torch.zeros(modes).double(), torch.zeros(modes, modes).double()

    def add(self, u: Tensor) -> None:
        """Take in a block of functions (B, n)."""
        if self._shift is None:  # sums of squares about a nearby point lose no digits
            self._shift = u.mean(0)
        centred = u - self._shift
        coefficients = centred @ self._vectors
        self._size += len(u)
        self._sum += centred.sum(0)
        self._square += centred.square().sum(0)
        self._modes += coefficients.sum(0)
        self._cross += coefficients.T @ coefficients

    def finish(self) -> Moments:
        """Return mean, variance and their modal counterparts of all blocks."""
        assert self._shift is not None
        mean, modes = self._sum / self._size, self._modes / self._size
        variance = (self._square - self._size * mean**2) / (self._size - 1)
        covariance = (self._cross - self._size * torch.outer(modes, modes)) / (self._size - 1)
        mode_mean = modes + self._shift @ self._vectors
        return Moments(mean + self._shift, variance, mode_mean, covariance)


def bures_basis(u: Tensor, quadrature: Tensor) -> Tensor:
    """Return test vectors (n, k): ``u @ vectors`` are leading coefficients in L2 of the domain."""
    root = quadrature.double().sqrt()
    centred = (u.double() - u.double().mean(0)) * root
    _, _, right = torch.linalg.svd(centred, full_matrices=False)
    return root[:, None] * right[:BURES_MODES].T
