"""Long tables of records, ``run,x[,y[,z]],value``: one row for each reading of a station."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import DataError
from uqsonet.runs.labelled import RUN_NAMES, TIME, axis_number

MAX_PLACES = 20_000  # distinct places of a table


def read_records(path: Path) -> Any:
    """Return a CSV or Parquet table as an xarray.Dataset, NaN where a run has no row for a place.

    A column says the run (``run``, ``sample`` or alike, else a date or time), others the place (x,
    y, z, lon, lat or alike), and numbers that remain are fields. It raises `DataError` if a column
    is lacking, or a run has two rows for one place.
    """
    import pandas as pd
    import xarray

    table = (pd.read_parquet if path.suffix.lower() == ".parquet" else pd.read_csv)(path)
    table.columns = [str(one).strip() for one in table.columns]
    called = {one: axis_number(one, {}) for one in table.columns}
    runs = [one for one in RUN_NAMES if one in called]
    runs += [one for one, kind in called.items() if kind == TIME]
    axes = [one for one, kind in sorted(called.items(), key=lambda item: str(item[1]))
            if kind in range(TIME) and one not in runs[:1]]  # fmt: skip
    if not runs or not axes:
        lacking = "place (x, y, z or lon, lat)" if runs else "run (run, sample, time or date)"
        there = ", ".join(table.columns)
        raise DataError(f"{path}: no column says the {lacking} of a reading; there are {there}")
    places = table.groupby(axes, sort=True).ngroup().to_numpy()
    names, run = np.unique(table[runs[0]].astype(str), return_inverse=True)
    unplaced = (places < 0) | table[runs[0]].isna().to_numpy()
    if unplaced.any():
        raise DataError(f"{path}: row {unplaced.argmax() + 1} lacks {runs[0]} or {', '.join(axes)}")
    if places.max() >= MAX_PLACES:
        raise DataError(
            f"{path}: {places.max() + 1} different places, at most {MAX_PLACES}; where every run "
            "has places of its own, round them to a common grid first"
        )
    cells = run * (places.max() + 1) + places
    if len(set(cells.tolist())) < len(cells):
        row = int(table.duplicated([runs[0], *axes]).to_numpy().argmax())
        raise DataError(f"{path}: row {row + 1} is a second one of its run and place")
    _, first = np.unique(places, return_index=True)
    found = xarray.Dataset(
        coords={name: ("place", table[name].to_numpy(float)[first], {"axis": "XYZ"[k]})
                for k, name in enumerate(axes)},
    )  # fmt: skip
    for name in table.columns.difference([runs[0], *axes]):
        if table[name].dtype.kind not in "fiub":
            continue
        values = np.full((len(names), len(first)), np.nan)
        values[run, places] = table[name].to_numpy(float)
        found[name] = ("run", "place"), values
    return found
