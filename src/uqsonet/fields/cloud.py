"""Scattered points as the domain of a field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from uqsonet.errors import DataError
from uqsonet.fields.grid import Grid
from uqsonet.fields.numbers import real_numbers

NEIGHBOURS = {1: 6, 2: 16, 3: 32}
"""Number of neighbours behind an interpolated value, by number of coordinates."""


BLOCK = 4096
"""Locations in one batch of the neighbour search."""


MAX_SCATTERED = 1_000_000
"""Most points of a cloud that is read from a file."""


class Scattered(ABC):
    """A domain that is a list of points in a box."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of points."""

    @abstractmethod
    def points(self) -> Tensor:
        """Return all points, shape (size, dim), float64."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points, as the only axis."""
        return (self.size,)

    @property
    def lower(self) -> tuple[float, ...]:
        """Lower corner of the box around the points."""
        return tuple(self.points().amin(0).tolist())

    @property
    def upper(self) -> tuple[float, ...]:
        """Upper corner of the box around the points."""
        return tuple(self.points().amax(0).tolist())

    def subgrid(self, stride: int) -> tuple[Self, Tensor]:
        """Return the domain and the numbers of its points; there is no coarser one."""
        if stride != 1:
            raise ValueError(f"scattered points have no stride, found {stride}")
        return self, torch.arange(self.size)


@dataclass(frozen=True)
class PointCloud(Scattered):
    """Scattered points in one to three dimensions.

    Between the points functions are interpolated by a local polyharmonic spline ``r^3`` with a
    linear polynomial (Fornberg and Flyer, A Primer on Radial Basis Functions, 2015, chapter 5):
    exact on the points and for linear functions, and a plain linear map.

    Attributes
    ----------
    coordinates : bytes
        Points (n, d), float64, C order; `of` makes them from an array.
    dim : int
        Number of coordinates d.
    """

    coordinates: bytes = field(repr=False)
    dim: int
    periodic: bool = field(default=False, init=False)

    @classmethod
    def of(cls, points: np.ndarray) -> PointCloud:
        """Return a cloud of points (n, d).

        Raises
        ------
        DataError
            If they are too few, not finite, all on one line or plane, or two of them coincide.
        """
        points = real_numbers(points, "points", error=DataError).numpy()
        if points.ndim != 2 or not 1 <= points.shape[1] <= 3:
            raise DataError(f"points must have shape (n, d), d = 1, 2 or 3, found {points.shape}")
        n, dim = points.shape
        if n < dim + 2:
            raise DataError(f"{n} points in {dim} dimensions: at least {dim + 2} are needed")
        if not np.isfinite(points).all():
            bad = int(np.argwhere(~np.isfinite(points))[0, 0])
            raise DataError(f"point {bad} at {points[bad].tolist()} is not finite")
        order = np.lexsort(points.T)
        same = (np.diff(points[order], axis=0) == 0).all(1)
        if same.any():
            k = int(same.argmax())
            pair = sorted(order[k : k + 2].tolist())
            raise DataError(
                f"points {pair[0]} and {pair[1]} are the same, {points[pair[0]].tolist()}, and so "
                f"are {int(same.sum()) - 1} other pairs: keep one point of each"
            )
        centred = points - points.mean(0)
        if np.linalg.matrix_rank(centred, tol=1e-9 * np.abs(centred).max()) < dim:
            raise DataError(
                f"all {n} points lie on one {'line' if dim == 2 else 'plane'}: leave out the "
                "coordinates that do not vary"
            )
        return cls(points.tobytes(), dim)

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.coordinates) // (8 * self.dim)

    def points(self) -> Tensor:
        """Return all points, shape (size, dim), float64."""
        return torch.from_numpy(np.frombuffer(self.coordinates).reshape(-1, self.dim).copy())

    def quadrature(self) -> Tensor:
        """Return equal weights, shape (size,), that sum to the volume of the box."""
        points = self.points()
        volume = float((points.amax(0) - points.amin(0)).prod())
        return torch.full((self.size,), volume / self.size, dtype=torch.float64)

    def typical_distance(self) -> float:
        """Return the median distance from a point to its nearest neighbour."""
        points = self.points()[:: max(1, self.size // 2000)]
        nearest = torch.cdist(points, self.points()).topk(2, largest=False).values[:, 1]
        return float(nearest.median())

    def require_inside(self, locations: Tensor, what: str = "sensor") -> None:
        """Refuse locations (..., dim) outside the box around the points (`Grid.require_inside`)."""
        box = Grid(self.lower, self.upper, (2,) * self.dim)
        box.require_inside(locations, what)

    def interpolate(self, values: Tensor, locations: Tensor) -> Tensor:
        """Interpolate functions (size, k) at locations (..., dim); returns (..., k)."""
        lead = locations.shape[:-1]
        x = locations.to(values.device, torch.float64).reshape(-1, self.dim)
        nodes = self.points().to(x)
        if torch.equal(x, nodes):
            return values.reshape(*lead, values.shape[-1])
        parts = []
        for block in x.split(BLOCK):
            index, weights = _spline(nodes, block)
            parts.append(
                embedding_bag(
                    index, values, mode="sum", per_sample_weights=weights.to(values.dtype)
                )
            )
        found = torch.cat(parts) if parts else values[:0]
        return found.reshape(*lead, values.shape[-1])


def _spline(nodes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return neighbours (k, j) of locations (k, d) and the weights of their values."""
    count, dim = min(NEIGHBOURS[x.shape[1]], len(nodes)), x.shape[1]
    distance, index = torch.cdist(x, nodes).topk(count, largest=False)
    scale = distance[:, -1:].clamp_min(1e-300)
    near = (nodes[index] - x[:, None, :]) / scale[..., None]
    system = x.new_zeros(len(x), count + dim + 1, count + dim + 1)
    system[:, :count, :count] = torch.cdist(near, near) ** 3
    polynomial = torch.cat([torch.ones_like(near[..., :1]), near], dim=-1)
    system[:, :count, count:] = polynomial
    system[:, count:, :count] = polynomial.transpose(1, 2)
    right = x.new_zeros(len(x), count + dim + 1)
    right[:, :count] = near.norm(dim=-1) ** 3
    right[:, count] = 1.0
    weights = torch.linalg.solve_ex(system, right).result[:, :count]
    # Where the neighbours lie on one line or plane the nearest of them answers alone; on a point,
    # that point does.
    alone = torch.zeros_like(weights)
    alone[:, 0] = 1.0
    bad = ~(weights.abs().sum(1) < 100) | (distance[:, 0] <= 1e-7 * scale[:, 0])
    return index, torch.where(bad[:, None], alone, weights)
