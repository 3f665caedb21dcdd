"""Scattered points as the domain of a field, and the points of a grid that have a value."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError, ObservationError
from uqsonet.fields.grid import Grid, Interpolating
from uqsonet.fields.numbers import real_numbers

NEIGHBOURS = {1: 6, 2: 16, 3: 32}  # behind an interpolated value, by number of coordinates
HOLE, BAY = 5.0, 1.6  # radii of circles around triangles outside, over the points' distance there
UNLIKE = 10.0  # ratio of two axes of a domain from which they are not drawn to one scale
BLOCK = 4096  # locations in one batch of the neighbour search
MAX_SCATTERED = 1_000_000  # most points of a cloud that is read from a file


class Scattered(Interpolating):
    """A domain that is a list of points in a box."""

    periodic = False

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.points())

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

    def require_inside(self, locations: Tensor, what: str = "sensor") -> None:
        """Refuse locations (..., dim) outside the box around the points (`Grid.require_inside`)."""
        Grid(self.lower, self.upper, (2,) * len(self.lower)).require_inside(locations, what)

    def subgrid(self, stride: int) -> tuple[Self, Tensor]:
        """Return the domain and the numbers of its points; there is no coarser one."""
        if stride != 1:
            raise ValueError(f"scattered points have no stride, found {stride}")
        return self, torch.arange(self.size)


@dataclass(frozen=True)
class Point(Scattered):
    """The domain of a single number, the same at any place of the unit interval."""

    dim = 1

    @property
    def lower(self) -> tuple[float, ...]:
        """Lower end of the unit interval."""
        return (0.0,)

    @property
    def upper(self) -> tuple[float, ...]:
        """Upper end of the unit interval."""
        return (1.0,)

    def points(self) -> Tensor:
        """Return where the number stands by default."""
        return torch.full((1, 1), 0.5, dtype=torch.float64)

    def quadrature(self) -> Tensor:
        """Return the weight of the number."""
        return torch.ones(1, dtype=torch.float64)

    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the only point, whatever the places."""
        return torch.zeros(len(x), 1, dtype=torch.long), torch.ones(len(x), 1)


