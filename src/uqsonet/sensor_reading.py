"""Sensors as people have them: arrays, a DataFrame, a CSV file; one set of them or many.

A table has the columns ``x[,y[,z]],value[,field][,noise_std][,set]``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.named_fields import NamedField
from uqsonet.sensors import AXES, COLUMNS, SensorSets, field_number, real_numbers


@dataclass(frozen=True)
class _Rows:
    """Sensors of one set and one field, before padding."""

    field: int
    locations: Tensor
    values: Tensor
    noise_std: Tensor


def read_sensors(
    fields: Sequence[NamedField],
    sensors: object = None,
    values: object = None,
    mask: object = None,
    noise_std: object = None,
    named: Mapping[str, object] | None = None,
    inputs: int | None = None,
) -> SensorSets:
    """Return sensors from whatever a caller has (`uqsonet.Emulator.condition` lists it).

    The first `inputs` of the fields are inputs, by default all; where that is one, sensors without
    a name are of it.

    Raises
    ------
    ObservationError
        If a column, a coordinate or a value is missing or cannot be used; it says which.
    DataError
        If a file cannot be read.
    """
    inputs = len(fields) if inputs is None else inputs
    kind = "torch" if isinstance(values, Tensor) or isinstance(sensors, Tensor) else "numpy"
    if any(isinstance(part, Tensor) for part in _arrays(named)):
        kind = "torch"
    if named and (sensors is not None or values is not None):
        raise ObservationError("give sensors by field name or as one table, not both")
    if mask is not None and (sensors is None or values is None):
        raise ObservationError("a mask goes with arrays of locations and values")
    if sensors is not None and values is not None:
        _require_one(fields[:inputs])
        return _from_arrays(fields, 0, sensors, values, mask, noise_std, kind)
    if values is not None:
        raise ObservationError("values without locations")
    if named:
        sets = [_one_field(fields, name, value, noise_std, kind) for name, value in named.items()]
        return _side_by_side(sets)
    if sensors is None:
        return _padded([[]], fields, ["0"], True, kind)
    if isinstance(sensors, str | Path):
        from uqsonet.tables import read_csv

        return _from_table(fields, read_csv(Path(sensors)), str(sensors), noise_std, inputs)
    if hasattr(sensors, "columns") and hasattr(sensors, "to_numpy"):
        names = [str(name) for name in sensors.columns]  # type: ignore[attr-defined]
        if len(set(names)) < len(names):
            twice = max(names, key=names.count)
            raise ObservationError(f"the DataFrame: column {twice!r} appears twice")
        frame = {str(name): list(sensors[name]) for name in sensors.columns}  # type: ignore[index]
        return _from_table(fields, frame, "the DataFrame", noise_std, inputs)
    if isinstance(sensors, Mapping):
        if set(map(str, sensors)) & {"value", *AXES}:
            table = {str(name): np.atleast_1d(column).tolist() for name, column in sensors.items()}  # type: ignore[call-overload]
            return _from_table(fields, table, "the table", noise_std, inputs)
        return read_sensors(fields, noise_std=noise_std, named=sensors, inputs=inputs)
    if isinstance(sensors, tuple) and len(sensors) in (2, 3):
        _require_one(fields[:inputs])
        return _one_field(fields, fields[0].name, sensors, noise_std, kind)
    if isinstance(sensors, Sequence) and not isinstance(sensors, str) and len(sensors):
        found = [read_sensors(fields, one, noise_std=noise_std, inputs=inputs) for one in sensors]
        return _stacked(found)
    plain = isinstance(sensors, float | int | np.ndarray | Tensor)
    lacking = ": are the values missing?" if plain else ""
    raise ObservationError(
        "sensors must be a table (DataFrame, CSV file, mapping of columns), (locations, values"
        f"[, noise_std]), or a list of sets; found {type(sensors).__name__}{lacking}"
    )


def _require_one(inputs: Sequence[NamedField]) -> None:
    if len(inputs) > 1:
        names = ", ".join(f.name for f in inputs)
        raise ObservationError(
            f"there are several input fields: name the one that is read, {names}"
        )


def _arrays(named: Mapping[str, object] | None) -> list[object]:
    found: list[object] = []
    for value in (named or {}).values():
        found += list(value) if isinstance(value, tuple) else [value]
    return found


def _one_field(
    fields: Sequence[NamedField], name: str, value: object, noise_std: object, kind: str
) -> SensorSets:
    number = field_number(fields, name)
    if isinstance(value, str | Path) or hasattr(value, "columns"):
        found = read_sensors([fields[number]], value, noise_std=noise_std)
        return replace(found, field=torch.full_like(found.field, number), kind=kind)
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise ObservationError(
            f"{name}: (locations, values) or (locations, values, noise_std) expected, found "
            f"{type(value).__name__}"
        )
    level = value[2] if len(value) == 3 else noise_std
    return _from_arrays(fields, number, value[0], value[1], None, level, kind)


def _from_arrays(
    fields: Sequence[NamedField],
    number: int,
    locations: object,
    values: object,
    mask: object,
    noise_std: object,
    kind: str,
) -> SensorSets:
    field = fields[number]
    dim = field.domain.dim
    x, y = real_numbers(locations, "locations"), real_numbers(values, "values")
    if y.ndim == 0:
        y = y[None]
    x = x.reshape(-1, dim) if x.ndim < 2 and (dim == 1 or x.numel() in (0, dim)) else x
    single = y.ndim == 1
    if single:
        x, y = x[None], y[None]
    if x.ndim == 2:
        x = x[..., None] if dim == 1 and x.shape == y.shape else x.expand(len(y), *x.shape)
    if x.ndim == 3 and x.shape[-1] != dim:
        raise ObservationError(
            f"locations have {x.shape[-1]} coordinates, {field.name} has {dim} "
            f"({', '.join(AXES[:dim])})"
        )
    m = torch.ones_like(y, dtype=torch.bool)
    if mask is not None:
        try:
            m = torch.as_tensor(mask)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ObservationError(f"mask must be boolean ({error})") from None
        m = m[None] if single and m.ndim == 1 else m
        if m.dtype != torch.bool:
            raise ObservationError(f"mask must be boolean, found {m.dtype}")
    if y.ndim != 2 or x.shape[:-1] != y.shape or m.shape != y.shape:
        raise ObservationError(
            "shapes do not fit: locations (B, m, d), values (B, m) and mask (B, m) expected, "
            f"found {tuple(x.shape)}, {tuple(y.shape)}, {tuple(m.shape)}"
        )
    noise = _noise(noise_std, y)
    numbers = torch.full(y.shape, number)
    labels = [str(k) for k in range(len(y))]
    return SensorSets(numbers, x, y, noise, m, labels, single, kind)


def _noise(noise_std: object, y: Tensor) -> Tensor:
    if noise_std is None:
        return torch.full_like(y, torch.nan)
    noise = real_numbers(noise_std, "noise_std")
    if bool(noise.isnan().any()):
        raise ObservationError("noise_std must be finite and not negative, found nan")
    try:
        return noise.expand_as(y).clone()
    except RuntimeError:
        raise ObservationError(
            f"noise_std must be a number or one for each sensor, {tuple(y.shape)}; found "
            f"{tuple(noise.shape)}"
        ) from None


def _from_table(
    fields: Sequence[NamedField],
    table: Mapping[str, Sequence[object]],
    where: str,
    noise: object,
    inputs: int,
) -> SensorSets:
    """Return sensors from columns; `where` names the table in messages."""
    for name in table:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name.lower(), COLUMNS, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise ObservationError(
                f"{where}: column {name!r} is unknown; there may be {', '.join(COLUMNS)}{meant}"
            )
    size = len(next(iter(table.values()), []))
    if "value" not in table:
        raise ObservationError(
            f"{where}: no column 'value'; there are {', '.join(table) or 'no columns'}"
        )
    if lengths := {k: len(column) for k, column in table.items() if len(column) != size}:
        name, found = next(iter(lengths.items()))
        raise ObservationError(f"{where}: column {name!r} has {found} rows, others {size}")
    if size == 0:
        raise ObservationError(f"{where}: no rows")
    if "field" in table:
        names = [str(name) for name in table["field"]]
        numbers = [field_number(fields, name, f"{where}, row {k + 1}: field")
                   for k, name in enumerate(names)]  # fmt: skip
    elif inputs == 1:
        numbers = [0] * size
    else:
        names = [field.name for field in fields]
        raise ObservationError(
            f"{where}: a column 'field' must say which of {', '.join(names)} is read"
        )
    most = max(fields[number].domain.dim for number in numbers)
    for axis in AXES[:most]:
        if axis not in table:
            raise ObservationError(
                f"{where}: no column {axis!r}; locations need {', '.join(AXES[:most])}, there are "
                f"{', '.join(table)}"
            )
    for axis in AXES[most:]:
        if axis in table:
            raise ObservationError(
                f"{where}: column {axis!r}, but the domain has {most} "
                f"coordinate{'s' if most > 1 else ''} ({', '.join(AXES[:most])})"
            )
    from uqsonet.tables import read_column

    columns = {
        name: read_column(table[name], f"{where}, column {name!r}")
        for name in (*AXES[:most], "value", "noise_std")
        if name in table
    }
    if noise is not None and "noise_std" in columns:
        raise ObservationError(f"{where}: has a column 'noise_std', and noise_std is given too")
    labels = [str(name) for name in table["set"]] if "set" in table else ["0"] * size
    sets: dict[str, dict[int, list[int]]] = {}
    for row, (label, number) in enumerate(zip(labels, numbers, strict=True)):
        sets.setdefault(label, {}).setdefault(number, []).append(row)
    found = []
    for label in sets:
        rows = []
        for number, index in sets[label].items():
            axes = AXES[: fields[number].domain.dim]
            x = torch.stack([columns[axis][index] for axis in axes], -1)
            y = columns["value"][index]
            level = columns["noise_std"][index] if "noise_std" in columns else _noise(noise, y)
            rows.append(_Rows(number, x, y, level))
        found.append(rows)
    return _padded(found, fields, list(sets), "set" not in table, "numpy")


def _padded(
    sets: Sequence[Sequence[_Rows]],
    fields: Sequence[NamedField],
    labels: list[str],
    single: bool,
    kind: str,
) -> SensorSets:
    dim = max(field.domain.dim for field in fields)
    most = max((sum(len(rows.values) for rows in one) for one in sets), default=0)
    shape = len(sets), most
    field, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    x = torch.zeros(*shape, dim, dtype=torch.float64)
    y, noise = torch.ones(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for b, one in enumerate(sets):
        first = 0
        for rows in one:
            here = slice(first, first + len(rows.values))
            field[b, here], mask[b, here] = rows.field, True
            x[b, here, : rows.locations.shape[-1]] = rows.locations
            y[b, here], noise[b, here] = rows.values, rows.noise_std
            first += len(rows.values)
    return SensorSets(field, x, y, noise, mask, labels, single, kind)


def _stacked(found: Sequence[SensorSets]) -> SensorSets:
    """Return single sets as a batch, padded to the largest."""
    if any(not one.single for one in found):
        raise ObservationError("a list of sets must hold single sets, found a batch in it")
    most = max(one.values.shape[1] for one in found)
    dim = max(one.locations.shape[2] for one in found)

    def padded(one: SensorSets) -> SensorSets:
        short, narrow = most - one.values.shape[1], dim - one.locations.shape[2]
        pad = torch.nn.functional.pad
        return one.each(lambda t: pad(t, [0, narrow, 0, short] if t.ndim == 3 else [0, short]))

    ready = [padded(one) for one in found]
    kind = "torch" if any(one.kind == "torch" for one in found) else "numpy"
    return SensorSets(
        field=torch.cat([one.field for one in ready]),
        locations=torch.cat([one.locations for one in ready]),
        values=torch.cat([one.values for one in ready]),
        noise_std=torch.cat([one.noise_std for one in ready]),
        mask=torch.cat([one.mask for one in ready]),
        labels=[str(k) for k in range(len(found))],
        single=False,
        kind=kind,
    )


def _side_by_side(sets: Sequence[SensorSets]) -> SensorSets:
    """Return sensors of several fields as one: sets of the same number belong together."""
    if len({len(one) for one in sets}) > 1 or len({one.single for one in sets}) > 1:
        sizes = ", ".join(str(len(one)) for one in sets)
        raise ObservationError(f"fields must have the same number of sets, found {sizes}")
    dim = max(one.locations.shape[2] for one in sets)
    pads = [torch.nn.functional.pad(s.locations, [0, dim - s.locations.shape[2]]) for s in sets]
    names = ("values", "noise_std", "mask")
    values, noise, mask = (torch.cat([getattr(s, n) for s in sets], 1) for n in names)
    field = torch.cat([s.field for s in sets], 1)
    kind = "torch" if any(s.kind == "torch" for s in sets) else "numpy"
    first = sets[0]
    return replace(
        first, field=field, locations=torch.cat(pads, 1), values=values, noise_std=noise, mask=mask,
        kind=kind,
    )  # fmt: skip
