"""What a site allows: places that are forbidden, what sensors cost, how near they may stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.numbers import is_frame
from uqsonet.sensors.tables import columns_of, points_of_table, read_points

DISTANCE_ROUNDING = 1e-9  # share by which two sensors may stand nearer than the least distance


@dataclass(frozen=True)
class Site:
    """Which of m candidates may still be taken."""

    places: np.ndarray  # (m, d), NaN for coordinates that a field lacks
    allowed: np.ndarray  # (m,), those outside of forbidden regions
    cost: np.ndarray  # (m,), of a sensor at each candidate, positive
    budget: float  # what all new sensors may cost together
    distance: float  # least Euclidean one between two sensors, in the units of the coordinates
    periods: np.ndarray  # (d,), length after which an axis repeats; infinite where it does not

    def free(self, chosen: Sequence[int], there: np.ndarray) -> np.ndarray:
        """Return which candidates may be taken next (m,), given those chosen and points (k, d)."""
        free = self.allowed & (self.cost <= self.budget - self.cost[list(chosen)].sum())
        free[list(chosen)] = False
        if self.distance:
            for point in (*there, *self.places[list(chosen)]):
                free &= self._distances(point) >= self.distance * (1 - DISTANCE_ROUNDING)
        return free

    def require(self, placed: int, n: int) -> None:
        """Refuse a site that has no room for n sensors, or for a single one within the budget."""
        if placed < n and not np.isfinite(self.budget):
            raise ObservationError(
                f"n = {n}: avoid and distance leave room for {placed} of {len(self.places)} "
                "candidates; lower n or distance, or name more candidates"
            )
        if not placed:
            raise ObservationError(
                f"the cheapest candidate costs {self.cost.min():g}, more than the budget of "
                f"{self.budget:g}, or avoid leaves none"
            )

    def _distances(self, point: np.ndarray) -> np.ndarray:
        """Return the distance (m,) of each candidate from a point; lacking coordinates agree."""
        apart = np.nan_to_num(np.abs(self.places[:, : len(point)] - point))
        periods = self.periods[: len(point)]
        return np.linalg.norm(np.minimum(apart, np.abs(periods - apart)), axis=1)


def periods_of(fields: Sequence[Field], dim: int) -> np.ndarray:
    """Return the length (d,) after which each axis of some field repeats, else infinity."""
    periods = np.full(dim, np.inf)
    for field in fields:
        if isinstance(domain := field.domain, Grid):
            ends = zip(domain.lower, domain.upper, domain.repeats, strict=True)
            for axis, (low, high, repeats) in enumerate(ends):
                periods[axis] = high - low if repeats else periods[axis]
    return periods


def outside(regions: Any, places: np.ndarray, field: Field) -> np.ndarray:
    """Return which places (m, d) of a field lie outside of all forbidden regions.

    A region is ranges by the names of the field's axes, ends included; corners (k, 2) of a polygon
    in the first two coordinates; or a function of places (m, d) that says which are inside. One
    that cannot be read raises an `ObservationError`.
    """
    several = regions if isinstance(regions, list) else [regions]
    if any(np.shape(one) == (2,) for one in several):  # corners of one polygon
        several = [regions]
    free = np.ones(len(places), dtype=bool)
    for region in several:
        free &= ~_inside(region, places, field)
    return free


def region_of(text: str, field: Field) -> dict[str, tuple[float, float]] | np.ndarray:
    """Return a region from its text: ``x=0:2,y=1:3``, or a CSV file of a polygon's corners.

    It raises `ConfigError` or `DataError` if it is neither.
    """
    if "=" not in text:
        return read_points(Path(text), field).numpy()
    try:
        sides = [side.split("=") for side in text.split(",")]
        ends = {name.strip(): span.split(":") for name, span in sides}
        return {name: (float(low), float(high)) for name, (low, high) in ends.items()}
    except ValueError:
        raise ConfigError(
            f"--avoid {text!r}: ranges such as x=0:2,y=1:3 or a CSV file of corners expected"
        ) from None


def _inside(region: Any, places: np.ndarray, field: Field) -> np.ndarray:
    """Return which places (m, d) lie inside a region."""
    if callable(region):
        inside = np.asarray(region(places))
        if inside.shape != (len(places),) or inside.dtype != bool:
            raise ObservationError(
                f"avoid: a function of places (m, d) must return m truth values; found shape "
                f"{inside.shape} of {inside.dtype}"
            )
        return inside
    if isinstance(region, Mapping):
        return _in_box(region, places, field)
    if is_frame(region):
        region = points_of_table(columns_of(region, [field])[0], "avoid", field)
    corners = np.asarray(region, dtype=np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or len(corners) < 3 or places.shape[1] < 2:
        raise ObservationError(
            "avoid: a region is ranges by axis such as {'x': (0, 1)}, three or more corners (k, 2) "
            f"of a polygon in two coordinates, or a function; found shape {corners.shape}"
        )
    return _in_polygon(corners, places[:, :2])


def _in_box(region: Mapping[Any, Any], places: np.ndarray, field: Field) -> np.ndarray:
    inside = np.ones(len(places), dtype=bool)
    for name, ends in region.items():
        if name not in field.axes:
            raise ObservationError(f"avoid: no axis {name!r}; there are {', '.join(field.axes)}")
        if np.shape(ends) != (2,) or not ends[0] <= ends[1]:
            raise ObservationError(f"avoid: {name!r} needs its lower and upper end, found {ends!r}")
        x = places[:, field.axes.index(name)]
        inside &= (ends[0] <= x) & (x <= ends[1])
    return inside


def _in_polygon(corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return which points (m, 2) a ray to the right leaves through an odd number of edges."""
    x, y = points.T
    inside = np.zeros(len(points), dtype=bool)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y0 != y1:
            crossed = (y0 <= y) != (y1 <= y)
            inside ^= crossed & (x < x0 + (y - y0) / (y1 - y0) * (x1 - x0))
    return inside
