"""Domains of fields: several fields as one field on several domains; domains as files hold them."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from uqsonet.errors import ObservationError
from uqsonet.fields.cloud import MAX_SCATTERED, MaskedGrid, Point, PointCloud, Scattered
from uqsonet.fields.grid import Grid

MAX_GRID_POINTS = 100_000_000  # most points of a grid that is read from a file


@dataclass(frozen=True)
class JointDomain(Scattered):
    """Several domains side by side: the domain of several fields taken as one.

    The first coordinate of a location is the number of its domain; the others are the coordinates
    there, with zeros for those that it lacks.
    """

    parts: tuple[Domain, ...]

    @property
    def dim(self) -> int:
        """Number of coordinates, that of the domain included."""
        return 1 + max(part.dim for part in self.parts)

    @property
    def size(self) -> int:
        """Number of points."""
        return sum(part.size for part in self.parts)

    def locations(self, number: int | Tensor, x: Tensor) -> Tensor:
        """Return locations (..., d) in parts of these numbers as locations (..., dim) here."""
        first = torch.as_tensor(number, dtype=x.dtype, device=x.device)
        first = first.view(*first.shape, *[1] * (x.ndim - first.ndim)).expand(*x.shape[:-1], 1)
        x = x[..., : self.dim - 1]
        return pad(torch.cat([first, x], -1), [0, self.dim - 1 - x.shape[-1]])

    def points(self) -> Tensor:
        """Return all points, shape (size, dim), float64."""
        parts = enumerate(self.parts)
        return torch.cat([self.locations(number, part.points()) for number, part in parts])

    def quadrature(self) -> Tensor:
        """Return weights, shape (size,): each part's own, divided by its volume."""
        weights = [part.quadrature() for part in self.parts]
        return torch.cat([w / w.sum() for w in weights])

    def require_inside(self, locations: Tensor, what: str = "sensor") -> None:
        """Refuse locations (..., dim) outside their part (`Grid.require_inside`)."""
        for number, part in enumerate(self.parts):
            here = locations[locations[..., 0] == number]
            part.require_inside(here[:, 1 : 1 + part.dim], what)
        if not bool(((locations[..., 0] >= 0) & (locations[..., 0] < len(self.parts))).all()):
            raise ObservationError(f"the first coordinate numbers one of {len(self.parts)} domains")

    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of each place's part; fewer are filled up with the first, at weight 0."""
        parts, first = [], 0
        for number, part in enumerate(self.parts):
            here = (x[:, 0] == number).nonzero()[:, 0]
            if len(here):
                near, weights = part.neighbours(x[here, 1 : 1 + part.dim])
                parts.append((here, near.to(x.device) + first, weights))
            first += part.size
        width = max((near.shape[1] for _, near, _ in parts), default=1)
        index = torch.zeros(len(x), width, dtype=torch.long, device=x.device)
        shares = torch.zeros(len(x), width, dtype=torch.float64, device=x.device)
        for here, near, weights in parts:
            more = width - near.shape[1]
            index[here] = torch.cat([near, near[:, :1].expand(-1, more)], 1)
            shares[here] = pad(weights.to(shares), [0, more])
        return index, shares


Domain = Grid | MaskedGrid | PointCloud | Point | JointDomain
"""The domain of a field: all answer what `Grid` does."""


def join(parts: Sequence[Domain]) -> Domain:
    """Return the domain of fields taken as one: that of a single field is its own."""
    return parts[0] if len(parts) == 1 else JointDomain(tuple(parts))


def point_weights(domain: Domain) -> Tensor | None:
    """Return weights (size,), 1 on average, of points whose shares of a domain differ.

    None for the points of grids, which count alike.
    """
    if isinstance(domain, PointCloud):
        shares = domain.quadrature()
        return shares / shares.mean()
    if not isinstance(domain, JointDomain):
        return None
    parts = [point_weights(part) for part in domain.parts]
    if all(part is None for part in parts):
        return None
    ones = [torch.ones(part.size, dtype=torch.float64) for part in domain.parts]
    return torch.cat([one if part is None else part for part, one in zip(parts, ones, strict=True)])


def domain_as_dict(domain: Domain) -> dict[str, Any]:
    """Return a domain as it is stored in the header of a file."""
    if isinstance(domain, JointDomain):
        return {"parts": [domain_as_dict(part) for part in domain.parts]}
    if isinstance(domain, Point):
        return {"point": 1}
    if isinstance(domain, PointCloud):
        return {"cloud": base64.b64encode(domain.coordinates).decode(), "dim": domain.dim}
    if isinstance(domain, MaskedGrid):
        return {**domain_as_dict(domain.grid), "present": base64.b64encode(domain.bits).decode()}
    assert isinstance(domain, Grid)
    ends = {"lower": list(domain.lower), "upper": list(domain.upper)}
    return {**ends, "shape": list(domain.shape), "periodic": domain.periodic}


def domain_from_dict(stored: dict[str, Any]) -> Domain:
    """Return a domain from a header; nothing is allocated for what it only promises.

    It raises DataError, KeyError, TypeError or ValueError if the header describes none.
    """
    if "parts" in stored:
        parts = [domain_from_dict(part) for part in stored["parts"]]
        if not 1 <= len(parts) <= 100 or any(isinstance(part, JointDomain) for part in parts):
            raise ValueError(f"{len(parts)} parts of a joint domain")
        return JointDomain(tuple(parts))
    if "point" in stored:
        return Point()
    if "cloud" in stored:
        text, dim = str(stored["cloud"]), int(stored["dim"])
        if not 1 <= dim <= 3 or len(text) > 11 * dim * MAX_SCATTERED:
            raise ValueError(f"a point cloud of {len(text)} characters in {dim} dimensions")
        data = np.frombuffer(base64.b64decode(text, validate=True))
        return PointCloud.of(data.reshape(-1, dim))
    ends = [tuple(float(x) for x in stored[key]) for key in ("lower", "upper")]
    shape = tuple(int(n) for n in stored["shape"])
    if not 1 <= len(shape) <= 3 or math.prod(shape) > MAX_GRID_POINTS:
        raise ValueError(f"a grid of {shape} points")
    repeats = stored["periodic"]
    repeats = tuple(map(bool, repeats)) if isinstance(repeats, list) else bool(repeats)
    grid = Grid(ends[0], ends[1], shape, repeats)
    if "present" not in stored:
        return grid
    bits = base64.b64decode(str(stored["present"]), validate=True)
    if len(bits) != -(-grid.size // 8):
        raise ValueError(f"{len(bits)} bytes say which of {grid.size} points have a value")
    return MaskedGrid(grid, bits)
