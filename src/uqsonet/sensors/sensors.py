"""Sets of sensors, as a model takes them: which field, where, what was read, how exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uqsonet.errors import ObservationError, nearest
from uqsonet.fields.named_field import NamedField
from uqsonet.fields.numbers import real_numbers, require_noise

AXES = ("x", "y", "z")
COLUMNS = (*AXES, "value", "field", "noise_std", "set", "sensor", "weight")


@dataclass(frozen=True)
class SensorSets:
    """B sets of sensors, padded to the same number m.

    Attributes
    ----------
    field : Tensor of int, shape (B, m)
        Number of the field that a sensor reads.
    locations : Tensor, shape (B, m, d), or with weights (B, m, q, d)
        float64; zeros for coordinates that a field lacks.
    values : Tensor, shape (B, m)
        Of the fields themselves, not transformed.
    noise_std : Tensor, shape (B, m)
        In the transformed fields; NaN stands for the model's default.
    mask : Tensor of bool, shape (B, m)
        False on padding.
    labels : list of str
        Names of the sets.
    single : bool
        One set rather than a batch.
    kind : {"numpy", "torch"}
        The caller's arrays.
    weights : Tensor, shape (B, m, q), or None
        A sensor reads this combination of its field's values at q points.
    """

    field: Tensor
    locations: Tensor
    values: Tensor
    noise_std: Tensor
    mask: Tensor
    labels: list[str]
    single: bool
    kind: str
    weights: Tensor | None = None

    @property
    def at_points(self) -> Tensor:
        """Which sensors (B, m) read the value at one point."""
        if self.weights is None:
            return self.mask
        return self.mask & ((self.weights == 1).sum(2) == 1) & ((self.weights != 0).sum(2) == 1)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> SensorSets:
        """Return some of the sets."""
        return replace(self.each(lambda t: t[part]), labels=self.labels[part])

    def each(self, change: Callable[[Tensor], Tensor]) -> SensorSets:
        """Return the sets with every tensor changed in the same way."""
        names = ["field", "locations", "values", "noise_std", "mask"]
        names += [] if self.weights is None else ["weights"]
        return replace(self, **{name: change(getattr(self, name)) for name in names})


def no_sensors(fields: Sequence[NamedField]) -> SensorSets:
    """Return one set without a sensor."""
    dim = max(field.domain.dim for field in fields)
    empty = torch.zeros(1, 0, dtype=torch.float64)
    none = torch.zeros(1, 0, dtype=torch.long)
    locations = torch.zeros(1, 0, dim, dtype=torch.float64)
    return SensorSets(none, locations, empty, empty, none.bool(), ["0"], True, "numpy")


def field_number(fields: Sequence[NamedField], name: str, what: str = "field") -> int:
    """Return the number of a field by its name.

    Raises
    ------
    ObservationError
        With the names that there are, and the nearest.
    """
    names, name = [field.name for field in fields], str(name)
    if name in names:
        return names.index(name)
    there = f"{', '.join(names)}{nearest(name, names)}"
    raise ObservationError(f"{what} {name!r} is unknown; there are {there}")


def noise_levels(noise_std: object, y: Tensor) -> Tensor:
    """Return the noise of sensors that read y, NaN where a caller states none."""
    if noise_std is None:
        return torch.full_like(y, torch.nan)
    noise = real_numbers(noise_std, "noise_std")
    require_noise(noise)
    try:
        return noise.expand_as(y).clone()
    except RuntimeError:
        raise ObservationError(
            f"noise_std must be a number or one for each sensor, {tuple(y.shape)}; found "
            f"{tuple(noise.shape)}"
        ) from None
