"""Fields: the grid a function lives on, how it is transformed, what its sensors read.

Between grid points functions are interpolated by Lagrange polynomials on the nearest `POINTS` nodes
of each axis: exact on the nodes, of sixth order between them, and a plain linear map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from uqsonet.errors import DataError, ObservationError, UQSONetError

POINTS = 6
"""Grid points along an axis that an interpolated value comes from."""

SAME = 1e-7
"""A place this near to a node, in lengths of the axis, is the node: its own float32 copy counts as
the node, without spurious weights on its neighbours."""

MOST_WHOLE = 2**53
"""Up to it float64 has every integer."""

MOST_NOISE = 1e30
"""Of a sensor: its square is finite in float64, and its value tells nothing."""


@runtime_checkable
class Domain(Protocol):
    """Where a field lives: a `Grid`, or a domain of `uqsonet.domains`, with the same meanings."""

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


def without_mask(
    value: Any, what: str, missing: bool = False, error: type[UQSONetError] = ObservationError
) -> Any:
    """Return what a caller passed without masks of `numpy.ma`, those of arrays in lists included.

    Masked values become NaN with `missing`; what has none is returned as it is. `what` names it
    in messages.

    Raises
    ------
    UQSONetError
        If values are masked and `missing` is False, or others as by `require_exact`.
    """
    parts = list(_masked_parts(value))
    count = sum(int(np.ma.count_masked(part)) for part in parts)
    if count and not missing:
        size = sum(part.size for part in parts)
        raise error(f"{what}: {count} of {size} values are masked; leave them out")
    for part in parts:
        require_exact(part.compressed(), what, error)
    return _filled(value) if count else value


def _masked_parts(value: object) -> Iterator[np.ma.MaskedArray]:
    if isinstance(value, np.ma.MaskedArray):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            if isinstance(part, list | tuple | np.ma.MaskedArray):
                yield from _masked_parts(part)


def _filled(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_filled(part) for part in value]
    if not isinstance(value, np.ma.MaskedArray) or value.dtype.kind not in "biufcO":
        return value
    whole = value.dtype.kind in "biu"
    return np.ma.filled(value.astype(np.float64) if whole else value, np.nan)


def require_exact(
    array: np.ndarray, what: str, error: type[UQSONetError] = ObservationError
) -> None:
    """Refuse integers that double precision would round: some of those beyond 2^53."""
    whole: list[Any] = []
    if array.dtype.kind == "O":
        whole = [one for one in array.flat if isinstance(one, int | np.integer)]
    elif array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        whole = array[(array > MOST_WHOLE) | (array < -MOST_WHOLE)].tolist()
    if rounded := [one for one in whole if int(float(one)) != one]:
        raise error(
            f"{what}: the integer {rounded[0]} would be rounded to {int(float(rounded[0]))}; "
            "all up to 2^53 are kept"
        )


def plain_array(
    value: Any, what: str, missing: bool = False, error: type[UQSONetError] = ObservationError
) -> np.ndarray:
    """Return what a caller passed as an array, without a mask (`without_mask`).

    Raises
    ------
    UQSONetError
        If values are masked and `missing` is False, or integers would be rounded.
    TypeError, ValueError, OverflowError or RuntimeError
        If it is no array.
    """
    if not isinstance(value, list | tuple | Tensor):
        value = np.asanyarray(value)  # with its mask, where it has one
    array = np.asarray(without_mask(value, what, missing, error))
    require_exact(array, what, error)
    return array


def real_numbers(
    value: object,
    what: str,
    device: str | None = "cpu",
    missing: bool = False,
    error: type[UQSONetError] = ObservationError,
) -> Tensor:
    """Return a copy of a caller's array as float64; `what` names it in messages.

    A tensor comes to `device`, or with None stays on its own. With `missing`, masked values
    become NaN.

    Raises
    ------
    UQSONetError
        As `plain_array`, or for a tensor that asks for gradients.
    """
    if isinstance(value, Tensor) and value.requires_grad:
        raise error(f"{what}: gradients do not flow through conditioning; pass {what}.detach()")
    if isinstance(value, Tensor) and not value.is_complex():
        if value.dtype in (torch.int64, torch.uint64):
            require_exact(value.cpu().numpy(), what, error)
        return value.to(device, torch.float64, copy=True)
    try:
        array = plain_array(value, what, missing, error)
        if array.dtype.kind not in "cSUMm":
            return torch.from_numpy(np.array(array, dtype=np.float64))
    except UQSONetError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as cause:
        raise error(f"{what} must be a numeric array ({cause})") from None
    if array.dtype.kind == "c":
        raise error(f"{what} must be real numbers, found complex ones")
    raise error(f"{what} must be a numeric array, found {array.dtype}")


def require_noise(noise_std: Tensor) -> None:
    """Refuse levels of noise that are negative or NaN, or whose square may not be finite."""
    wrong = noise_std[~((noise_std >= 0) & (noise_std <= MOST_NOISE))]
    if wrong.numel():
        raise ObservationError(
            f"noise_std must be finite, at most {MOST_NOISE:g} and not negative, found "
            f"{float(wrong.flatten()[0]):g}"
        )


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
