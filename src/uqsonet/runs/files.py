"""From files to runs: npz, HDF5, NetCDF (`open_runs`).

>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")
"""

from __future__ import annotations

import glob
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from uqsonet.errors import DataError, library, nearest, printable
from uqsonet.fields.layout import LabelledField
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import Domain
from uqsonet.files import FORMAT, path_of, readable, text_of
from uqsonet.runs.field_runs import FieldRuns, Missing
from uqsonet.runs.functions import SPLITS
from uqsonet.runs.guard import hdf5_arrays, require_own_zarr
from uqsonet.runs.labelled import (
    RUN_NAMES,
    VALID,
    axis_number,
    no_coordinate,
    read_labelled,
    run_dimension,
    without_invalid,
)  # fmt: skip
from uqsonet.runs.meshes import MESHIO_FORMATS, read_mesh
from uqsonet.runs.npz import npz_arrays
from uqsonet.runs.runs import Runs
from uqsonet.runs.stored import Pile, changed, stored_values

LOG = logging.getLogger("uqsonet")

KINDS = {
    ".npz": "npz", ".h5": "HDF5", ".hdf5": "HDF5", ".hdf": "HDF5", ".nc": "NetCDF",
    ".nc4": "NetCDF", ".netcdf": "NetCDF", ".zarr": "Zarr", **dict.fromkeys(MESHIO_FORMATS, "mesh"),
}  # fmt: skip
"""Kinds of files that can be read, by suffix."""

HINTS = {
    ".npy": "; one array has no name: use numpy.savez",
    ".mat": "; version 7.3 is HDF5 with all dimensions reversed: read it by h5py, transpose the "
    "arrays so that runs come first, and write .npz or .h5",
}
"""Ways out for files that are not read, by suffix."""

PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value", *VALID)
"""Attributes of packed values."""

