"""Measured and reanalysed fields as data sets of `benchmarks.people`: random runs are asked about.

Their packages are fetched into one folder, and none of their files is part of the project:

    pip download --no-deps iris-sample-data eofs
    apt-get download ferret-datasets
    for f in *.whl; do python -m zipfile -e $f .; done; dpkg-deb -x ferret-datasets_*.deb .
    python -m benchmarks.people --real . --only e1 winds winters --out real.csv
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

from benchmarks.people_data import Data, Row, box


def _fields(
    path: Path, names: dict[str, str], axes: tuple[str, str], rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return fields of a NetCDF file by short name, runs in random order, and their points."""
    with xr.open_dataset(path, decode_times=False) as file:
        points = box(*(file[axis].values.astype(float) for axis in axes))
        order = rng.permutation(next(iter(file[name].shape[0] for name in names.values())))
        fields = {
            short: file[name].squeeze().values.astype(float).reshape(len(order), -1)[order]
            for short, name in names.items()
        }
    return fields, dict.fromkeys(fields, points)


def e1(folder: Path, rng: np.random.Generator) -> Data:
    """Surface air temperature over North America in 240 years of a climate simulation."""
    path = folder / "iris_sample_data/sample_data/E1_north_america.nc"
    found = _fields(path, {"t": "air_temperature"}, ("latitude", "longitude"), rng)
    rows: list[Row] = [("t", "t", m) for m in (5, 20, 60)]
    return Data(*found, 180, [("t", ["t"], rows)])


def winds(folder: Path, rng: np.random.Generator) -> Data:
    """Monthly winds of the US Navy over the globe, east and north, 1982 to 1992."""
    path = folder / "usr/share/ferret-vis/data/monthly_navy_winds.cdf"
    found = _fields(path, {"u": "UWND", "v": "VWND"}, ("FNOCY", "FNOCX"), rng)
    models: list[tuple[str, list[str], list[Row]]] = [
        ("u", [answer], [("u", answer, 20)]) for answer in ("v", "u")
    ]
    return Data(*found, 100, models)


def winters(folder: Path, rng: np.random.Generator) -> Data:
    """Mean height of the 500 hPa surface over the North Atlantic in 65 winters."""
    path = folder / "eofs/examples/example_data/hgt_djf.nc"
    found = _fields(path, {"z": "z"}, ("latitude", "longitude"), rng)
    rows: list[Row] = [("z", "z", m) for m in (5, 20)]
    return Data(*found, 45, [("z", ["z"], rows)])


REAL: dict[str, Callable[[Path, np.random.Generator], Data]] = {
    "e1": e1,
    "winds": winds,
    "winters": winters,
}
"""Readers of the data sets: folder and generator to data."""
