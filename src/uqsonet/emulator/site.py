"""What a site allows: what sensors cost, and how near they may stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uqsonet.errors import ObservationError
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid

DISTANCE_ROUNDING = 1e-9  # share by which two sensors may stand nearer than the least distance


@dataclass(frozen=True)
class Site:
    """Which of m candidates may still be taken."""

    places: np.ndarray  # (m, d), NaN for coordinates that a field lacks
    cost: np.ndarray  # (m,), of a sensor at each candidate, positive
    budget: float  # what all new sensors may cost together
    distance: float  # least Euclidean one between two sensors, in the units of the coordinates
    periods: np.ndarray  # (d,), length after which an axis repeats; infinite where it does not

    def free(self, chosen: Sequence[int], there: np.ndarray) -> np.ndarray:
        """Return which candidates may be taken next (m,), given those chosen and points (k, d)."""
        free = self.cost <= self.budget - self.cost[list(chosen)].sum()
        free[list(chosen)] = False
        if self.distance:
            for point in (*there, *self.places[list(chosen)]):
                free &= self._distances(point) >= self.distance * (1 - DISTANCE_ROUNDING)
        return free

    def require(self, placed: int, n: int) -> None:
        """Refuse a site that has no room for n sensors, or for a single one within the budget."""
        if placed < n and not np.isfinite(self.budget):
            raise ObservationError(
                f"n = {n}: distance leaves room for {placed} of {len(self.places)} candidates; "
                "lower n or distance, or name more candidates"
            )
        if not placed:
            raise ObservationError(
                f"the cheapest candidate costs {self.cost.min():g}, more than the budget of "
                f"{self.budget:g}"
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
