"""Sensors: where they stand, what they read of which field, and how exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from uqsonet.errors import ObservationError, nearest
from uqsonet.fields.field import AXES, Field
from uqsonet.fields.grid import Values
from uqsonet.fields.numbers import (
    real_numbers,
    require_no_frame,
    require_noise,
    without_mask,
)
from uqsonet.fields.stacked import Domain

COLUMNS = (*AXES, "value", "field", "noise_std", "set")

MAX_PLACES = 20_000_000  # coordinates of padded sets of sensors


class WeightedPoints(NamedTuple):
    """Sensors that read linear functionals, as averages over a region or fluxes as differences.

    Each row of weights adds up the values at points. What it sees of a mean, or of a mode, is the
    weighted sum of their values there, so laws that are linear in the coefficients take it as they
    take a value at a point. An average of k is not linear in log k, and no instrument reads an
    average of log k: under a logarithm functionals are refused.

    Attributes
    ----------
    points : array, shape (q, d)
    weights : array, shape (m, q)
    """

    points: Any
    weights: Any


@dataclass(frozen=True)
class Sensors:
    """B sets of sensors, padded to the same number m.

    `noise_std` (B, m) is that of the transformed fields; NaN, the default, stands for the model's
    own noise. `field` (B, m) is the number of the field that a sensor reads, by default 0.
    """

    locations: Tensor  # (B, m, d), zeros for coordinates that a field lacks; weighted (B, m, q, d)
    values: Tensor  # (B, m), of the fields themselves, not transformed
    mask: Tensor  # (B, m), bool, False on padding
    weights: Tensor | None = None  # (B, m, q): what sensors add up of their field's values
    noise_std: Tensor = None  # type: ignore[assignment]
    field: Tensor = None  # type: ignore[assignment]
    labels: list[str] = attribute(default_factory=list)  # names of the sets
    single: bool = False  # one set rather than a batch
    kind: str = "torch"  # the caller's arrays: numpy or torch

    def __post_init__(self) -> None:
        if self.noise_std is None:
            object.__setattr__(self, "noise_std", torch.full_like(self.values, torch.nan))
        if self.field is None:
            object.__setattr__(self, "field", torch.zeros_like(self.mask, dtype=torch.long))

    @property
    def at_points(self) -> Tensor:
        """Which sensors (B, m) read the value at one point."""
        if self.weights is None:
            return self.mask
        return self.mask & ((self.weights == 1).sum(2) == 1) & ((self.weights != 0).sum(2) == 1)

    @property
    def counts(self) -> Tensor:
        """Number of sensors in each set, shape (B,)."""
        return self.mask.sum(-1)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice | Tensor) -> Sensors:
        """Return some of the sets."""
        rows = torch.arange(len(self))[part].tolist() if self.labels else []
        labels = [self.labels[row] for row in rows]
        return replace(self.each(lambda t: t[part]), labels=labels)

    def alone(self, row: int) -> Sensors:
        """Return one of the sets without its padding."""
        used = self.mask[row]
        return self[row : row + 1].each(lambda t: t[:, used])

    def named(self, row: int) -> str:
        """Return which set a message is about: nothing where there is one."""
        return "" if self.single else f" of set {self.labels[row]}"

    def each(self, change: Callable[[Tensor], Tensor]) -> Sensors:
        """Return the sets with every tensor changed in the same way."""
        return replace(self, **{name: change(getattr(self, name)) for name in self.tensors()})

    def tensors(self) -> list[str]:
        """Return the names of the tensors, of `weights` only where there are some."""
        names = ["field", "locations", "values", "noise_std", "mask"]
        return names if self.weights is None else [*names, "weights"]

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> Sensors:
        """Return a copy with floating-point tensors of `dtype` on `device`."""
        return self.each(
            lambda t: t.to(device=device, dtype=dtype if t.is_floating_point() else t.dtype)
        )

    def read(self, domain: Domain, functions: Values) -> Tensor:
        """Return what sensors read (B, m, k) of functions (size, k)."""
        x, weights = self.locations, self.weights
        if weights is None:
            return domain.interpolate(functions, x)
        used = weights != 0
        values = domain.interpolate(functions, x[used])
        values = values * weights[used, None].to(values)
        found = values.new_zeros(weights.shape[:-1].numel(), values.shape[-1])
        sensor = used.flatten(0, -2).nonzero()[:, 0]
        return found.index_add_(0, sensor, values).view(*weights.shape[:-1], values.shape[-1])

    def norm(self, order: int) -> float | Tensor:
        """Return the norm (B, m) of each sensor's weights: 1 for sensors at points.

        Times the error of a value it is that of a reading: of order 2 where errors at different
        points are independent, of order 1 where they are the same.
        """
        return 1.0 if self.weights is None else self.weights.norm(order, dim=-1)

    def noise(self, default: float = 0.0) -> Tensor:
        """Return the noise (B, m), float64: `default` where none is stated, one on padding."""
        return self.noise_std.double().nan_to_num(nan=default).masked_fill(~self.mask, 1.0)

    def noise_level(self, default: float = 0.0) -> float | Tensor:
        """Return `noise`, as one number where all sensors have the same."""
        noise = self.noise(default)
        levels = noise[self.mask]
        if not levels.numel():
            return default
        return float(levels[0]) if bool((levels == levels[0]).all()) else noise


def side_by_side(found: Sequence[Sensors]) -> Sensors:
    """Return sensors (B, m_k) as one (B, sum of m_k), with as many coordinates, and points, each.

    Where some have weights, sensors at points have the weight one, and zero on other points.
    """
    dim = max(one.locations.shape[-1] for one in found)
    most = max(0 if one.weights is None else one.weights.shape[2] for one in found)
    parts = []
    for one in found:
        x, weights = pad(one.locations, [0, dim - one.locations.shape[-1]]), one.weights
        if most and weights is None:
            x, weights = x[:, :, None], one.mask[..., None].double()
        if weights is not None:
            more = most - weights.shape[2]
            x = torch.cat([x, x[:, :, :1].expand(-1, -1, more, -1)], 2)
            weights = pad(weights, [0, more])
        parts.append(replace(one, locations=x, weights=weights))
    kind = "torch" if any(one.kind == "torch" for one in found) else "numpy"
    names = parts[0].tensors()
    joined = {name: torch.cat([getattr(one, name) for one in parts], 1) for name in names}
    return replace(parts[0], kind=kind, **joined)


def in_sets(sensors: Sensors, members: Mapping[str, Sequence[int]], single: bool) -> Sensors:
    """Return sensors (1, S) as sets, given by the numbers of their members, padded to the largest.

    Where padding would make too many of them, they are refused.
    """
    rows = [torch.tensor(own, dtype=torch.long) for own in members.values()]
    places = len(rows) * max(map(len, rows)) * sensors.locations[0, :1].numel()
    if places > MAX_PLACES:
        raise ObservationError(
            f"sensors padded to the largest set, and to the most points, have {places} "
            f"coordinates, at most {MAX_PLACES}: ask about sets of other sizes one by one"
        )
    found = sensors.each(lambda t: pad_sequence([t[0, own] for own in rows], batch_first=True))
    values = found.values.masked_fill(~found.mask, 1.0)
    return replace(found, values=values, labels=list(members), single=single)


def one_after_another(found: Sequence[Sensors]) -> Sensors:
    """Return the sets of several batches as one batch, without their padding, padded anew."""
    flat = side_by_side([one.each(lambda t, one=one: t[one.mask][None]) for one in found])
    sizes = [int(count) for one in found for count in one.counts]
    parts = torch.arange(sum(sizes)).split(sizes)
    labels = [label for one in found for label in one.labels]
    members = {str(k): part.tolist() for k, part in enumerate(parts)}
    return replace(in_sets(flat, members, False), labels=labels)


def no_sensors(fields: Sequence[Field]) -> Sensors:
    """Return one set without a sensor."""
    dim = max(field.domain.dim for field in fields)
    empty = torch.zeros(1, 0, dtype=torch.float64)
    locations = torch.zeros(1, 0, dim, dtype=torch.float64)
    return Sensors(locations, empty, empty.bool(), labels=["0"], single=True, kind="numpy")


def field_number(fields: Sequence[Field], name: str, what: str = "field") -> int:
    """Return the number of a field by its name; an error has the names, and the nearest."""
    names, name = [field.name for field in fields], str(name)
    if name in names:
        return names.index(name)
    there = f"{', '.join(names)}{nearest(name, names)}"
    raise ObservationError(f"{what} {name!r} is unknown; there are {there}")


def noise_levels(noise_std: object, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the noise (B, m) of sensors that read values (B, m), NaN where none is stated.

    It refuses levels that are negative, not finite or no number, and shapes that do not fit.
    """
    if noise_std is None:
        return torch.full_like(values, torch.nan)
    padded = mask is not None and not bool(mask.all())
    noise = real_numbers(noise_std, "noise_std", None, missing=padded)
    try:
        every = noise.expand_as(values).clone()
    except RuntimeError:
        raise ObservationError(
            f"noise_std must be a number or one for each sensor, {tuple(values.shape)}; found "
            f"{tuple(noise.shape)}"
        ) from None
    require_noise(noise if mask is None or not noise.ndim else every[mask])
    return every


