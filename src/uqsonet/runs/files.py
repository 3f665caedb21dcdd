"""From files to runs (`open_runs`), and what a file holds (`contents`).

>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")
"""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import DataError, nearest, printable
from uqsonet.fields.layout import LabelledField
from uqsonet.files import path_of
from uqsonet.runs.field_runs import FieldRuns, Missing, Scan
from uqsonet.runs.formats import as_dataset, is_zarr
from uqsonet.runs.labelled import read_fields, valid_values
from uqsonet.runs.runs import Runs
from uqsonet.runs.stored import joined, row_blocks

LOG = logging.getLogger("uqsonet")

IS_PATH = re.compile(r"[\w.+ /-]+")  # of an array in groups
MAX_NAMES = 30  # maximum number of names that a message lists


def open_runs(
    path: Path | str | Sequence[Path | str],
    input: str | Sequence[str],
    output: str | Sequence[str],
    points: object = None,
    transform: str | Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    missing: Missing = "error",
    periodic: bool | str | Sequence[str] = False,
    run: str | None = None,
    groups: object = None,
    merge: bool = False,
) -> Runs:
    """Return the runs that a file holds: one array for each field, a run in each row.

    Parameters
    ----------
    path : path, glob, or sequence of paths
        ``.npz``, ``.h5`` / ``.hdf5`` / ``.hdf``, NetCDF (``.nc`` / ``.nc4`` / ``.netcdf``) or Zarr
        (``.zarr``, needs the package zarr), or meshes (``.vtu``, ``.vtk``, ``.msh``, one run each;
        need the package meshio). Several files, ``"run_*.nc"`` or a list, hold one run each, or
        some of the runs.
    input, output : str or sequence of str
        Names of the fields: one, several in a list, or ``"k,f"``.
    points : optional
        Where the values stand, instead of what the file says (`FieldRuns.of`): for all fields, or a
        mapping by field.
    transform : {"identity", "log", "asinh"}, or mapping by field, optional
        One word is meant for the inputs. By default `uqsonet.fit` chooses.
    units : mapping by field, optional
    missing : {"error", "drop", "fill", "model"}
        What to do about NaN (`FieldRuns.of`).
    periodic : bool, or names of axes
        The fields repeat beyond their grids, along all axes or along these (`FieldRuns.of`).
    run : str, optional
        NetCDF: the dimension that counts runs.
    groups : sequence of labels, or str, optional
        Runs that belong together (`Runs`): their labels, or the name of an array of the file.
    merge : bool
        Points of a cloud that repeat become one (`FieldRuns.of`).

    Returns
    -------
    Runs

    Raises
    ------
    DataError
        If the file is missing, damaged or of another kind, has no such field, or the field cannot
        be used.

    Notes
    -----
    npz and HDF5: runs are the first axis. The points of a field ``k`` are ``k_points`` (n, d); or
    ``k_x``, ``k_y``, ``k_z``; or, for all fields, ``points``; or ``x``, ``y``, ``z``: the axes of a
    grid, or one entry for each value of a run. Without any it is a uniform grid on the unit
    interval, square or cube, ends included. HDF5 datasets in groups are ``group/k``, or ``k`` where
    that is unique.

    NetCDF and Zarr: the dimension of runs is `run`, else the one called run, sample, realization,
    member, case or alike, else the one that all fields share and that has no coordinate.
    Coordinates are recognised by the CF conventions, then by usual names (lon, lat, XLONG, time),
    and come in the order x, y, z, time; with an entry for each value of a run they are points.

    Values are decoded by the CF conventions (scale, offset, fill values, valid range, times), and
    dimensions of length one are dropped. Answers go back to the names, order and units of the file
    (`FieldPosterior.to_xarray`).
    """
    sides = listed(input, "input"), listed(output, "output")
    wanted = [name for side in sides for name in side]
    paths, keys = paths_of(path), _keys(wanted)
    if isinstance(transform, str):
        transform = {keys[name]: transform for name in sides[0]}
    place = points if isinstance(points, Mapping) else {}
    given = {"points": place, "transform": transform or {}, "units": units or {}}
    for what, by_field in given.items():
        for name in by_field:
            if name not in keys.values():
                there = ", ".join(keys.values())
                raise DataError(f"{what}: {name!r} is none of the fields {there}")
    fields = {}
    several = len(paths) > 1 or glob.has_magic(str(path)) or not isinstance(path, str | Path)
    for name, one in _read(paths, wanted, run, several).items():
        key = keys[name]
        fields[key] = FieldRuns.of(
            one, place.get(key, None if place else points), given["transform"].get(key),
            given["units"].get(key, ""), periodic, missing, f"{paths[0]}, {name}", merge,
        )  # fmt: skip
    if isinstance(groups, str):
        groups = _labels(paths, groups)
    ins, outs = ({keys[name]: fields[keys[name]] for name in side} for side in sides)
    try:
        return Runs(ins, outs, paths[0].stem, groups)
    except DataError as error:
        raise DataError(f"{paths[0]}: {error}") from None


def paths_of(path: Path | str | Sequence[Path | str]) -> list[Path]:
    """Return the files that a path, a pattern or a list names."""
    if isinstance(path, str | Path) and glob.has_magic(str(path)) and not path_of(path).exists():
        paths = [Path(one) for one in sorted(glob.glob(str(path)))]  # noqa: PTH207
        if not paths:
            raise DataError(f"{path}: no such file")
    elif isinstance(path, Iterable) and not isinstance(path, str | bytes):
        paths = [path_of(one) for one in path]
    else:
        paths = [path_of(path)]
    if not paths:
        raise DataError("path: an empty list of files")
    for one in paths:
        folder = one.suffix.lower() == ".zarr" or is_zarr(one)
        if not (one.is_dir() if folder else one.is_file()):
            raise DataError(f"{one}: {'is a folder' if one.is_dir() else 'no such file'}")
        if not folder and one.stat().st_size == 0:
            raise DataError(f"{one}: empty file")
    return paths


