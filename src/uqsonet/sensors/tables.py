"""Tables of sensors and of points: CSV files, DataFrames, mappings of columns.

A table of sensors has the columns ``x[,y[,z]],value[,field][,noise_std][,set][,sensor,weight]``.
Rows of the same sensor are points whose values it adds up, by these weights.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError, ObservationError, nearest
from uqsonet.fields.named_field import NamedField
from uqsonet.fields.numbers import MOST_WHOLE, require_exact
from uqsonet.sensors.sensors import AXES, COLUMNS, SensorSets, field_number, noise_levels

MOST_ROWS = 5_000_000
"""Rows of a table of sensors."""

MOST_CHARACTERS = 1 << 20
"""Of a line: a file may be a single one of any length."""

MOST_PLACES = 20_000_000
"""Coordinates of sets of sensors that are padded to the largest set, and to the most points."""


def read_csv(path: Path) -> dict[str, list[str]]:
    """Return the columns of a CSV file by name.

    Raises
    ------
    DataError
        If the file cannot be read, is empty, or its rows do not fit its header.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = (line for line in _lines(file) if line.strip() and not line.startswith("#"))
            first = next(lines, "")
            if not first:
                raise DataError(f"{path}: empty; a header such as x,y,value is needed")
            delimiter = max(",;\t", key=first.count)
            names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
            if not set(names) & set(COLUMNS) and all(map(_is_number, names)):
                raise DataError(
                    f"{path}: no header; the first line must name columns, as x,y,value"
                )
            rows = []
            for row in csv.reader(lines, delimiter=delimiter):
                if not any(cell.strip() for cell in row):
                    continue
                if len(rows) >= MOST_ROWS:
                    raise DataError(f"{path}: more than {MOST_ROWS} rows")
                if len(row) != len(names):
                    raise DataError(
                        f"{path}: row {len(rows) + 1} has {len(row)} cells, the header "
                        f"{len(names)} ({', '.join(names)})"
                    )
                rows.append([cell.strip() for cell in row])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error})") from None
    if len(set(names)) < len(names):
        raise DataError(f"{path}: column {max(names, key=names.count)!r} appears twice")
    if not rows:
        raise DataError(f"{path}: a header and no rows")
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(MOST_CHARACTERS):
        if len(line) == MOST_CHARACTERS:
            raise csv.Error(f"a line of {MOST_CHARACTERS} characters or more")
        yield line


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_column(cells: Sequence[object], what: str) -> Tensor:
    """Return a column as numbers, float64; `what` names it in messages.

    Raises
    ------
    ObservationError
        If a cell is no finite number.
    """
    numbers = np.empty(len(cells))
    for k, cell in enumerate(cells):
        try:
            numbers[k] = float(cell)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            comma = isinstance(cell, str) and "," in cell
            hint = " (decimals need a point)" if comma else ""
            raise ObservationError(f"{what}, row {k + 1}: {cell!r} is no number{hint}") from None
        if not np.isfinite(numbers[k]):
            raise ObservationError(f"{what}, row {k + 1}: {cell!r} is not finite")
        if abs(numbers[k]) >= MOST_WHOLE:
            digits = str(cell).strip().lstrip("+-0")
            whole = int(digits) if digits.isdecimal() else cell
            require_exact(np.array([whole], dtype=object), f"{what}, row {k + 1}")
    return torch.from_numpy(numbers)


@dataclass(frozen=True)
class Rows:
    """Sensors of one set and one field, before padding.

    Attributes
    ----------
    field : int
    locations : Tensor, shape (m, q, d)
    weights : Tensor, shape (m, q)
    values, noise_std : Tensor, shape (m,)
    """

    field: int
    locations: Tensor
    weights: Tensor
    values: Tensor
    noise_std: Tensor