def sensors_at(
    field: Field,
    locations: object,
    values: object,
    mask: object = None,
    noise_std: object = None,
    *,
    number: int = 0,
    device: str | None = None,
) -> Sensors:
    """Return sensors of one field at points, from arrays; nothing but their form is checked.

    Locations are (m, d) or (B, m, d), and (m,) where d is 1; values and mask are (m,) or (B, m).
    The field has this `number` among others. Tensors come to `device`; by default they stay on
    their own. Shapes and types that do not fit are an `ObservationError`.
    """
    if values is None:
        raise ObservationError("shapes do not fit: locations without values")
    dim = field.domain.dim
    require_no_frame(locations, "locations")
    x, y = (
        real_numbers(one, what, device, missing=True)  # padding may be masked
        for one, what in ((locations, "locations"), (values, "values"))
    )
    y = y[None] if y.ndim == 0 else y
    x = x.reshape(-1, dim) if x.ndim < 2 and (dim == 1 or x.numel() in (0, dim)) else x
    single = y.ndim == 1
    if single:
        x, y = x[None], y[None]
    if x.ndim == 2 and dim == 1 and x.shape == y.shape:
        if x.shape[1] == 1 < len(x):
            raise ObservationError(
                f"values of shape {tuple(y.shape)} may be one set or many: one of {len(x)} sensors "
                f"has shape ({len(x)},), and {len(x)} sets of one sensor each have locations of "
                f"shape ({len(x)}, 1, 1)"
            )
        x = x[..., None]
    elif x.ndim == 2:
        x = x.expand(len(y), *x.shape)
    if x.ndim == 3 and x.shape[-1] != dim:
        raise ObservationError(
            f"locations have {x.shape[-1]} coordinates, {field.name} has {dim} "
            f"({', '.join(AXES[:dim])})"
        )
    m = torch.ones_like(y, dtype=torch.bool) if mask is None else _booleans(mask)
    m = m[None] if single and m.ndim == 1 else m
    if y.ndim != 2 or x.shape[:-1] != y.shape or m.shape != y.shape or not len(y):
        raise ObservationError(
            "shapes do not fit: locations (B, m, d), values (B, m) and mask (B, m) expected, "
            f"found {tuple(x.shape)}, {tuple(y.shape)}, {tuple(m.shape)}"
        )
    noise = noise_levels(noise_std, y, m)
    # Padding gets harmless values, so that nothing a caller left there can spread.
    x = torch.where(m[..., None], field.wrapped(x), torch.zeros_like(x))
    y = torch.where(m, y, torch.ones_like(y))
    labels = [str(k) for k in range(len(y))]
    kind = "torch" if isinstance(locations, Tensor) or isinstance(values, Tensor) else "numpy"
    return Sensors(x, y, m, None, noise, torch.full(y.shape, number), labels, single, kind)


