"""Gaussian processes on a grid: kernels, exact sampling, exact conditioning on noisy sensors.

A field is held as ``mean + factor @ xi`` with ``xi ~ N(0, I_r)``: the eigenfactor of the grid
covariance, cut only where eigenvalues fall below rounding; on tensor grids a Kronecker product
that is never formed. Smooth kernels then need few normals a sample, and a posterior sample costs
about what a prior one does (section 4.1, eqn:2d-gp and appendix A.2). Everything is float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from uqsonet.gauss.gaussian import GaussianLaw, condition

RELATIVE_CUT = 1e-14  # eigenvalues below this fraction of the largest are rounding noise of float64
SAME_PLACE = 1e-9  # locations closer than this to a grid point are that point

Kernel = Callable[[Tensor, Tensor], Tensor]
"""Maps locations (n, d) and (m, d) to their covariance (n, m)."""


def squared_exponential(std: float, length: float, halved: bool = False) -> Kernel:
    """Return the kernel ``std**2 exp(-|x - x'|**2 / length**2)``.

    Parameters
    ----------
    std : float
        Standard deviation of the field.
    length : float
        Correlation length, in units of the locations.
    halved : bool
        Use ``exp(-|x - x'|**2 / (2 length**2))`` instead. The paper prints the first form in one
        dimension (eqn:1d-gp) and the second in two (eqn:2d-gp); each is used as printed.
    """
    scale = (2.0 if halved else 1.0) * length**2

    def kernel(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        squared = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
        return std**2 * torch.exp(-squared / scale)

    return kernel


def matern(std: float, length: float) -> Kernel:
    """Return the Matern kernel of smoothness 3/2, ``std**2 (1 + s) exp(-s)``, s = sqrt(3) d / l.

    Parameters
    ----------
    std : float
        Standard deviation of the field.
    length : float
        Correlation length, in units of the locations.
    """

    def kernel(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        scaled = math.sqrt(3) / length * (a[:, None, :] - b[None, :, :]).norm(dim=-1)
        return std**2 * (1 + scaled) * torch.exp(-scaled)

    return kernel


Mean = Callable[[Tensor], Tensor]
"""Maps locations (k, d) to the mean or another function of place (k,)."""


def zero(locations: Tensor) -> Tensor:
    """Return the mean (k,) of a field without one."""
    return torch.zeros_like(locations[:, 0])


class _Eigenbasis:
    """Eigenfactor of a kernel on points (n, d), with its rows at any other place."""

    def __init__(self, points: Tensor, kernel: Kernel) -> None:
        values, vectors = torch.linalg.eigh(kernel(points, points))
        keep = values > values[-1] * RELATIVE_CUT
        self._values, self._vectors = values[keep].flip(0), vectors[:, keep].flip(1)
        self._points, self._kernel = points, kernel
        self.factor = self._vectors * self._values.sqrt()

    def rows(self, locations: Tensor) -> Tensor:
        """Return factor rows (k, r) at locations (k, d) by the Nystroem extension.

        It divides by eigenvalues near rounding, so points of the grid take the grid's own rows.
        """
        rows = self._kernel(locations, self._points) @ self._vectors / self._values.sqrt()
        distance, nearest = torch.cdist(locations, self._points, p=torch.inf).min(dim=1)
        return torch.where((distance < SAME_PLACE)[:, None], self.factor[nearest], rows)


class GaussianField:
    """A Gaussian random field on a fixed set of grid points.

    Parameters
    ----------
    locations : Tensor, shape (n, d)
        Grid points.
    mean : callable
        Maps locations (k, d) to the mean (k,).
    kernel : Kernel
        Covariance function.
    """

    mean: Tensor  # prior mean on the grid, shape (n,)

    def __init__(self, locations: Tensor, mean: Mean, kernel: Kernel) -> None:
        self._locations = locations.to(torch.float64)
        self._mean = mean
        self.mean = mean(self._locations)
        self._basis = _Eigenbasis(self._locations, kernel)

    @property
    def factor(self) -> Tensor:
        """Square root of the covariance on the grid, shape (n, r)."""
        return self._basis.factor

    @property
    def rank(self) -> int:
        """Number of independent normals in a sample."""
        return self._basis.factor.shape[1]

    def leading(self, count: int) -> Tensor:
        """Return the indices of the (at most) `count` coordinates that carry most variance."""
        return torch.arange(min(count, self.rank))

    def rows(
        self, locations: Float[Tensor, "k d"]
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "k r"]]:
        """Return the mean (k,) and factor rows (k, r) at any locations (k, d).

        On grid points these are the grid's own; between them the Nystroem extension
        ``k(x, X) V S**(-1/2)`` is used, exact to rounding for kernels that the grid resolves.
        """
        locations = locations.to(self._locations)
        return self._mean(locations), self._basis.rows(locations)

    def fluctuation(self, xi: Float[Tensor, "*batch r"]) -> Float[Tensor, "*batch n"]:
        """Map coordinates (..., r) to fields without their mean (..., n): a linear map."""
        return xi @ self.factor.T

    def field(self, xi: Float[Tensor, "*batch r"]) -> Float[Tensor, "*batch n"]:
        """Map coordinates (..., r) to fields (..., n)."""
        return self.mean + self.fluctuation(xi)

    def condition(
        self,
        locations: Float[Tensor, "m d"],
        values: Float[Tensor, " m"],
        noise_std: float = 0.0,
        mask: Bool[Tensor, " m"] | None = None,
    ) -> GaussianLaw:
        """Return the exact posterior given values (m,) at locations (m, d) (appendix A.2)."""
        mean, rows = self.rows(locations)
        return condition(rows, values.to(mean) - mean, noise_std, mask)

    def draw(self, generator: np.random.Generator, size: int) -> Float[Tensor, "{size} n"]:
        """Draw `size` fields."""
        return self.field(torch.from_numpy(generator.standard_normal((size, self.rank))))

    def posterior(
        self, locations: Float[Tensor, "m d"], values: Float[Tensor, " m"], noise_std: float
    ) -> ConditionedField:
        """Return the law of the field given values (m,) at locations (m, d)."""
        return ConditionedField(self, self.condition(locations, values, noise_std))


@dataclass(frozen=True)
class ConditionedField:
    """A Gaussian field whose coordinates have a posterior law."""

    field: GaussianField
    law: GaussianLaw

    def draw(self, generator: np.random.Generator, size: int) -> Float[Tensor, "{size} n"]:
        """Draw `size` fields."""
        normals = torch.from_numpy(generator.standard_normal((size, self.field.rank)))
        return self.field.field(self.law.coordinates(normals))


def _one(locations: Tensor) -> Tensor:
    return torch.ones_like(locations[:, 0])


class SeparableField(GaussianField):
    """A Gaussian field on a tensor grid whose kernel is a product over the axes.

    ``field = mean + envelope * h`` where h has covariance ``k(x_1, x_1') k(x_2, x_2') ...``: its
    factor is a Kronecker product, applied axis by axis and never formed (section 4.2, eqn:2d-gp).

    Parameters
    ----------
    axes : list of Tensor, each (n_i,)
        Grid coordinates along each axis.
    mean : callable
        Maps locations (k, d) to the mean (k,).
    kernel : Kernel
        Covariance along one axis, the same for all.
    envelope : callable, optional
        Known factor that multiplies h (section 4.5); maps locations (k, d) to (k,).
    """

    def __init__(
        self, axes: list[Tensor], mean: Mean, kernel: Kernel, envelope: Mean = _one
    ) -> None:
        axes = [axis.to(torch.float64) for axis in axes]
        mesh = torch.meshgrid(*axes, indexing="ij")
        points = torch.stack([axis.reshape(-1) for axis in mesh], dim=-1)
        self._mean, self._envelope = mean, envelope
        self.mean, self._on_grid = mean(points), envelope(points)
        self._bases = [_Eigenbasis(axis[:, None], kernel) for axis in axes]
        self.factors = [basis.factor for basis in self._bases]

    @property
    def factor(self) -> Tensor:
        """The Kronecker product of `factors` as a matrix (n, r), for checks on small grids."""
        return self.fluctuation(torch.eye(self.rank, dtype=torch.float64)).T

    @property
    def rank(self) -> int:
        """Number of independent normals in a sample: the product over the axes."""
        return math.prod(factor.shape[1] for factor in self.factors)

    def leading(self, count: int) -> Tensor:
        """Return the indices of the (at most) `count` coordinates that carry most variance."""
        variance = torch.ones(1, dtype=torch.float64)
        for factor in self.factors:
            variance = torch.outer(variance, factor.square().sum(0)).flatten()
        return variance.argsort(descending=True, stable=True)[:count]

    def rows(
        self, locations: Float[Tensor, "k d"]
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "k r"]]:
        """Return the mean (k,) and factor rows (k, r) at any locations (k, d)."""
        locations = locations.to(self.mean)
        rows = self._envelope(locations)[:, None]
        for i, basis in enumerate(self._bases):
            along = basis.rows(locations[:, i : i + 1])
            rows = (rows[:, :, None] * along[:, None, :]).flatten(1)
        return self._mean(locations), rows

    def fluctuation(self, xi: Float[Tensor, "*batch r"]) -> Float[Tensor, "*batch n"]:
        """Map coordinates (..., r) to fields without their mean (..., n), one axis at a time."""
        *first, last = self.factors
        field, behind = xi, self.rank
        for factor in first:
            behind //= factor.shape[1]
            field = factor @ field.reshape(-1, factor.shape[1], behind)
        field = field.reshape(-1, last.shape[1]) @ last.T
        return field.reshape(*xi.shape[:-1], len(self.mean)) * self._on_grid


class CosineField(GaussianField):
    """A field on a uniform grid of the unit square: independent weights on products of cosines.

    ``field(x, y) = sum_jk std(v_j^2 + v_k^2) b_j(x) b_k(y) xi_jk`` has free ends (Neumann
    conditions). Functions along an axis are ``1, sqrt2 cos(pi x), sqrt2 cos(2 pi x), ...``, as many
    as points, and ``v = 0, pi, 2 pi, ...``.

    Parameters
    ----------
    points : int
        Along each axis, both ends included.
    std : callable
        Maps eigenvalues of ``-Lap`` to standard deviations of the weights.
    """

    def __init__(self, points: int, std: Callable[[Tensor], Tensor]) -> None:
        frequency = math.pi * torch.arange(points, dtype=torch.float64)
        self._frequency, self._std = frequency, std(frequency[:, None] ** 2 + frequency**2)
        self._functions = self._along(torch.linspace(0, 1, points, dtype=torch.float64))
        self.mean = torch.zeros(points**2, dtype=torch.float64)

    def _along(self, x: Tensor) -> Tensor:
        """Return the functions (k, points) at places (k,) of an axis."""
        cosines = math.sqrt(2) * torch.cos(x[:, None] * self._frequency)
        cosines[:, 0] = 1.0
        return cosines

    @property
    def factor(self) -> Tensor:
        """Square root of the covariance on the grid, for checks on small grids."""
        return self.fluctuation(torch.eye(self.rank, dtype=torch.float64)).T

    @property
    def rank(self) -> int:
        """Number of independent normals in a sample: one for each pair of functions."""
        return self._std.numel()

    def rows(
        self, locations: Float[Tensor, "k d"]
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "k r"]]:
        """Return the mean (k,) and factor rows (k, r) at any locations (k, d)."""
        x, y = (self._along(places) for places in locations.to(self.mean).T)
        rows = (x[:, :, None] * y[:, None, :] * self._std).flatten(1)
        return torch.zeros(len(rows), dtype=torch.float64), rows

    def fluctuation(self, xi: Float[Tensor, "*batch r"]) -> Float[Tensor, "*batch n"]:
        """Map coordinates (..., r) to fields (..., n), one axis at a time."""
        weights = xi.unflatten(-1, self._std.shape) * self._std
        return (self._functions @ (weights @ self._functions.T)).flatten(-2)
