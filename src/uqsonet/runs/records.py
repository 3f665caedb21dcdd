"""Long tables of records, ``run,x[,y[,z]],value``: one row for each reading of a station."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import DataError
from uqsonet.runs.labelled import RUN_NAMES, TIME, axis_number

MAX_PLACES = 20_000  # distinct places of a table


def read_records(path: Path, run: str | None, fields: Sequence[str]) -> Any:
    """Return a CSV or Parquet table as an xarray.Dataset, NaN where a run has no row for a place.

    A column says the run (that named, or ``run``, ``sample`` or alike, else a date or time), others
    the place (x, y, z, lon, lat or alike), and numbers that remain are fields. Columns that are
    asked for as fields are nothing else. Runs come in the order of their column. It raises
    `DataError` if a column is lacking, or a run has two rows for one place.
    """
    import pandas as pd
    import xarray

    table = (pd.read_parquet if path.suffix.lower() == ".parquet" else pd.read_csv)(path)
    table.columns = [str(one).strip() for one in table.columns]
    called = {one: axis_number(one, {}) for one in table.columns if one not in fields}
    runs = [one for one in (RUN_NAMES if run is None else [run]) if one in called]
    if run is None:
        runs += [one for one, kind in called.items() if kind == TIME]
    axes = [one for one, kind in sorted(called.items(), key=lambda item: str(item[1]))
            if kind in range(TIME) and one not in runs[:1]]  # fmt: skip
    if not runs or not axes:
        named = "run, sample, time, date; or named by run" if run is None else run
        lacking = "place (x, y, z or lon, lat)" if runs else f"run ({named})"
        there = ", ".join(table.columns)
        raise DataError(f"{path}: no column says the {lacking} of a reading; there are {there}")
    places = table.groupby(axes, sort=True).ngroup().to_numpy()
    number, names = pd.factorize(table[runs[0]], sort=True)
    unplaced = (places < 0) | (number < 0)
    if unplaced.any():
        raise DataError(f"{path}: row {unplaced.argmax() + 1} lacks {runs[0]} or {', '.join(axes)}")
    if places.max() >= MAX_PLACES:
        raise DataError(
            f"{path}: {places.max() + 1} different places, at most {MAX_PLACES}; where every run "
            "has places of its own, round them to a common grid first"
        )
    cells = number * (places.max() + 1) + places
    if len(set(cells.tolist())) < len(cells):
        row = int(table.duplicated([runs[0], *axes]).to_numpy().argmax())
        of = f"{runs[0]} {table[runs[0]][row]}"
        raise DataError(f"{path}: row {row + 1} is a second one of {of} and its place")
    _, first = np.unique(places, return_index=True)
    found = xarray.Dataset(
        coords={name: ("place", table[name].to_numpy(float)[first], {"axis": "XYZ"[k]})
                for k, name in enumerate(axes)},
    )  # fmt: skip
    for name in table.columns.difference([runs[0], *axes]):
        if table[name].dtype.kind not in "fiub":
            continue
        values = np.full((len(names), len(first)), np.nan)
        values[number, places] = table[name].to_numpy(float)
        found[name] = (run or "run", "place"), values
    return found
