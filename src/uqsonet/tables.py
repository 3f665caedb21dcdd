"""Tables of sensors and of points in CSV files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError, ObservationError
from uqsonet.sensors import AXES, COLUMNS

MOST_ROWS = 5_000_000
"""Rows of a table of sensors."""


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
            lines = (line for line in file if line.strip() and not line.startswith("#"))
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
    return torch.from_numpy(numbers)


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