TIME = 3  # number of the time axis
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
        need the package meshio). Several files of one kind, ``"run_*.nc"`` or a list,
        hold one run each, or some of the runs.
    input, output : str or sequence of str
        Names of the fields: one, several in a list, or ``"k,f"``.
    points : optional
        Where the values stand, instead of what the file says (`FieldRuns.of`): for all fields, or a
        mapping by field.
    transform : {"identity", "log", "asinh"}, or mapping by field, optional
        One word is meant for the inputs. By default `uqsonet.fit` chooses.
    units : mapping by field, optional
    missing : {"error", "drop", "fill"}
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
    npz and HDF5: values have shape (runs, points) or (runs, points along each axis). The points of
    a field ``k`` are ``k_points`` (n, d); or ``k_x``, ``k_y``, ``k_z``; or, for all fields,
    ``points``; or ``x``, ``y``, ``z``. One-dimensional ``x``, ``y``, ``z`` are the axes of a grid,
    or, where each has as many entries as a run has values, the coordinates of its points. Without
    any of these it is a uniform grid on the unit interval, square or cube, ends included. HDF5
    datasets in groups are named by their path, ``group/k``; coordinates are looked for in the same
    group first, then at the top, then in the one group that has some. An attribute ``units`` is
    taken.

    HDF5 files of this project (docs/architecture.md) have fields by symbol, those of the split
    ``training``; ``test/k`` names another.

    HDF5: ``scale_factor``, ``add_offset``, ``_FillValue`` and ``missing_value`` are applied.
    Axes of length one are dropped.

    NetCDF and Zarr are decoded by xarray (scale, offset, fill values, times). The dimension of runs
    is `run`, else the one called run, sample, realization, member, case or alike, else the one that
    all fields share and that has no coordinate. Coordinates are recognised by the CF conventions
    (``axis``, ``standard_name``, ``units``), then by usual names (lon, lat, XLONG, nav_lat, height,
    time), and come in the order x, y, z, time. Dimensions of length one are dropped. Coordinates
    with an entry for each value of a run make a point cloud. Answers go back to the names, order
    and units of the file (`FieldPosterior.to_xarray`).
    """
    sides = _listed(input, "input"), _listed(output, "output")
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
        with opened(path, kind_of([path])) as there:
            _require(name, there, path)
            labels.append(np.atleast_1d(np.asarray(there[name][()])))
    return np.concatenate(labels)


def _listed(names: str | Sequence[str], what: str) -> list[str]:
    found = names.split(",") if isinstance(names, str) else list(names)
    found = [str(name).strip() for name in found]
    if not found or not all(found):
        raise DataError(f"{what}: give the name of a field, or several as 'k,f'; found {names!r}")
    if len(set(found)) < len(found):
        raise DataError(f"{what}: a field is named twice in {names!r}")
    return found


def _keys(wanted: Iterable[str]) -> dict[str, str]:
    """Return what fields are called in `Runs`: the last part of a path where that is unique."""
    last = [name.rpartition("/")[2] for name in wanted]
    return {n: k if last.count(k) == 1 else n for n, k in zip(wanted, last, strict=True)}


def _read(
    paths: Sequence[Path], wanted: Sequence[str], run: str | None, several: bool
) -> dict[str, LabelledField]:
    """Return the fields of one file, or of several that hold one run each, or some of the runs."""
    kind = kind_of(paths)
    if run is not None and kind not in ("NetCDF", "Zarr"):
        raise DataError(
            f"{paths[0]}: run={run!r} names a dimension of NetCDF; here runs come first"
        )
    first = _fields(paths[0], kind, wanted, run, several)
    if len(paths) == 1:
        return first
    piles = {name: Pile(f"{paths[0]}, {name}") for name in wanted}
    for number, path in enumerate(paths):
        LOG.log(15, "reading %s", path)
        read = _fields(path, kind, wanted, run, True) if number else first
        for name, one in read.items():
            same = one.values.shape[1:] == first[name].values.shape[1:]
            if not same or not _same_points(one.points, first[name].points):
                raise DataError(f"{path}, {name}: other points than in {paths[0]}")
            piles[name].add(one.values)
    return {name: replace(first[name], values=piles[name].array()) for name in wanted}


def is_zarr(path: Path) -> bool:
    """Return whether a folder is a group or an array of Zarr, of format 2 or 3."""
    return any((path / name).is_file() for name in (".zgroup", ".zarray", "zarr.json"))


def kind_of(paths: Sequence[Path]) -> str:
    """Return the kind of files; refuse several, or one that is not read."""
    suffixes = {path.suffix.lower() for path in paths}
    kinds = {KINDS.get(path.suffix.lower()) or _kind_of_contents(path) for path in paths}
    if len(kinds) > 1:
        found = ", ".join(sorted(suffixes))
        raise DataError(f"{paths[0]}: several files must be of one kind; found {found}")
    if not (kind := kinds.pop()):
        suffix = suffixes.pop()
        hint = HINTS.get(suffix, "")
        raise DataError(
            f"{paths[0]}: files of runs end in {', '.join(KINDS)}; found "
            f"{suffix or 'no suffix'!r}{hint}"
        )
    return kind


def _kind_of_contents(path: Path) -> str:
    """Return the kind of a file without a known suffix, such as WRF's: NetCDF, HDF5, or unknown."""
    if path.suffix.lower() in HINTS or path.is_dir():
        return "Zarr" if is_zarr(path) else ""
    with path.open("rb") as file:
        head = file.read(8)
    if head[:3] == b"CDF":
        return "NetCDF"
    if head != b"\x89HDF\r\n\x1a\n":
        return ""
    with readable(path, "not a readable HDF5 file"), hdf5_arrays(path) as (file, _):
        return "NetCDF" if "_NCProperties" in file.attrs else "HDF5"