def _labels(paths: Sequence[Path], name: str) -> np.ndarray:
    """Return what an array of one file, or of several, holds: a label for each run."""
    labels = []
    for path in paths:
        with as_dataset(path) as data:
            labels.append(np.atleast_1d(data[_name_in(data, name, path)].values))
    return np.concatenate(labels)


def listed(names: str | Sequence[str], what: str) -> list[str]:
    """Return the names that a caller gives, in a list or as 'k,f'; `DataError` for none."""
    found = names.split(",") if isinstance(names, str) else list(names)
    found = [str(name).strip() for name in found]
    if not found or not all(found):
        raise DataError(f"{what}: give the name of a field, or several as 'k,f'; found {names!r}")
    if len(set(found)) < len(found):
        raise DataError(f"{what}: a field is named twice in {names!r}")
    return found


def _keys(wanted: Iterable[str]) -> dict[str, str]:
    """Return what fields are called in `Runs`: the last part of a path where that is unique.

    ``Heat flux (W/m^2)`` is no path.
    """
    last = [name.rpartition("/")[2] if IS_PATH.fullmatch(name) else name for name in wanted]
    return {n: k if last.count(k) == 1 else n for n, k in zip(wanted, last, strict=True)}


def _read(
    paths: Sequence[Path], wanted: Sequence[str], run: str | None, several: bool
) -> dict[str, LabelledField]:
    """Return the fields of one file, or of several that hold one run each, or some of the runs."""

    def fields_of(path: Path, some: Sequence[str]) -> dict[str, LabelledField]:
        LOG.log(15, "reading %s", path)
        with as_dataset(path, run, wanted) as data:
            names = {name: _name_in(data, name, path) for name in wanted}
            return read_fields(data, names, run, several, path, some)

    first = fields_of(paths[0], wanted)
    if len(paths) == 1:
        return first

    def values_of(name: str) -> Iterator[np.ndarray]:
        for path in paths:
            one, same = fields_of(path, [name])[name], first[name]
            alike = one.values.shape[1:] == same.values.shape[1:]
            if not alike or not _same_points(one.points, same.points):
                raise DataError(f"{path}, {name}: other points than in {paths[0]}")
            yield one.values

    where = f"{paths[0]}, "
    return {n: one._replace(values=joined(values_of(n), where + n)) for n, one in first.items()}


def _same_points(one: Any, other: Any) -> bool:
    if isinstance(one, DataError) and isinstance(other, DataError):
        return True  # they are said of the first file, unless somebody states points
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    return one is other or np.array_equal(np.asarray(one), np.asarray(other))


def _name_in(data: Any, name: str, path: Path) -> str:
    """Return the name of an array in a dataset, which may be left without its group.

    A name that is not there, or not read, is refused; the message lists others.
    """
    ends = [key for key in data.variables if str(key).endswith(f"/{name}")]
    if name in data.variables or len(ends) == 1:
        return name if name in data.variables else ends[0]
    unread, shapes = data.attrs.get("unread", {}), {n: v.shape for n, v in data.variables.items()}
    listed = [f"{key} ({' x '.join(map(str, shape))})" for key, shape in shapes.items()]
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    why = f"; {name!r} is not read: {unread[name]}" if name in unread else ""
    why = why or nearest(name, shapes, 0.5)
    raise DataError(
        f"{path}: no array {name!r}; there are {', '.join(listed[:MAX_NAMES]) or 'none'}{more}{why}"
    )


def contents(path: Path | str) -> str:
    """Return a line for each array of a file: name, shape, units, range, missing values.

    Of several files (a glob) the first is looked at. Files that cannot be read are refused
    (`DataError`) as by `open_runs`.
    """
    paths = paths_of(path)
    with as_dataset(paths[0]) as data:
        largest = sorted(data.variables, key=lambda name: -data.variables[name].ndim)
        lines = [_line(name, data.variables[name]) for name in largest[:MAX_NAMES]]
        lines += [f"  {n}: not read, {why}" for n, why in data.attrs.get("unread", {}).items()]
    more = [f"  and {len(largest) - MAX_NAMES} more"] if len(largest) > MAX_NAMES else []
    many = f", the first of {len(paths)} files" if len(paths) > 1 else ""
    how = f"To go on: uqsonet describe {path} --input NAME --output NAME"
    return printable("\n".join([f"{paths[0]}{many}: {len(lines)} arrays", *lines, *more, how]))


def _line(name: str, variable: Any) -> str:
    """Return a line: name, shape, dimensions, units, and what the values are."""
    shape, dtype = " x ".join(map(str, variable.shape)) or "one value", variable.dtype
    dims = "" if any("//" in d for d in variable.dims) else f" ({', '.join(variable.dims)})"
    units = str(variable.attrs.get("units", ""))
    text = f"  {name}: {shape}{dims if variable.dims else ''}{', ' * bool(units)}{units}"
    if dtype.kind not in "fiub" or 0 in variable.shape:
        return f"{text}, {dtype}"
    blocks = row_blocks(variable) if variable.ndim else [variable]
    seen = [Scan.of(valid_values(one).astype(np.float64).reshape(1, -1)) for one in blocks]
    low, high = min(one.lowest[0] for one in seen), max(one.highest[0] for one in seen)
    missing = sum(int(one.missing[0]) for one in seen)
    text += f", {low:.4g} to {high:.4g}" if low <= high else ", no value"
    return text + (f", {missing} values missing" if missing else "")
