"""Uniform grids as the domain of a field."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from uqsonet.errors import ObservationError

STENCIL = 6  # number of grid points along each axis behind an interpolated value

SAME_PLACE = 1e-7
"""A place this near to a node, in lengths of the axis, is the node: its own float32 copy counts as
the node, without spurious weights on its neighbours."""


Values = Tensor | Callable[[Tensor], Tensor]
"""Functions (size, k), or what returns their values (j, k) at points of these numbers (j,): of long
functions only the points that are needed are then read."""


class Interpolating(ABC):
    """A domain whose functions are known between its points."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of points."""

    @abstractmethod
    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the points behind values at places x (j, dim), float64, and their weights.

        Numbers of points and weights are (j, q). Weights sum to one, so a single point, where the
        place is one of the domain's own, has weight one.
        """

    def holds(self, x: Tensor) -> Tensor:
        """Return whether the field has values at places x (j, dim) of the box, shape (j,)."""
        return torch.ones(len(x), dtype=torch.bool)

    def interpolate(self, values: Values, locations: Tensor) -> Tensor:
        """Return functions (size, k) at locations (..., dim) as (..., k), of their own dtype.

        On points of the domain these are their own values.
        """
        x = locations.detach().to(torch.float64).reshape(-1, locations.shape[-1])
        if not len(x):  # sensors that are not there may have coordinates of another field
            none = values_at(values, torch.zeros(0, dtype=torch.long))
            return none.reshape(*locations.shape[:-1], none.shape[1])
        index, weights = self.neighbours(x)
        if index.shape[1] == 1:
            found = values_at(values, index[:, :1].flatten())
        else:
            if index.numel() < self.size:
                near, index = index.unique(return_inverse=True)
                values = values_at(values, near)
            elif not isinstance(values, Tensor):
                values = values(torch.arange(self.size))
            index, weights = index.to(values.device), weights.to(values.device, values.dtype)
            found = embedding_bag(index, values, mode="sum", per_sample_weights=weights)
        return found.reshape(*locations.shape[:-1], found.shape[-1])


def values_at(values: Values, points: Tensor) -> Tensor:
    """Return the values (j, k) of functions at points of these numbers (j,)."""
    return values[points.to(values.device)] if isinstance(values, Tensor) else values(points)


@dataclass(frozen=True)
class Grid(Interpolating):
    """A uniform grid on a box, last axis fastest.

    Attributes
    ----------
    lower, upper : tuple of float
        Corners of the box.
    shape : tuple of int
        Points along each axis.
    periodic : bool, or tuple of bool for each axis
        Functions repeat beyond the box: the upper end is the lower one and not a grid point.
        Otherwise both ends are grid points.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    shape: tuple[int, ...]
    periodic: bool | tuple[bool, ...] = False

    def __post_init__(self) -> None:
        if len(set(self.repeats)) == 1:
            object.__setattr__(self, "periodic", self.repeats[0])
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

    @property
    def repeats(self) -> tuple[bool, ...]:
        """Whether functions repeat along each axis."""
        if isinstance(self.periodic, tuple):
            return self.periodic
        return (bool(self.periodic),) * self.dim

    def axes(self) -> list[Tensor]:
        """Return the coordinates along each axis, float64."""
        ends = zip(self.lower, self.upper, self.shape, self.repeats, strict=True)
        return [torch.linspace(a, b, n + r, dtype=torch.float64)[:n] for a, b, n, r in ends]

    def points(self) -> Tensor:
        """Return all points, shape (size, dim), float64."""
        mesh = torch.meshgrid(*self.axes(), indexing="ij")
        return torch.stack([axis.reshape(-1) for axis in mesh], dim=-1)

    def spacing(self) -> list[float]:
        """Return the distance between neighbours along each axis."""
        ends = zip(self.lower, self.upper, self.shape, self.repeats, strict=True)
        return [(b - a) / (n - 1 + r) for a, b, n, r in ends]

    def quadrature(self) -> Tensor:
        """Return trapezoidal weights, shape (size,), that sum to the volume of the box."""
        weights = torch.ones(1, dtype=torch.float64)
        for n, h, repeats in zip(self.shape, self.spacing(), self.repeats, strict=True):
            axis = torch.full((n,), h, dtype=torch.float64)
            if not repeats:
                axis[0] = axis[-1] = h / 2
            weights = (weights[:, None] * axis).reshape(-1)
        return weights

    def subgrid(self, stride: int) -> tuple[Grid, Tensor]:
        """Return every `stride`-th point along each axis and the flat indices of those points."""
        sizes = [(n, 1 - r) for n, r in zip(self.shape, self.repeats, strict=True)]
        if any((n - last) % stride for n, last in sizes):
            raise ValueError(f"stride {stride} does not divide a grid of {self.shape} points")
        index = torch.arange(self.size).reshape(self.shape)
        for axis in range(self.dim):
            index = index.index_select(axis, torch.arange(0, self.shape[axis], stride))
        coarse = tuple((n - last) // stride + last for n, last in sizes)
        return Grid(self.lower, self.upper, coarse, self.periodic), index.reshape(-1)

    def require_inside(self, locations: Tensor, what: str = "sensor") -> None:
        """Refuse locations (..., dim) outside the box.

        Raises
        ------
        ObservationError
            Naming the first offending location and the box.
        """
        flat = locations.detach().to("cpu", torch.float64).reshape(-1, self.dim)
        outside = ~inside(self.lower, self.upper, flat)
        if bool(outside.any()):
            first = int(outside.nonzero()[0, 0])
            raise ObservationError(
                f"{what} {first} at {flat[first].tolist()} lies outside the domain "
                f"{list(self.lower)} to {list(self.upper)}"
            )

    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return grid points and Lagrange weights (j, q) (`Interpolating.neighbours`)."""
        nodes, there = self.nodes(x)
        if bool(there.all()):
            return nodes[:, None], torch.ones_like(nodes[:, None])
        index = torch.zeros((len(x), 1), dtype=torch.long, device=x.device)
        weights = torch.ones((len(x), 1), dtype=torch.float64, device=x.device)
        for k, (n, step, repeats) in enumerate(zip(self.shape, self.spacing(), self.repeats)):  # noqa: B905
            columns, factors = _lagrange((x[:, k] - self.lower[k]) / step, n, repeats)
            index = (index[:, :, None] * n + columns[:, None, :]).flatten(1)
            weights = (weights[:, :, None] * factors[:, None, :]).flatten(1)
        return index, weights

    def nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the grid points (k,) next to locations (k, dim), and whether they are these."""
        index = torch.zeros(len(x), dtype=torch.long, device=x.device)
        there = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for k, (n, step, repeats) in enumerate(zip(self.shape, self.spacing(), self.repeats)):  # noqa: B905
            position = (x[:, k] - self.lower[k]) / step
            node = position.round()
            there &= (position - node).abs() < SAME_PLACE * n
            index = index * n + (node.long() % n if repeats else node.long().clamp(0, n - 1))
        return index, there


def inside(lower: Sequence[float], upper: Sequence[float], locations: Tensor) -> Tensor:
    """Return which locations (..., d), float64, are inside a box."""
    low, high = (torch.tensor(end, dtype=torch.float64) for end in (lower, upper))
    slack = 1e-6 * (high - low)  # a float32 copy of a boundary point is still inside
    return ((locations >= low - slack) & (locations <= high + slack)).all(-1)


def _lagrange(position: Tensor, n: int, periodic: bool) -> tuple[Tensor, Tensor]:
    """Return nodes (k, points) and Lagrange weights for positions (k,) in units of the spacing."""
    points = min(STENCIL, n)
    start = position.floor() - (points // 2 - 1)
    start = start if periodic else start.clamp(0, n - points)
    offset = position - start
    nearest = offset.round()
    offset = torch.where((offset - nearest).abs() < SAME_PLACE * n, nearest, offset)
    nodes = torch.arange(points, dtype=torch.float64, device=position.device)
    weights = []
    for j in range(points):
        others = torch.cat([nodes[:j], nodes[j + 1 :]])
        weights.append(((offset[:, None] - others) / (nodes[j] - others)).prod(-1))
    found = start.long()[:, None] + nodes.long()
    return found % n if periodic else found, torch.stack(weights, -1)
