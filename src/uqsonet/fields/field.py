"""A field: its domain and transform, and sensors that read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from uqsonet.errors import DataError, ObservationError
from uqsonet.fields.grid import Domain, Grid
from uqsonet.fields.numbers import real_numbers, require_noise, without_mask


@dataclass(frozen=True)
class Transform:
    """A pointwise map from the values of a field to values that a Gaussian law may describe.

    Attributes
    ----------
    name : {"identity", "log"}
        Observation noise is additive in the transformed field. With ``log`` it is therefore
        multiplicative in the field itself: ``k exp(eps)``, as in section 4.1.
    """

    name: str = "identity"

    def __post_init__(self) -> None:
        if self.name not in ("identity", "log"):
            raise ValueError(f"transform {self.name!r} is unknown; there are identity and log")

    @property
    def positive(self) -> bool:
        """Whether the field must be positive."""
        return self.name == "log"

    def forward(self, values: Tensor) -> Tensor:
        """Map values of the field to the transformed field."""
        return values.log() if self.name == "log" else values

    def inverse(self, transformed: Tensor) -> Tensor:
        """Map the transformed field to values of the field."""
        return transformed.exp() if self.name == "log" else transformed


class WeightedPoints(NamedTuple):
    """Sensors that read linear functionals: each row of weights adds up the values at points.

    Attributes
    ----------
    points : array, shape (q, d), or (B, m, q, d) where each sensor has its own
    weights : array, shape (m, q) or (B, m, q)
    """

    points: Any
    weights: Any


def centred(domain: Domain, locations: Tensor) -> Tensor:
    """Map locations (..., d) of a domain's box to [-1, 1]^d."""
    lower, upper = (locations.new_tensor(end) for end in (domain.lower, domain.upper))
    return 2 * (locations - lower) / (upper - lower) - 1


def read_at(domain: Domain, functions: Tensor, x: Tensor, weights: Tensor | None) -> Tensor:
    """Return (..., m, k) what sensors at x (..., m, d) read of functions (size, k).

    With weights (..., m, q) they read combinations of values at x (..., m, q, d).
    """
    if weights is None:
        return domain.interpolate(functions, x)
    used = weights != 0
    values = domain.interpolate(functions, x[used]) * weights[used, None].to(functions)
    found = values.new_zeros(weights.shape[:-1].numel(), values.shape[-1])
    sensor = used.flatten(0, -2).nonzero()[:, 0]
    return found.index_add_(0, sensor, values).view(*weights.shape[:-1], values.shape[-1])


@dataclass(frozen=True)
class Observations:
    """A batch of observation sets. Sets of different sizes share a batch by padding.

    Attributes
    ----------
    locations : Tensor, shape (B, m, d), or with weights (B, m, q, d)
    values : Tensor, shape (B, m)
    mask : Tensor of bool, shape (B, m)
        False on padding.
    weights : Tensor, shape (B, m, q), or None
        Of values at q points, where sensors read combinations of them.
    """

    locations: Float[Tensor, "B m *q d"]
    values: Float[Tensor, "B m"]
    mask: Bool[Tensor, "B m"]
    weights: Float[Tensor, "B m q"] | None = None

    def read(self, domain: Domain, functions: Tensor) -> Tensor:
        """Return what sensors read (B, m, k) of functions (size, k)."""
        return read_at(domain, functions, self.locations, self.weights)

    def norm(self, order: int) -> float | Tensor:
        """Return the norm (B, m) of each sensor's weights: 1 for sensors at points.

        Times the error of a value it is that of a reading: of order 2 where errors at different
        points are independent, of order 1 where they are the same.
        """
        return 1.0 if self.weights is None else self.weights.norm(order, dim=-1)

    @property
    def counts(self) -> Tensor:
        """Number of sensors in each set, shape (B,)."""
        return self.mask.sum(-1)

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> Observations:
        """Return a copy with floating-point tensors of `dtype` on `device`."""
        return Observations(
            self.locations.to(device=device, dtype=dtype),
            self.values.to(device=device, dtype=dtype),
            self.mask.to(device=device),
            None if self.weights is None else self.weights.to(device=device, dtype=dtype),
        )

    def __getitem__(self, index: slice | Tensor) -> Observations:
        weights = None if self.weights is None else self.weights[index]
        return Observations(self.locations[index], self.values[index], self.mask[index], weights)