def _booleans(mask: object) -> Tensor:
    """Return a mask as a tensor; it refuses what is not boolean."""
    require_no_frame(mask, "mask")
    try:
        found = torch.as_tensor(without_mask(mask, "mask"))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ObservationError(f"mask must be boolean ({error})") from None
    if found.dtype != torch.bool:
        raise ObservationError(f"mask must be boolean, found {found.dtype}")
    return found


def checked_sensors(
    field: Field, locations: object, values: object, mask: object = None, noise_std: object = None
) -> Sensors:
    """Return sensors of one field from a caller's arrays, checked.

    It is an `ObservationError` if shapes do not fit, a value is not finite or (under ``log``) not
    positive, or a location lies outside the domain.
    """
    sensors = sensors_at(field, locations, values, mask, noise_std)
    require_readings(sensors, field, sensors.mask, "sensor values")
    field.domain.require_inside(sensors.locations[sensors.mask])
    return sensors


def require_readings(sensors: Sensors, field: Field, here: Tensor, what: str) -> None:
    """Refuse sensors (B, m) of a field whose places or values are no numbers that it can have."""
    x, y = sensors.locations[here][..., : field.domain.dim], sensors.values[here]
    if not bool(y.isfinite().all() & x.isfinite().all()):
        raise ObservationError("sensor locations and values must be finite (found NaN or inf)")
    if field.transform.positive and not bool((y > 0).all()):
        raise ObservationError(f"{what} must be positive, found {float(y.min()):g}")


def require_readable(
    inputs: Sequence[Field], outputs: Sequence[Field], operator: Any, sets: Sensors
) -> None:
    """Refuse functionals that an operator between these fields cannot take.

    These are weights that are all zero or not finite, fields under a transform, and any where the
    model or its law of the input knows no functionals.
    """
    assert sets.weights is not None
    fields, there = [*inputs, *outputs], sets.mask & ~sets.at_points
    weights = sets.weights[sets.mask]
    if not bool((weights.isfinite().all(1) & (weights != 0).any(1)).all()):
        raise ObservationError("weights of a sensor must be finite and not all zero")
    law = getattr(operator, "law", None)
    for number in sets.field[there].unique().tolist():
        one = fields[number]
        if one.transform.name != "identity":
            raise ObservationError(
                f"sensors of {one.name}: weights on points are for fields that a model knows "
                f"without a transform, and it knows {one.name} under {one.transform.name}: a "
                f"combination of values of {one.name} is not linear in that. Give sensors at points"
            )
        if number < len(inputs) and law is not None and not law.reads_functionals:
            raise ObservationError(
                f"sensors of {one.name}: the law {law.name!r} of the input takes sensors at "
                "points, no weights on points; the laws gaussian and mixture do"
            )
    if bool(there.any()) and not getattr(operator, "reads_functionals", False):
        name = getattr(operator, "method", type(operator).__name__)
        raise ObservationError(
            f"{name} takes sensors at points, no weights on points; the Karhunen-Loeve model does"
        )
