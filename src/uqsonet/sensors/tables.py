"""Tables of sensors and of points: CSV files, DataFrames, mappings of columns.

A row is a sensor, and the columns are ``x[,y[,z]],value[,field][,noise_std][,set]``.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError, ObservationError, UQSONetError, nearest
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import require_noise, without_mask
from uqsonet.files import path_of
from uqsonet.sensors.sensors import (
    AXES,
    COLUMNS,
    Sensors,
    field_number,
    in_sets,
    noise_levels,
)

MAX_ROWS = 5_000_000  # rows of a table of sensors, at most


def read_csv(path: Path) -> dict[str, list[str]]:
    """Return the columns of a CSV file by name.

    It raises `DataError` if the file cannot be read, is empty, or its rows do not fit its header.
    """
    if not path_of(path).is_file():
        raise DataError(f"{path}: no such file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = (line for line in file if line.strip() and not line.startswith("#"))
            first = next(lines, "")
            if not first:
                raise DataError(f"{path}: empty; a header such as x,y,value is needed")
            delimiter = max(",;\t", key=first.count)
            names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
            if all(map(_is_number, names)):
                raise DataError(
                    f"{path}: no header; the first line must name columns, as x,y,value"
                )
            rows = []
            for row in csv.reader(lines, delimiter=delimiter):
                if not any(cell.strip() for cell in row):
                    continue
                if len(rows) >= MAX_ROWS:
                    raise DataError(f"{path}: more than {MAX_ROWS} rows")
                if len(row) != len(names):
                    raise DataError(
                        f"{path}: row {len(rows) + 1} has {len(row)} cells, the header "
                        f"{len(names)} ({', '.join(names)})"
                    )
                rows.append([cell.strip() for cell in row])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error})") from None
    _require_once(names, path, DataError)
    if not rows:
        raise DataError(f"{path}: a header and no rows")
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}


def _require_once(names: list[str], where: object, error: type[UQSONetError]) -> None:
    """Refuse columns of the same name."""
    name, count = Counter(names).most_common(1)[0] if names else ("", 1)
    if count > 1:
        raise error(f"{where}: column {name!r} appears twice")


def _is_number(text: str) -> bool:
    try:
        _float(text)
    except ValueError:
        return False
    return True


def _float(cell: Any) -> float:
    """Return a number; digits that only Python reads, as 1_2, are none."""
    if isinstance(cell, str) and ("_" in cell or not cell.isascii()):
        raise ValueError(cell)
    return float(cell)


def read_column(cells: Sequence[object], what: str) -> Tensor:
    """Return a column as numbers, float64; `what` names it where a cell is no finite number."""
    if all(isinstance(cell, float) for cell in cells):  # a million of them at once
        numbers = np.array(cells, dtype=np.float64)
        if np.isfinite(numbers).all():
            return torch.from_numpy(numbers)
    numbers = np.empty(len(cells))
    for k, cell in enumerate(cells):
        try:
            numbers[k] = _float(cell)
        except (TypeError, ValueError):
            comma = isinstance(cell, str) and "," in cell
            hint = " (decimals need a point)" if comma else ""
            raise ObservationError(f"{what}, row {k + 1}: {cell!r} is no number{hint}") from None
        if not np.isfinite(numbers[k]):
            raise ObservationError(f"{what}, row {k + 1}: {cell!r} is not finite")
    return torch.from_numpy(numbers)


def frame_of(table: Any, fields: Sequence[Field]) -> Any:
    """Return a frame whose columns are, too, what names its index; or xarray's labels of values.

    The values of a DataArray are the column ``value``; NaN are left out, and coordinates and an
    index that name nothing that these fields and sensors have.
    """
    known = {*COLUMNS, *(axis for one in fields for axis in one.axes)}
    if not hasattr(table, "to_dataframe"):
        index = getattr(table, "index", None)  # other libraries than pandas have none
        named = [name for name in getattr(index, "names", ()) if name in known]
        return table.reset_index(level=named) if named else table
    if hasattr(table, "data_vars"):
        frame = table.to_dataframe()
    else:
        frame = (table if table.ndim else table.expand_dims("sensor")).to_dataframe("value")
    frame = frame.reset_index().dropna()
    return frame[[name for name in frame if name in known]]


def _plain_axes(columns: Mapping[str, Any], fields: Sequence[Field], where: str) -> dict[str, Any]:
    """Return columns with the names that files give to coordinates changed to x, y, z.

    Times become numbers, `ObservationError` if one cannot be read, and longitudes move by whole
    turns into the domain.
    """
    plain = dict(columns)
    for one in fields:
        for k, axis in enumerate(one.axes):
            if axis not in plain or k >= len(AXES) or AXES[k] in plain:
                continue
            cells, layout = plain.pop(axis), one.layout
            named = {c.name: c for c in layout.coordinates} if layout else {}
            what = f"{where}, column {axis!r}"
            try:
                if axis in named and named[axis].origin:
                    cells = named[axis].numbers(cells).tolist()
                else:
                    cells = read_column(cells, what).tolist()
                if layout is not None and k in layout.longitudes:
                    rows = torch.zeros(len(cells), one.domain.dim, dtype=torch.float64)
                    rows[:, k] = torch.tensor(cells)
                    cells = one.wrapped(rows)[:, k].tolist()
            except ObservationError as error:
                stated = [str(v) for v in named[axis].attributes.values()] if axis in named else []
                there = f"; the runs state {axis} as: {', '.join(stated)}" if stated else ""
                raise ObservationError(f"{error}{there}") from None
            except (TypeError, ValueError) as error:
                raise ObservationError(f"{what}: {error}") from None
            plain[AXES[k]] = cells
    return plain


def columns_of(sensors: Any, fields: Sequence[Field]) -> tuple[Mapping[str, Sequence[object]], str]:
    """Return the columns of a CSV file, a table or labelled values, and what messages call it."""
    if isinstance(sensors, str | Path):
        return read_csv(Path(sensors)), str(sensors)
    if isinstance(sensors, Mapping) and not hasattr(sensors, "to_dataframe"):
        columns = {}
        for name, cells in sensors.items():
            plain = without_mask(cells, f"the table, column {str(name)!r}")
            columns[str(name)] = np.atleast_1d(plain).tolist()
        return columns, "the table"
    sensors = frame_of(sensors, fields)
    names = [str(name) for name in sensors.columns]
    _require_once(names, "the DataFrame", ObservationError)
    return {name: list(sensors[key]) for name, key in zip(names, sensors.columns)}, "the DataFrame"  # noqa: B905


def read_table(
    fields: Sequence[Field], sensors: object, noise_std: object, unnamed: Sequence[int]
) -> Sensors:
    """Return the sensors of a path, DataFrame or mapping.

    Rows without a field read that with the only number of `unnamed`.

    `noise_std` is the noise of all sensors, where the table has no column of it. A column that is
    unknown, lacks or holds what cannot be used is an `ObservationError` that names it.
    """
    table, where = columns_of(sensors, fields)
    table = _plain_axes(table, fields, where)
    size = _require_columns(table, where)
    numbers = _field_numbers(table, fields, size, where, unnamed)
    dim = max(fields[number].domain.dim for number in numbers)
    x = _coordinates(table, dim, where)
    for axis in AXES[dim:]:
        if axis in table:
            raise ObservationError(
                f"{where}: column {axis!r}, but the domain has {dim} "
                f"coordinate{'s' if dim > 1 else ''} ({', '.join(AXES[:dim])})"
            )
    columns = {
        name: read_column(table[name], f"{where}, column {name!r}")
        for name in ("value", "noise_std")
        if name in table
    }
    if noise_std is not None and "noise_std" in columns:
        raise ObservationError(f"{where}: has a column 'noise_std', and noise_std is given too")
    if "noise_std" in columns:
        require_noise(columns["noise_std"], f"{where}: noise_std")
    values, field = columns["value"], torch.tensor(numbers)
    dims = torch.tensor([one.domain.dim for one in fields])[field]
    x = x * (torch.arange(dim) < dims[:, None])
    x = torch.nn.functional.pad(x, [0, max(one.domain.dim for one in fields) - dim])
    found = Sensors(
        locations=x[None],
        values=values[None],
        mask=torch.ones_like(values, dtype=torch.bool)[None],
        noise_std=noise_levels(columns.get("noise_std", noise_std), values)[None],
        field=field[None],
        kind="numpy",
    )
    members: dict[str, list[int]] = {}
    for row, name in enumerate(table.get("set", ["0"] * size)):
        members.setdefault(str(name), []).append(row)
    return in_sets(found, members, "set" not in table)


def _require_columns(table: Mapping[str, Sequence[object]], where: str) -> int:
    """Refuse unknown columns, blank names, no values or rows; return the number of rows."""
    for name in table:
        if name in ("sensor", "weight"):
            raise ObservationError(
                f"{where}: column {name!r}; sensors with weights are uqsonet.WeightedPoints"
            )
        if name not in COLUMNS:
            there = f"{', '.join(COLUMNS)}{nearest(name.lower(), COLUMNS)}"
            raise ObservationError(f"{where}: column {name!r} is unknown; there may be {there}")
    size = len(next(iter(table.values()), []))
    if "value" not in table:
        raise ObservationError(
            f"{where}: no column 'value'; there are {', '.join(table) or 'no columns'}"
        )
    for name, column in table.items():
        if len(column) != size:
            raise ObservationError(
                f"{where}: column {name!r} has {len(column)} rows, others {size}"
            )
    if size == 0:
        raise ObservationError(f"{where}: no rows")
    for k, cell in enumerate(table.get("set", ())):
        if _is_blank(cell):
            raise ObservationError(f"{where}, column 'set', row {k + 1}: no name")
    return size


def _field_numbers(
    table: Mapping[str, Sequence[object]],
    fields: Sequence[Field],
    size: int,
    where: str,
    unnamed: Sequence[int],
) -> list[int]:
    """Return the number of the field that each row reads."""
    if "field" in table:
        return [
            field_number(fields, str(name), f"{where}, row {k + 1}: field")
            for k, name in enumerate(table["field"])
        ]
    if len(unnamed) > 1:
        names = ", ".join(field.name for field in fields)
        raise ObservationError(f"{where}: a column 'field' must say which of {names} is read")
    return [unnamed[0]] * size


def _coordinates(table: Mapping[str, Sequence[object]], dim: int, where: str) -> Tensor:
    """Return the columns (n, dim) that say where points stand."""
    axes = AXES[:dim]
    for axis in axes:
        if axis not in table:
            raise ObservationError(
                f"{where}: no column {axis!r}; locations need {', '.join(axes)}, there are "
                f"{', '.join(table)}"
            )
    return torch.stack([read_column(table[axis], f"{where}, column {axis!r}") for axis in axes], -1)


def _is_blank(cell: object) -> bool:
    return cell is None or str(cell).strip() in ("", "<NA>") or cell != cell


def read_points(path: Path, field: Field) -> Tensor:
    """Return points (M, d) of a field from a CSV file; other columns are left alone.

    Coordinates are called as in the field's file, or x, y, z. A column that lacks is an
    `ObservationError`.
    """
    return points_of_table(read_csv(path), str(path), field)


def read_candidates(path: Path, field: Field) -> tuple[Tensor, Tensor | None]:
    """Return points as `read_points` does, and a number (M,) for each in the column ``cost``."""
    table = read_csv(path)
    cost = read_column(table["cost"], f"{path}: cost") if "cost" in table else None
    return points_of_table(table, str(path), field), cost


def points_of_table(table: Mapping[str, Sequence[object]], where: str, field: Field) -> Tensor:
    """Return points (M, d) of a field from columns that `where` names in messages."""
    return _coordinates(_plain_axes(table, [field], where), field.domain.dim, where)


def places_of(table: Any, field: Field, what: str) -> np.ndarray:
    """Return places (m, d) of sensors from a frame: a field's coordinates by name, and no more."""
    columns = columns_of(table, [field])[0]
    plain, dim = _plain_axes(columns, [field], what), field.domain.dim
    if set(plain) != set(AXES[:dim]):
        raise ObservationError(
            f"{what}: columns {', '.join(columns) or 'none'}; a table of places has the "
            f"coordinates of {field.name} ({', '.join(field.axes)}) and no others"
        )
    return _coordinates(plain, dim, what).numpy()