@dataclass(frozen=True)
class Field:
    """One field: its symbol, its domain, and the transform that its law is stated in."""

    symbol: str
    grid: Domain
    transform: Transform = Transform()

    @property
    def uniform_grid(self) -> Grid:
        """The grid, where it is a uniform one.

        Raises
        ------
        DataError
            If the field lives on scattered points.
        """
        if not isinstance(self.grid, Grid):
            raise DataError(
                f"{self.symbol} lives on scattered points, and a uniform grid is needed"
            )
        return self.grid

    def observations(
        self, locations: object, values: object, mask: object = None, empty: bool = False
    ) -> tuple[Observations, bool]:
        """Check what a user passed and bring it to batch form, float64.

        Parameters
        ----------
        locations : array, shape (m, d) or (B, m, d); (m,) is taken as (m, 1)
            Anywhere in the domain.
        values : array, shape (m,) or (B, m)
            Of the field itself, not transformed.
        mask : array of bool, shape of `values`, or None for no padding
        empty : bool
            Allow sets without any sensor.

        Returns
        -------
        observations : Observations
        single : bool
            True if the arguments described one set rather than a batch.

        Raises
        ------
        ObservationError
            If a set is empty, shapes do not fit, a value is not finite or (with ``log``) not
            positive, or a location lies outside the domain.
        """
        weights = None
        if isinstance(locations, WeightedPoints):
            locations, weights = locations
        x = real_numbers(locations, "locations", None, missing=True)
        y = real_numbers(values, "values", None, missing=True)
        x = x.reshape(-1, self.grid.dim if not x.numel() else 1) if x.ndim == 1 else x
        single = y.ndim == 1
        if single:
            x, y = x[None], y[None]
        m = torch.ones_like(y, dtype=torch.bool)
        m = m if mask is None else torch.as_tensor(without_mask(mask, "mask"))
        m = m[None] if single and m.ndim == 1 else m
        if m.dtype != torch.bool:
            raise ObservationError(f"mask must be boolean, found {m.dtype}")
        lead = x.shape[:-1] if weights is None else x.shape[:-2]
        if y.ndim != 2 or lead != y.shape or m.shape != y.shape:
            raise ObservationError(
                "shapes do not fit: locations (B, m, d), values (B, m) and mask (B, m) expected, "
                f"found {tuple(x.shape)}, {tuple(y.shape)}, {tuple(m.shape)}"
            )
        if not empty and not bool(m.any(-1).all()):
            raise ObservationError("an observation set is empty: at least one sensor is needed")
        if not bool(torch.isfinite(y[m]).all() and torch.isfinite(x[m]).all()):
            raise ObservationError("sensor locations and values must be finite (found NaN or inf)")
        if self.transform.positive and not bool((y[m] > 0).all()):
            raise ObservationError(f"sensor values must be positive, found {float(y[m].min())}")
        if x.shape[-1] != self.grid.dim:
            raise ObservationError(
                f"locations have {x.shape[-1]} coordinates, the domain has {self.grid.dim}"
            )
        self.grid.require_inside(x[m])
        # Padding gets harmless values, so that nothing a caller left there can spread.
        x = torch.where(m.view(*m.shape, *[1] * (x.ndim - 2)), x, torch.zeros_like(x))
        return Observations(x, torch.where(m, y, torch.ones_like(y)), m, weights), single

    def noise(
        self, noise_std: object, observations: Observations, default: float = 0.0
    ) -> float | Tensor:
        """Check the noise that a user states.

        Parameters
        ----------
        noise_std : float, array (m,) or (B, m), or None
            Of each sensor, in the transformed field: under ``log`` it is the relative error.
        observations : Observations
        default : float
            What None stands for.

        Returns
        -------
        float, or Tensor of shape (B, m)

        Raises
        ------
        ObservationError
            If a level is negative, not finite or no number, or the shape does not fit.
        """
        found = real_numbers(
            default if noise_std is None else noise_std, "noise_std", None, missing=True
        )
        values = observations.values
        if found.ndim and found.shape != values.shape[2 - found.ndim :]:
            raise ObservationError(
                f"noise_std must be a number or of shape {tuple(values.shape)}, "
                f"found {tuple(found.shape)}"
            )
        require_noise(found if found.ndim < 2 else found[observations.mask])
        if not found.ndim:
            return float(found)
        every = found.expand_as(values)
        return torch.where(observations.mask, every, torch.ones_like(every))

    def read(
        self,
        functions: Tensor,
        index: Tensor,
        noise: Tensor | None = None,
        points: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Read functions at sensors that stand on grid points.

        Parameters
        ----------
        functions : Tensor, shape (B, n)
        index : Tensor of int, shape (B, m)
            Flat indices of grid points.
        noise : Tensor, shape (B, m), optional
            Added in the transformed field.
        points : Tensor, shape (n, d), optional
            The grid's points where a caller has them at hand.

        Returns
        -------
        locations : Tensor, shape (B, m, d)
        values : Tensor, shape (B, m)
        """
        values = functions.gather(-1, index)
        if noise is not None:
            values = self.transform.inverse(self.transform.forward(values) + noise)
        points = self.grid.points().to(functions) if points is None else points
        return points[index], values
