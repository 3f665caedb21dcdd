"""Sensors as people have them: arrays, a DataFrame, a CSV file; one set of them or many.

Tables are read by `uqsonet.sensors.tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import is_frame, real_numbers, require_noise
from uqsonet.sensors.sensors import (
    AXES,
    Sensors,
    WeightedPoints,
    field_number,
    no_sensors,
    one_after_another,
    sensors_at,
    side_by_side,
)


def read_sensors(
    fields: Sequence[Field],
    sensors: object = None,
    values: object = None,
    mask: object = None,
    noise_std: object = None,
    named: Mapping[str, object] | None = None,
    unnamed: Sequence[int] | None = None,
) -> Sensors:
    """Return sensors from whatever a caller has (`uqsonet.Emulator.condition` lists it).

    Sensors without a name read one of the fields with the numbers `unnamed`, by default of all: so
    there has to be one.

    Raises
    ------
    ObservationError
        If a column, a coordinate or a value is missing or cannot be used; it says which.
    DataError
        If a file cannot be read.
    """
    unnamed = range(len(fields)) if unnamed is None else unnamed
    if isinstance(noise_std, Mapping):
        found = read_sensors(fields, sensors, values, mask, None, named, unnamed)
        return _with_noise(found, fields, noise_std)
    if named and (sensors is not None or values is not None):
        raise ObservationError("give sensors by field name or as one table, not both")
    if mask is not None and (sensors is None or values is None):
        raise ObservationError("a mask goes with arrays of locations and values")
    if values is not None and sensors is None:
        raise ObservationError("values without locations")
    if values is not None:
        number = the_one(fields, unnamed)
        return _from_arrays(fields[number], number, sensors, values, mask, noise_std)
    if named:
        sets = [_one_field(fields, name, value, noise_std) for name, value in named.items()]
        if len({(len(one), one.single) for one in sets}) > 1:
            sizes = ", ".join(str(len(one)) for one in sets)
            raise ObservationError(f"fields must have the same number of sets, found {sizes}")
        return side_by_side(sets)
    if sensors is None:
        return no_sensors(fields)
    return _read_one(fields, sensors, noise_std, unnamed)


def _with_noise(sets: Sensors, fields: Sequence[Field], noise_std: Mapping[str, object]) -> Sensors:
    """Return sensors with the noise of their field, by its name, where they state none."""
    levels = sets.noise_std
    for name, stated in noise_std.items():
        number, level = field_number(fields, name, "noise_std: field"), real_numbers(stated, name)
        if level.ndim:
            raise ObservationError(f"noise_std: one number for {name} expected, found {stated!r}")
        require_noise(level)
        levels = torch.where(levels.isnan() & (sets.field == number), level, levels)
    return replace(sets, noise_std=levels)


def _read_one(
    fields: Sequence[Field], sensors: Any, noise_std: object, unnamed: Sequence[int]
) -> Sensors:
    """Return the sensors of one argument: a table, a mapping, a tuple, or a list of sets."""
    if is_table(sensors):
        from uqsonet.sensors.tables import read_table

        return read_table(fields, sensors, noise_std, unnamed)
    if isinstance(sensors, Mapping):
        return read_sensors(fields, noise_std=noise_std, named=sensors, unnamed=unnamed)
    if isinstance(sensors, tuple) and len(sensors) in (2, 3):
        return _one_field(fields, fields[the_one(fields, unnamed)].name, sensors, noise_std)
    if isinstance(sensors, Sequence) and len(sensors):
        found = [read_sensors(fields, one, noise_std=noise_std, unnamed=unnamed) for one in sensors]
        if any(not one.single for one in found):
            raise ObservationError("a list of sets must hold single sets, found a batch in it")
        return replace(one_after_another(found), labels=[str(k) for k in range(len(found))])
    plain = isinstance(sensors, float | int | np.ndarray | Tensor)
    lacking = ": are the values missing?" if plain else ""
    raise ObservationError(
        "sensors must be a table (DataFrame, CSV file, mapping of columns), (locations, values"
        f"[, noise_std]), or a list of sets; found {type(sensors).__name__}{lacking}"
    )


def is_table(sensors: object) -> bool:
    """Return whether sensors come as a CSV file, a DataFrame or a mapping of columns."""
    if isinstance(sensors, Mapping):  # an xarray.Dataset, too
        return bool(set(map(str, sensors)) & {"value", *AXES})
    return isinstance(sensors, str | Path) or is_frame(sensors)


def the_one(fields: Sequence[Field], unnamed: Sequence[int], what: str = "") -> int:
    """Return the number of the only field that sensors without a name may read."""
    if len(unnamed) > 1:
        names = ", ".join(fields[k].name for k in unnamed)
        raise ObservationError(
            f"{what}there are several fields: name the one that is read, {names}"
        )
    return unnamed[0]


def _one_field(fields: Sequence[Field], name: str, value: object, noise_std: object) -> Sensors:
    number = field_number(fields, name)
    if is_table(value):
        found = read_sensors([fields[number]], value, noise_std=noise_std)
        return replace(found, field=torch.full_like(found.field, number))
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise ObservationError(
            f"{name}: (locations, values) or (locations, values, noise_std) expected, found "
            f"{type(value).__name__}"
        )
    level = value[2] if len(value) == 3 else noise_std
    return _from_arrays(fields[number], number, value[0], value[1], None, level)


def _from_arrays(
    field: Field, number: int, locations: object, values: object, mask: object, noise_std: object
) -> Sensors:
    weighted = isinstance(locations, WeightedPoints)
    x = locations.points if weighted else locations
    if is_frame(x):  # its columns go by the names of coordinates
        from uqsonet.sensors.tables import places_of

        x = places_of(x, field, "points" if weighted else "locations")
    if not weighted:
        return sensors_at(field, x, values, mask, noise_std, number=number, device="cpu")
    if mask is not None:
        raise ObservationError("a mask goes with sensors at points, not with weights on points")
    dim = field.domain.dim
    x = real_numbers(x, "points")
    weights = real_numbers(locations.weights, "weights")
    x = x[:, None] if x.ndim == 1 and dim == 1 else x
    y = real_numbers(values, "values", missing=True)
    y = y[None] if y.ndim == 0 else y
    weights = weights[None] if weights.ndim == 1 and y.shape[-1] == 1 else weights
    if (*weights.shape, dim) != (y.shape[-1], *x.shape) or y.ndim > 2:
        raise ObservationError(
            f"shapes do not fit: points (q, {dim}) ({', '.join(AXES[:dim])}), weights (m, q) and "
            f"values (m,) or (B, m) of {field.name} expected, found {tuple(x.shape)}, "
            f"{tuple(weights.shape)}, {tuple(y.shape)}"
        )
    # Each sensor keeps the points that it reads, filled up with its first one.
    order = (weights == 0).long().argsort(dim=1, stable=True)
    order = order[:, : max(1, int((weights != 0).sum(1).max()))]
    weights = weights.gather(1, order)
    order = torch.where(weights == 0, order[:, :1], order)
    first = x[order[:, 0]].numpy()
    found = sensors_at(field, first, values, None, noise_std, number=number, device="cpu")
    x = field.wrapped(x)[order].expand(len(found), -1, -1, -1)
    return replace(found, locations=x, weights=weights.expand(len(found), -1, -1))
