"""Uniform grids as the domain of a field."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from uqsonet.errors import ObservationError

POINTS = 6
"""Number of grid points along each axis behind an interpolated value."""

SAME = 1e-7
"""A place this near to a node, in lengths of the axis, is the node: its own float32 copy counts as
the node, without spurious weights on its neighbours."""


class ByPoint:
    """Functions (size, k) of which only the points that are asked for are read, float64.

    Parameters
    ----------
    shape : (int, int)
    read : callable
        Returns the values (j, k) at points of these numbers (j,).
    device : torch.device, optional
    """

    dtype = torch.float64

    def __init__(
        self,
        shape: tuple[int, int],
        read: Callable[[Tensor], Tensor],
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape, self._read, self.device = shape, read, device

    @classmethod
    def of(cls, *parts: Tensor) -> ByPoint:
        """Return tensors (size, k_i) side by side."""

        def read(points: Tensor) -> Tensor:
            return torch.cat([part[points].double() for part in parts], 1)

        width = sum(part.shape[1] for part in parts)
        return cls((len(parts[0]), width), read, parts[0].device)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, points: Tensor | slice) -> Tensor:
        """Return the values (j, k) at some points."""
        if isinstance(points, slice):
            points = torch.arange(len(self), device=self.device)[points]
        return self._read(points)

    def part(self, rows: slice) -> ByPoint:
        """Return the functions on some of the points."""
        shape = rows.stop - rows.start, self.shape[1]
        return ByPoint(shape, lambda points: self._read(points + rows.start), self.device)


def weighted_sums(values: Tensor | ByPoint, index: Tensor, weights: Tensor) -> Tensor:
    """Return sums (j, k) of functions (size, k) at points (j, q) with weights (j, q)."""
    index = index.to(values.device)
    if not len(index):
        return values[:0]
    if index.numel() < len(values):
        near, index = index.unique(return_inverse=True)
        values = values[near]
    weights = weights.to(values.device, values.dtype)
    return embedding_bag(index, values[:], mode="sum", per_sample_weights=weights)


@dataclass(frozen=True)
class Grid:
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

    def interpolate(self, values: Tensor | ByPoint, locations: Tensor) -> Tensor:
        """Interpolate grid functions.

        Parameters
        ----------
        values : Tensor or ByPoint, shape (size, k)
            k functions on the grid.
        locations : Tensor, shape (..., dim)

        Returns
        -------
        Tensor, shape (..., k), dtype of `values`
            On grid points, the grid's own values.
        """
        lead = locations.shape[:-1]
        x = locations.to(values.device, torch.float64).reshape(-1, self.dim)
        if bool(self.nodes(x[:1])[1].all()):  # one place off the grid is enough
            nodes, there = self.nodes(x)
            if bool(there.all()):
                return values[nodes].reshape(*lead, values.shape[-1])
        index = torch.zeros((len(x), 1), dtype=torch.long, device=x.device)
        weights = torch.ones((len(x), 1), dtype=torch.float64, device=x.device)
        for k, (n, step, repeats) in enumerate(zip(self.shape, self.spacing(), self.repeats)):  # noqa: B905
            columns, factors = _lagrange((x[:, k] - self.lower[k]) / step, n, repeats)
            index = (index[:, :, None] * n + columns[:, None, :]).flatten(1)
            weights = (weights[:, :, None] * factors[:, None, :]).flatten(1)
        found = weighted_sums(values, index, weights)
        return found.reshape(*lead, values.shape[-1])

    def nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the grid points (k,) next to locations (k, dim), and whether they are these."""
        index = torch.zeros(len(x), dtype=torch.long, device=x.device)
        there = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for k, (n, step, repeats) in enumerate(zip(self.shape, self.spacing(), self.repeats)):  # noqa: B905
            position = (x[:, k] - self.lower[k]) / step
            node = position.round()
            there &= (position - node).abs() < SAME * n
            index = index * n + (node.long() % n if repeats else node.long().clamp(0, n - 1))
        return index, there


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