def _same_points(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    return one is other or np.array_equal(np.asarray(one), np.asarray(other))


def _require(name: str, there: Mapping[str, Any], path: Path) -> None:
    """Refuse a name that is not there or not read, which a text says in its place; list others."""
    shapes = {str(n): one.shape for n, one in there.items() if hasattr(one, "dtype")}
    if name in shapes:
        return
    listed = [f"{key} ({' x '.join(map(str, shape))})" for key, shape in shapes.items()]
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    why = f"; {name!r} is not read: {there[name]}" if name in there else nearest(name, shapes, 0.5)
    raise DataError(
        f"{path}: no array {name!r}; there are {', '.join(listed[:MAX_NAMES]) or 'none'}{more}{why}"
    )


@contextmanager
def opened(path: Path, kind: str) -> Iterator[Any]:
    """Yield what a file holds by name; of NetCDF and Zarr as an xarray.Dataset, read when used."""
    if kind == "mesh":
        raise DataError(f"{path}: a mesh holds values at its nodes alone")
    if kind == "Zarr":
        require_own_zarr(path)
        library("zarr", "")  # no extra brings it
    with readable(path, f"not a readable {kind} file"):
        if kind == "npz":
            yield npz_arrays(path)
        elif kind == "HDF5":
            with hdf5_arrays(path) as (file, arrays):
                yield _by_symbol(path, file, arrays)
        else:
            with _dataset(path, kind) as data:
                yield data


def _by_symbol(path: Path, file: h5py.File, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arrays by symbol, and their grids, of a file of the study; those of others as are."""
    if [text_of(file.attrs.get(key)) for key in ("format", "kind")] != [FORMAT, "functions"]:
        return arrays
    with readable(path, "header cannot be read"):
        fields = OperatorFields.from_dict(json.loads(text_of(file.attrs["meta"])).get("fields"))
    found: dict[str, Any] = {}
    for split in SPLITS:
        prefix = "" if split == "training" else f"{split}/"
        output = fields.output.grid if prefix else fields.training_grid()[0]
        for side, name, domain in (
            (fields.input, "kappa", fields.input.grid), (fields.output, "u", output),
        ):  # fmt: skip
            if f"{split}/{name}" in arrays:
                found[prefix + side.symbol] = arrays[f"{split}/{name}"]
                found[f"{prefix}{side.symbol}_points"] = domain
    return found


def _dataset(path: Path, kind: str) -> Any:
    """Open a NetCDF or Zarr file by xarray."""
    import xarray

    engine = "zarr"
    if kind == "NetCDF":
        with path.open("rb") as file:
            engine = "scipy" if file.read(3) == b"CDF" else "h5netcdf"
    if engine == "h5netcdf":
        with hdf5_arrays(path) as (_, arrays):
            for name, one in arrays.items():
                if isinstance(one, str):
                    raise DataError(f"{path}: {name!r} is not read: {one}")
    known: dict[str, Any] = {"engine": engine, "decode_timedelta": False}
    known |= {"consolidated": False} if kind == "Zarr" else {}
    try:
        return xarray.open_dataset(path, **known)
    except (ValueError, OverflowError, ImportError):  # times of a calendar of its own
        return xarray.open_dataset(path, decode_times=False, **known)
    except KeyError:
        raise DataError(
            f"{path}: arrays need names of dimensions, as to_zarr of xarray writes them; without "
            "them: numpy.savez('runs.npz', k=zarr.open(...)['k'][:], ...)"
        ) from None


def _fields(
    path: Path, kind: str, wanted: Sequence[str], run: str | None, alone: bool
) -> dict[str, LabelledField]:
    """Return the fields of one file; with `alone` it may hold a single run."""
    if kind == "mesh":
        found = read_mesh(path)
        for name in wanted:
            _require(name, {n: one.values[0] for n, one in found.items()}, path)
        return {name: found[name] for name in wanted}
    with opened(path, kind) as there:
        if kind in ("NetCDF", "Zarr"):
            for name in wanted:
                _require(name, there.variables, path)
            return _labelled(path, there, wanted, run, alone)
        full = {name: _full_name(name, there) for name in wanted}
        for one in full.values():
            _require(one, there, path)
        others = {n: one for n, one in there.items() if n not in full.values()}
        runs = None if alone else max((there[one].shape or (1,))[0] for one in full.values())
        return {n: _plain(path, one, there[one], others, runs) for n, one in full.items()}


def _full_name(name: str, arrays: Mapping[str, object]) -> str:
    """Return the path of an array in groups that is named by its last part alone."""
    ends = sorted(path for path in arrays if path.endswith(f"/{name}"))
    ends = [path for path in ends if not isinstance(arrays[path], str)] or ends
    same = len({arrays[path] for path in ends}) == 1  # an array may have several names
    return ends[0] if same and name not in arrays else name


def _labelled(
    path: Path, data: Any, wanted: Sequence[str], run: str | None, alone: bool
) -> dict[str, LabelledField]:
    """Return fields of an xarray.Dataset."""
    arrays = [data[name] for name in wanted]
    if alone:
        shared = (d for d in RUN_NAMES if all(d in one.dims for one in arrays))
        run = run or next(shared, "run")
        arrays = [one if run in one.dims else one.expand_dims(run) for one in arrays]
    run = run_dimension(arrays, run, str(path))
    return {str(one.name): read_labelled(one, run, f"{path}, {one.name}", data) for one in arrays}


def _plain(
    path: Path, name: str, item: Any, others: Mapping[str, Any], runs: int | None
) -> LabelledField:
    """Return a field of an npz or HDF5 file with its points; without `runs` it is a single run."""
    values, units = decoded(path, name, item)
    values = values[None] if runs is None else values
    if len(values) == 1 and values.shape[1:2] == (runs,):
        LOG.info("%s, %s: the first axis, of length one, is left out", path, name)
        values = values[0]
    if values.ndim:
        shape = tuple(n for n in values.shape[1:] if n > 1)
        values = values.reshape(len(values), *(shape or values.shape[1:2]))
        if not shape:  # coordinates are those of other fields
            return LabelledField(values, None, None, units)
    try:
        points = _points(path, name, others, values.ndim - 1)
        if isinstance(points, dict):
            field = _with_axes(values, points, f"{path}, {name}")
            return replace(field, units=units)
    except DataError as error:  # it counts only if no other points are stated
        points = error
    return LabelledField(values, points, None, units)


def decoded(path: Path, name: str, item: Any) -> tuple[np.ndarray, str]:
    """Return an array and its units; packed values are decoded (CF, sections 2.5 and 8.1)."""
    stored = getattr(item, "attrs", {})
    with readable(path, f"array {name!r} is damaged"):
        packing = {key: np.asarray(stored[key]) for key in PACKING if key in stored}
        units = printable(text_of(stored["units"])) if "units" in stored else ""
        if item.dtype.hasobject:  # texts are no field, and may say that they have any length
            return np.broadcast_to(np.array(None, object), item.shape), units
        raw = stored_values(item, f"{path}, {name}")
    if packing and raw.dtype.kind in "fiu":
        raw = changed(raw, partial(_unpacked, packing), f"{path}, {name}")
    return raw, units


def _unpacked(packing: Mapping[str, np.ndarray], raw: np.ndarray) -> np.ndarray:
    """Return values decoded by scale, offset, fill values and range."""
    from xarray import Variable, conventions

    dims = [f"dim_{k}" for k in range(raw.ndim)]
    known = {key: value.ravel()[0] for key, value in packing.items() if key not in VALID}
    values = np.asarray(conventions.decode_cf_variable("k", Variable(dims, raw, known)).values)
    return without_invalid(values, {**packing, "dtype": raw.dtype})


def _points(path: Path, name: str, others: Mapping[str, Any], axes: int) -> Any:
    """Return what names give a field: points, coordinates x, y, z, time by number, or None."""
    group = name[: name.rfind("/") + 1]
    for home in (f"{name}_", group, "", None):
        home = _home_of_axes(path, others) if home is None else home
        if f"{home}points" in others:
            return _coordinate(path, f"{home}points", others)
        kinds: dict[int, str] = {}
        for key in sorted(others, reverse=True):  # the first by name is kept
            kind = axis_number(key.removeprefix(home), {}) if key.startswith(home) else None
            if kind is not None:
                kinds[kind] = key
        if len(kinds) > axes:
            kinds.pop(TIME, None)  # of other fields
        if any(kind < TIME for kind in kinds):
            return {kind: _coordinate(path, key, others) for kind, key in sorted(kinds.items())}
    return None


def _home_of_axes(path: Path, others: Mapping[str, Any]) -> str:
    """Return the group of a file that holds coordinates apart from its fields, if there is one."""
    homes = set[str]()
    for key, one in others.items():
        group, _, last = key.rpartition("/")
        if group and len(getattr(one, "shape", ())) == 1 and axis_number(last, {}) in range(TIME):
            homes.add(f"{group}/")
    if len(homes) > 1:
        raise DataError(
            f"{path}: coordinates stand in several groups, {', '.join(sorted(homes))}; say by "
            "points= which are meant"
        )
    return homes.pop() if homes else ""


def _coordinate(path: Path, key: str, others: Mapping[str, Any]) -> Any:
    item = others[key]
    if isinstance(item, Domain):
        return item
    if isinstance(item, str) or item.dtype.kind not in "fiub":
        raise no_coordinate(f"{path}, {key}", item if isinstance(item, str) else str(item.dtype))
    values, _ = decoded(path, key, item)
    return values.astype(np.float64)


def _with_axes(
    values: np.ndarray, coordinates: Mapping[int, np.ndarray], where: str
) -> LabelledField:
    """Return a field with coordinates x, y, z, time: its axes, or one entry for each value."""
    from xarray import DataArray

    shape = values.shape[1:]
    names = [("x", "y", "z", "time")[kind] for kind in coordinates]
    arrays = [one.squeeze() if one.ndim > 1 else one for one in coordinates.values()]
    lengths = [len(one) if one.ndim == 1 else -1 for one in arrays]
    dims = [f"dim_{k}" for k in range(len(shape))]
    places = [order for order in permutations(range(len(shape)), len(lengths))
              if [shape[k] for k in order] == lengths]  # fmt: skip
    if places and len(lengths) == len(shape):
        for name, place in zip(names, places[0], strict=True):
            dims[place] = name
        along: list[Any] = [(name,) for name in names]
    elif all(one.shape == shape for one in arrays):
        along = [dims] * len(arrays)
    elif wrong := [one.shape for one in arrays if one.ndim != 1]:
        raise DataError(
            f"{where}: coordinates must be the axes of a grid, or one for each of {shape} values "
            f"of a run; found an array of {wrong[0]}"
        )
    else:
        return LabelledField(values, tuple(arrays), None, "")  # `FieldRuns.of` says what is wrong
    own = {name: (d, one) for name, d, one in zip(names, along, arrays, strict=True)}
    return read_labelled(DataArray(values, own, ("run", *dims)), "run", where)