@dataclass(frozen=True)
class PointCloud(Scattered):
    """Scattered points in one to three dimensions.

    Between the points functions are interpolated by a local polyharmonic spline ``r^3`` with a
    linear polynomial (Fornberg and Flyer, A Primer on Radial Basis Functions, 2015, chapter 5):
    exact on the points and for linear functions, and a plain linear map. Distances are measured in
    the unit box, so that kilometres beside metres are as good as metres.

    Attributes
    ----------
    coordinates : bytes
        Points (n, d), float64, C order; `of` makes them from an array.
    dim : int
        Number of coordinates d.
    """

    coordinates: bytes = field(repr=False)
    dim: int

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
        """Return weights, shape (size,), that sum to the volume of the box.

        Each point has its share of the triangles that meet in it (Delaunay), so that a mean over
        the domain does not follow the refinement of a mesh.
        """
        volumes = self._shares
        extent = np.prod(np.subtract(self.upper, self.lower))
        return torch.from_numpy(volumes * (extent / volumes.sum()))

    def typical_distance(self) -> float:
        """Return the median distance from a point to its nearest neighbour."""
        nearest, _ = self._tree.query(self._unit_points()[:: max(1, self.size // 2000)], k=2)
        return float(np.median(nearest[:, 1]))

    def distances(self, locations: Tensor) -> Tensor:
        """Return how far locations (k, dim) are from the nearest point, in units of the box."""
        nearest, _ = self._tree.query(self._unit(locations.numpy()))
        return torch.from_numpy(np.atleast_1d(nearest))

    def holds(self, x: Tensor) -> Tensor:
        """Return whether places lie in triangles of the points (`Interpolating.holds`)."""
        if self.dim != 2:
            return super().holds(x)
        points = self.points().numpy()
        mesh, inside = triangles(points)
        found = mesh.find_simplex(x.numpy() / stretch(points))
        return torch.from_numpy((found >= 0) & inside[found])

    def _unit(self, locations: np.ndarray) -> np.ndarray:
        """Map locations to the unit box: what a coordinate is measured in changes no answer."""
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        return (locations - lower) / (upper - lower)

    def _unit_points(self) -> np.ndarray:
        return self._unit(self.points().numpy())

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import KDTree

        return KDTree(self._unit_points())

    @cached_property
    def _shares(self) -> np.ndarray:
        return _shares(self._unit_points())

    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest points and weights of splines (j, q) (`Interpolating.neighbours`)."""
        x = x.cpu()
        if torch.equal(x, self.points()):
            return torch.arange(len(x))[:, None], torch.ones(len(x), 1)
        nodes, places = torch.from_numpy(self._unit_points()), self._unit(x.numpy())
        parts = [_spline(nodes, one, self._tree) for one in torch.from_numpy(places).split(BLOCK)]
        index, weights = (torch.cat(part) for part in zip(*parts, strict=True))
        return index, weights


@dataclass(frozen=True)
class MaskedGrid(Scattered):
    """The points of a uniform grid that have a value; the others leave the domain.

    Between its points functions are interpolated from the nearest points that have a value
    (`PointCloud`), so that nothing is carried over from the others.
    """

    grid: Grid
    bits: bytes = field(repr=False)  # whether each point has a value, packed by `numpy.packbits`

    @classmethod
    def of(cls, grid: Grid, present: np.ndarray) -> MaskedGrid:
        """Return the part of a grid where `present`, shape (size,), is True."""
        return cls(grid, np.packbits(present).tobytes())

    @cached_property
    def present(self) -> np.ndarray:
        """Whether each point of the grid has a value, shape (grid.size,)."""
        bits = np.frombuffer(self.bits, dtype=np.uint8)
        return np.unpackbits(bits, count=self.grid.size).astype(bool)

    @cached_property
    def cloud(self) -> PointCloud:
        """The points that have a value, as a cloud."""
        return PointCloud.of(self.grid.points().numpy()[self.present])

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.grid.dim

    @property
    def size(self) -> int:
        """Number of points that have a value."""
        return int(self.present.sum())

    @property
    def lower(self) -> tuple[float, ...]:
        """Lower corner of the grid."""
        return self.grid.lower

    @property
    def upper(self) -> tuple[float, ...]:
        """Upper corner of the grid."""
        return self.grid.upper

    def points(self) -> Tensor:
        """Return the points that have a value, shape (size, dim), float64."""
        return self.cloud.points()

    def quadrature(self) -> Tensor:
        """Return the grid's weights of the points that have a value, shape (size,)."""
        return self.grid.quadrature()[torch.from_numpy(self.present)]

    def require_inside(self, locations: Tensor, what: str = "sensor") -> None:
        """Refuse locations (..., dim) outside the box, or nearest to a point without a value."""
        self.grid.require_inside(locations, what)
        absent = ~self.holds(locations.detach().to("cpu", torch.float64).reshape(-1, self.dim))
        if bool(absent.any()):
            first = int(absent.nonzero()[0, 0])
            where = locations.reshape(-1, self.dim)[first].tolist()
            raise ObservationError(
                f"{what} {first} at {where} stands where the field has no values in any run"
            )

    def holds(self, x: Tensor) -> Tensor:
        """Return whether the nearest points of the grid have a value (`Interpolating.holds`)."""
        return torch.from_numpy(self.present)[self.grid.nodes(x)[0]]

    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of the points that have a value, as of a cloud."""
        return self.cloud.neighbours(x)


def stretch(points: np.ndarray) -> np.ndarray:
    """Return what coordinates (n, d) are divided by before distances are measured, shape (d,).

    It is their extents, if these are so unlike that they are hardly lengths, else one.
    """
    extents = np.ptp(points, axis=0)
    return extents if extents.max() > UNLIKE * extents.min() > 0 else np.ones_like(extents)


def triangles(points: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return Delaunay triangles of points (n, 2), and which of these (k,) cross no hole or bay.

    The circle around a triangle says how wide a gap it spans (alpha shapes: Edelsbrunner,
    Kirkpatrick and Seidel, IEEE Trans. Inf. Theory 29, 1983). A radius is compared with the least
    of the corners' median edges, as a mesh may be fine in one place and coarse in another. What is
    `HOLE` times as wide is a hole. From there and from the hull triangles go that are `BAY` times
    as wide and blunt: their circle's centre lies beyond the side that is outside.
    """
    from scipy.spatial import Delaunay

    points = points / stretch(points)
    mesh = Delaunay(points)
    corners = points[mesh.simplices]
    to_next, to_last = (np.roll(corners, shift, axis=1) - corners for shift in (-1, 1))
    blunt = (to_next * to_last).sum(2) < 0  # at the corner across from a side
    double_area = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1]))
    radius = np.linalg.norm(to_next, axis=2).prod(1) / np.maximum(2 * double_area, 1e-300)
    start, ends = mesh.vertex_neighbor_vertices
    far = np.linalg.norm(points[ends] - np.repeat(points, np.diff(start), axis=0), axis=1)
    parts = np.split(far, start[1:-1])  # qhull leaves out points that nearly coincide with others
    typical = np.array([np.median(part) if len(part) else np.inf for part in parts])
    wide = radius / typical[mesh.simplices].min(1)
    outside, count = wide > HOLE, -1
    while count < (count := int(outside.sum())):
        bare = (mesh.neighbors < 0) | outside[mesh.neighbors]
        outside |= (bare & blunt).any(1) & (wide > BAY)
    return mesh, ~outside


def _shares(points: np.ndarray) -> np.ndarray:
    """Return each point's share (n,) of the volume that points (n, d) of the unit box span."""
    dim = points.shape[1]
    if dim == 1:
        order = np.argsort(points[:, 0])
        halves = np.diff(points[order, 0]) / 2
        shares = np.empty(len(points))
        shares[order] = np.append(halves, 0) + np.append(0, halves)
        return shares
    from scipy.spatial import Delaunay

    simplices = Delaunay(points).simplices
    edges = points[simplices[:, 1:]] - points[simplices[:, :1]]
    volumes = np.abs(np.linalg.det(edges)) / (1, 1, 2, 6)[dim]
    each = np.repeat(volumes / (dim + 1), dim + 1)
    return np.bincount(simplices.ravel(), each, len(points)) + 1e-12


def _spline(nodes: Tensor, x: Tensor, tree: Any) -> tuple[Tensor, Tensor]:
    """Return neighbours (k, j) of locations (k, d) and the weights of their values."""
    count, dim = min(NEIGHBOURS[x.shape[1]], len(nodes)), x.shape[1]
    near_by, numbers = tree.query(x.numpy(), k=count)
    distance, index = torch.from_numpy(near_by), torch.from_numpy(numbers)
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
