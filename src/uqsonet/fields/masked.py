"""A grid some of whose points have no field: land, a hole, the outside of a body."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fields.cloud import PointCloud, Scattered
from uqsonet.fields.grid import ByPoint, Grid


@dataclass(frozen=True)
class MaskedGrid(Scattered):
    """The points of a uniform grid that have a value; the others leave the domain.

    Between its points functions are interpolated from the nearest points that have a value
    (`PointCloud`), so that nothing is carried over from the others.

    Attributes
    ----------
    grid : Grid
    bits : bytes
        One bit for each point of the grid, packed by `numpy.packbits`: whether it has a value.
    """

    grid: Grid
    bits: bytes = field(repr=False)
    periodic: bool = field(default=False, init=False)

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
        """Refuse locations (..., dim) outside the box, or nearest to a point without a value.

        Raises
        ------
        ObservationError
            Naming the first offending location.
        """
        self.grid.require_inside(locations, what)
        absent = self.absent_at(locations.reshape(-1, self.dim))
        if bool(absent.any()):
            first = int(absent.nonzero()[0, 0])
            where = locations.reshape(-1, self.dim)[first].tolist()
            raise ObservationError(
                f"{what} {first} at {where} stands where the field has no values in any run"
            )

    def absent_at(self, x: Tensor) -> Tensor:
        """Return whether the grid point nearest to each location (k, dim) has no value."""
        index = torch.zeros(len(x), dtype=torch.long)
        grid = self.grid
        axes = zip(grid.shape, grid.lower, grid.spacing(), grid.repeats, strict=True)
        for k, (n, low, step, repeats) in enumerate(axes):
            place = ((x[:, k].detach().cpu().double() - low) / step).round().long()
            index = index * n + (place % n if repeats else place.clamp(0, n - 1))
        return ~torch.from_numpy(self.present)[index]

    def interpolate(self, values: Tensor | ByPoint, locations: Tensor) -> Tensor:
        """Interpolate functions (size, k) at locations (..., dim); returns (..., k)."""
        return self.cloud.interpolate(values, locations)