def padded(
    sets: Sequence[Sequence[Rows]],
    fields: Sequence[NamedField],
    labels: list[str],
    single: bool,
    kind: str,
) -> SensorSets:
    """Return sets of sensors side by side, padded to the largest."""
    dim = max(field.domain.dim for field in fields)
    most = max((sum(len(rows.values) for rows in one) for one in sets), default=0)
    shape = len(sets), most
    points = max((rows.weights.shape[1] for one in sets for rows in one), default=1)
    _require_room(len(sets) * most * points * dim)
    field, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    x = torch.zeros(*shape, points, dim, dtype=torch.float64)
    weights = torch.zeros(*shape, points, dtype=torch.float64)
    y, noise = torch.ones(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for b, one in enumerate(sets):
        first = 0
        for rows in one:
            here = slice(first, first + len(rows.values))
            field[b, here], mask[b, here] = rows.field, True
            own = slice(rows.weights.shape[1])
            x[b, here, :, : rows.locations.shape[-1]] = rows.locations[:, :1]
            x[b, here, own, : rows.locations.shape[-1]] = rows.locations
            weights[b, here, own] = rows.weights
            y[b, here], noise[b, here] = rows.values, rows.noise_std
            first += len(rows.values)
    if bool((weights[mask] == 1).all()) and points == 1:
        return SensorSets(field, x[:, :, 0], y, noise, mask, labels, single, kind)
    return SensorSets(field, x, y, noise, mask, labels, single, kind, weights)


def _require_room(places: int) -> None:
    if places > MOST_PLACES:
        raise ObservationError(
            f"sensors padded to the largest set, and to the most points, have {places} "
            f"coordinates, at most {MOST_PLACES}: ask about sets of other sizes one by one"
        )


def read_table(
    fields: Sequence[NamedField],
    table: Mapping[str, Sequence[object]],
    where: str,
    noise: object,
    inputs: int,
) -> SensorSets:
    """Return sensors from columns; `where` names the table in messages.

    Raises
    ------
    ObservationError
        If a column is unknown, lacks or holds what cannot be used; it says which.
    """
    for name in table:
        if name not in COLUMNS:
            there = f"{', '.join(COLUMNS)}{nearest(name.lower(), COLUMNS)}"
            raise ObservationError(f"{where}: column {name!r} is unknown; there may be {there}")
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
    labels = [str(name) for name in table["set"]] if "set" in table else ["0"] * size
    sensors = _sensors(table, labels, numbers, where)
    table = {
        name: _given_once(column, sensors, f"{where}, column {name!r}") if name in ONCE else column
        for name, column in table.items()
    }
    columns = {
        name: read_column(table[name], f"{where}, column {name!r}")
        for name in (*AXES[:most], "value", "noise_std", "weight")
        if name in table
    }
    weights = columns.get("weight", torch.ones(size, dtype=torch.float64))
    if noise is not None and "noise_std" in columns:
        raise ObservationError(f"{where}: has a column 'noise_std', and noise_std is given too")
    sets: dict[str, dict[int, list[list[int]]]] = {}
    for points in sensors:
        sets.setdefault(labels[points[0]], {}).setdefault(numbers[points[0]], []).append(points)
    found = []
    for label in sets:
        rows = []
        for number, groups in sets[label].items():
            axes = AXES[: fields[number].domain.dim]
            widest = max(map(len, groups))
            _require_room(len(groups) * widest)
            index = torch.tensor([g + [g[0]] * (widest - len(g)) for g in groups])
            own = torch.arange(widest) < torch.tensor([[len(g)] for g in groups])
            x = torch.stack([columns[axis][index] for axis in axes], -1)
            first = index[:, 0]
            y = columns["value"][first]
            level = (
                columns["noise_std"][first] if "noise_std" in columns else noise_levels(noise, y)
            )
            rows.append(Rows(number, x, weights[index] * own, y, level))
        found.append(rows)
    return padded(found, fields, list(sets), "set" not in table, "numpy")


ONCE = ("value", "noise_std")
"""What a sensor has once, whatever the number of its points."""


def _sensors(
    table: Mapping[str, Sequence[object]], labels: list[str], numbers: list[int], where: str
) -> list[list[int]]:
    """Return the rows of each sensor, in the order of their first ones."""
    if ("sensor" in table) != ("weight" in table):
        lacking, there = ("sensor", "weight") if "weight" in table else ("weight", "sensor")
        raise ObservationError(
            f"{where}: column {there!r}, but no column {lacking!r}: rows of the same sensor are "
            "points with weights"
        )
    if "sensor" not in table:
        return [[row] for row in range(len(labels))]
    found: dict[tuple[str, str], list[int]] = {}
    for row, name in enumerate(table["sensor"]):
        if _is_blank(name):
            raise ObservationError(f"{where}, column 'sensor', row {row + 1}: no name")
        rows = found.setdefault((labels[row], str(name)), [])
        if rows and numbers[row] != numbers[rows[0]]:
            raise ObservationError(
                f"{where}, row {row + 1}: sensor {str(name)!r} reads two fields, one is allowed"
            )
        rows.append(row)
    return list(found.values())


def _given_once(column: Sequence[object], sensors: list[list[int]], what: str) -> list[object]:
    """Return a column whose blank cells have what another point of the same sensor states."""
    found = list(column)
    for rows in sensors:
        stated = {_number(column[row]): column[row] for row in rows if not _is_blank(column[row])}
        if len(stated) > 1:
            names = ", ".join(map(str, stated.values()))
            raise ObservationError(
                f"{what}, row {rows[0] + 1}: points of one sensor state {names}; it has one, "
                "on one of its rows or on all"
            )
        for row in rows if stated and len(rows) > 1 else ():
            found[row] = next(iter(stated.values()))
    return found


def _number(cell: object) -> object:
    return float(str(cell)) if _is_number(str(cell)) else cell


def _is_blank(cell: object) -> bool:
    return cell is None or str(cell).strip() in ("", "<NA>") or cell != cell


def read_points(path: Path, dim: int) -> Tensor:
    """Return points (M, dim) from the columns x[, y[, z]] of a CSV file; others are left alone.

    Raises
    ------
    DataError or ObservationError
        If the file cannot be read or lacks a column.
    """
    table = read_csv(path)
    for axis in AXES[:dim]:
        if axis not in table:
            raise ObservationError(f"{path}: no column {axis!r}; there are {', '.join(table)}")
    columns = [read_column(table[axis], f"{path}, column {axis!r}") for axis in AXES[:dim]]
    return torch.stack(columns, -1)
