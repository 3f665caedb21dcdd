"""Grids, and what every domain of a field answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from uqsonet.errors import ObservationError

POINTS = 6
"""Number of grid points along each axis behind an interpolated value."""


SAME = 1e-7
"""A place this near to a node, in lengths of the axis, is the node: its own float32 copy counts as
the node, without spurious weights on its neighbours."""


@runtime_checkable
class Domain(Protocol):
    """The domain of a field: a `Grid`, a `PointCloud` or a `JointDomain`."""

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        ...

    @property
    def size(self) -> int:
        """Number of points."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis."""
        ...

    @property
    def lower(self) -> tuple[float, ...]:
        """Lower corner."""
        ...

    @property
    def upper(self) -> tuple[float, ...]:
        """Upper corner."""
        ...

    def points(self) -> Tensor:
        """Return all points, shape (size, dim), float64."""
        ...

    def quadrature(self) -> Tensor:
        """Return weights, shape (size,)."""
        ...

    def subgrid(self, stride: int) -> tuple[Domain, Tensor]:
        """Return every `stride`-th point and the numbers of those points."""
        ...

    def require_inside(self, locations: Tensor, what: str = "sensor") -> None:
        """Refuse locations (..., dim) outside the domain."""
        ...

    def interpolate(self, values: Tensor, locations: Tensor) -> Tensor:
        """Interpolate functions (size, k) at locations (..., dim); returns (..., k)."""
        ...


@dataclass(frozen=True)
class Grid:
    """A uniform grid on a box, last axis fastest.

    Attributes
    ----------
    lower, upper : tuple of float
        Corners of the box.
    shape : tuple of int
        Points along each axis.
    periodic : bool
        Functions repeat beyond the box: the upper end is the lower one and not a grid point.
        Otherwise both ends are grid points.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    shape: tuple[int, ...]
    periodic: bool = False

    def __post_init__(self) -> None:
        ends = zip(self.lower, self.upper, self.shape, strict=True)
        for low, high, n in ends:
            if not (math.isfinite(low) and math.isfinite(high) and low < high and n >= 2):
                raise ValueError(f"a grid of {n} points from {low} to {high} along an axis")

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    def axes(self) -> list[Tensor]:
        """Return the coordinates along each axis, float64."""
        ends = zip(self.lower, self.upper, self.shape, strict=True)
        if self.periodic:
            return [torch.linspace(a, b, n + 1, dtype=torch.float64)[:-1] for a, b, n in ends]
        return [torch.linspace(a, b, n, dtype=torch.float64) for a, b, n in ends]

    def points(self) -> Tensor:
        """Return all points, shape (size, dim), float64."""
        mesh = torch.meshgrid(*self.axes(), indexing="ij")
        return torch.stack([axis.reshape(-1) for axis in mesh], dim=-1)

    def spacing(self) -> list[float]:
        """Return the distance between neighbours along each axis."""
        last = 0 if self.periodic else 1
        ends = zip(self.lower, self.upper, self.shape, strict=True)
        return [(b - a) / (n - last) for a, b, n in ends]

    def quadrature(self) -> Tensor:
        """Return trapezoidal weights, shape (size,), that sum to the volume of the box."""
        weights = torch.ones(1, dtype=torch.float64)
        for n, h in zip(self.shape, self.spacing(), strict=True):
            axis = torch.full((n,), h, dtype=torch.float64)
            if not self.periodic:
                axis[0] = axis[-1] = h / 2
            weights = (weights[:, None] * axis).reshape(-1)
        return weights

    def subgrid(self, stride: int) -> tuple[Grid, Tensor]:
        """Return every `stride`-th point along each axis and the flat indices of those points."""
        last = 0 if self.periodic else 1
        if any((n - last) % stride for n in self.shape):
            raise ValueError(f"stride {stride} does not divide a grid of {self.shape} points")
        index = torch.arange(self.size).reshape(self.shape)
        for axis in range(self.dim):
            index = index.index_select(axis, torch.arange(0, self.shape[axis], stride))
        coarse = tuple((n - last) // stride + last for n in self.shape)
        return Grid(self.lower, self.upper, coarse, self.periodic), index.reshape(-1)

    def require_inside(self, locations: Tensor, what: str = "sensor") -> None:
        """Refuse locations (..., dim) outside the box.

        Raises
        ------
        ObservationError
            Naming the first offending location and the box.
        """
        lower = torch.tensor(self.lower, dtype=torch.float64)
        upper = torch.tensor(self.upper, dtype=torch.float64)
        flat = locations.detach().to("cpu", torch.float64).reshape(-1, self.dim)
        slack = 1e-6 * (upper - lower)  # a float32 copy of a boundary point is still inside
        outside = ~((flat >= lower - slack) & (flat <= upper + slack)).all(-1)
        if bool(outside.any()):
            first = int(outside.nonzero()[0, 0])
            raise ObservationError(
                f"{what} {first} at {flat[first].tolist()} lies outside the domain "
                f"{list(self.lower)} to {list(self.upper)}"
            )

    def interpolate(self, values: Tensor, locations: Tensor) -> Tensor:
        """Interpolate grid functions.

        Parameters
        ----------
        values : Tensor, shape (size, k)
            k functions on the grid.
        locations : Tensor, shape (..., dim)

        Returns
        -------
        Tensor, shape (..., k), dtype of `values`
            On grid points, the grid's own values.
        """
        lead = locations.shape[:-1]
        x = locations.to(values.device, torch.float64).reshape(-1, self.dim)
        places = [(x[:, k] - self.lower[k]) / h for k, h in enumerate(self.spacing())]
        if (nodes := self._nodes(places)) is not None:
            return values[nodes].reshape(*lead, values.shape[-1])
        index = torch.zeros((len(x), 1), dtype=torch.long, device=x.device)
        weights = torch.ones((len(x), 1), dtype=torch.float64, device=x.device)
        for n, position in zip(self.shape, places, strict=True):
            columns, factors = _lagrange(position, n, self.periodic)
            index = (index[:, :, None] * n + columns[:, None, :]).flatten(1)
            weights = (weights[:, :, None] * factors[:, None, :]).flatten(1)
        found = embedding_bag(
            index, values, mode="sum", per_sample_weights=weights.to(values.dtype)
        )
        return found.reshape(*lead, values.shape[-1])

    def _nodes(self, places: list[Tensor]) -> Tensor | None:
        """Return the grid points that positions (k,) along each axis are, if all are some."""
        index = torch.zeros_like(places[0], dtype=torch.long)
        for n, position in zip(self.shape, places, strict=True):
            nearest = position.round()
            if not bool(((position - nearest).abs() < SAME * n).all()):
                return None
            index = index * n + (nearest.long() % n if self.periodic else nearest.long())
        return index


def _lagrange(position: Tensor, n: int, periodic: bool) -> tuple[Tensor, Tensor]:
    """Return nodes (k, points) and Lagrange weights for positions (k,) in units of the spacing."""
    points = min(POINTS, n)
    start = position.floor() - (points // 2 - 1)
    start = start if periodic else start.clamp(0, n - points)
    offset = position - start
    nearest = offset.round()
    offset = torch.where((offset - nearest).abs() < SAME * n, nearest, offset)
    nodes = torch.arange(points, dtype=torch.float64, device=position.device)
    weights = []
    for j in range(points):
        others = torch.cat([nodes[:j], nodes[j + 1 :]])
        weights.append(((offset[:, None] - others) / (nodes[j] - others)).prod(-1))
    found = start.long()[:, None] + nodes.long()
    return found % n if periodic else found, torch.stack(weights, -1)
