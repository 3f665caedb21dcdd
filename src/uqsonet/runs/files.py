"""From files to runs: npz, HDF5, NetCDF (`open_runs`).

>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")
"""

from __future__ import annotations

import glob
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import h5py
import numpy as np

from uqsonet.errors import DataError, library, nearest
from uqsonet.fields.grid import Domain
from uqsonet.fields.numbers import MAX_WHOLE, require_exact
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import FORMAT, readable
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.functions import SPLITS
from uqsonet.runs.guard import (
    NpzArray,
    data_sets,
    npz_arrays,
    require_ending_heaps,
    require_own_zarr,
    require_stored,
    text_of,
)  # fmt: skip
from uqsonet.runs.labelled import (
    RUN_NAMES,
    VALID,
    LabelledField,
    axis_number,
    no_coordinate,
    read_labelled,
    run_dimension,
    without_invalid,
)  # fmt: skip
from uqsonet.runs.meshes import FORMATS, read_mesh
from uqsonet.runs.runs import Runs
from uqsonet.runs.stored import Pile, changed, stored_values

NPZ, HDF5, NETCDF = (".npz",), (".h5", ".hdf5", ".hdf"), (".nc", ".nc4", ".netcdf")
ZARR, MESHES = (".zarr",), tuple(FORMATS)
"""Suffixes of files that can be read."""

SHOWN = 30
"""Maximum number of names that a message lists."""

_UNREADABLE = (
    OSError, ValueError, KeyError, RuntimeError, TypeError, EOFError, OverflowError, MemoryError,
    SyntaxError, TokenError, zipfile.BadZipFile, zlib.error, NotImplementedError, IndexError,
    AttributeError,
)  # fmt: skip
"""Errors that libraries raise for a damaged file."""


def open_runs(
    path: Path | str | Sequence[Path | str],
    input: str | Sequence[str],
    output: str | Sequence[str],
    points: object = None,
    transform: str | Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    missing: Literal["error", "drop", "fill"] = "error",
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
    group first. An attribute ``units`` is taken.

    HDF5 files of this project (docs/data-format.md) have their fields by symbol, those of the split
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
    paths = _paths(path)
    keys = _keys(wanted)
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
        where = place.get(key, one.points if points is None or place else points)
        if isinstance(where, DataError):
            raise where
        stated = where is not one.points
        fields[key] = FieldRuns.of(
            one.values, where, given["transform"].get(key), given["units"].get(key, one.units),
            periodic, missing, f"{paths[0]}, {name}", None if stated else one.layout, merge,
        )  # fmt: skip
    if isinstance(groups, str):
        groups = _labels(paths, groups)
    ins, outs = ({keys[name]: fields[keys[name]] for name in side} for side in sides)
    return Runs(ins, outs, paths[0].stem, groups)


def _paths(path: Path | str | Sequence[Path | str]) -> list[Path]:
    """Return the files that a path, a pattern or a list names."""
    if isinstance(path, str | Path) and glob.has_magic(str(path)) and not Path(path).exists():
        paths = [Path(one) for one in sorted(glob.glob(str(path)))]  # noqa: PTH207
        if not paths:
            raise DataError(f"{path}: no such file")
    else:
        paths = [Path(path)] if isinstance(path, str | Path) else [Path(one) for one in path]
    if not paths:
        raise DataError("path: an empty list of files")
    for one in paths:
        folder = one.suffix.lower() in ZARR
        if not (one.is_dir() if folder else one.is_file()):
            raise DataError(f"{one}: {'is a folder' if one.is_dir() else 'no such file'}")
        if not folder and one.stat().st_size == 0:
            raise DataError(f"{one}: empty file")
    return paths


def _labels(paths: Sequence[Path], name: str) -> np.ndarray:
    """Return what an array of one file, or of several, holds: a label for each run."""
    labels = []
    for path in paths:
        suffix = path.suffix.lower()
        if suffix in (*NETCDF, *ZARR):
            with _dataset(path) as data:
                _require(name, {str(n): v.shape for n, v in data.variables.items()}, path)
                labels.append(np.atleast_1d(data[name].values))
            continue
        try:
            if suffix in NPZ:
                arrays: dict[str, Any] = {n: NpzArray(path, e) for n, e in npz_arrays(path).items()}
                _require(name, {n: one.shape for n, one in arrays.items()}, path)
                labels.append(np.atleast_1d(arrays[name][()]))
                continue
            with h5py.File(path, "r") as file:
                there = {n: one for n, one in data_sets(file) if not isinstance(one, str)}
                _require(name, {n: one.shape for n, one in there.items()}, path)
                require_stored(there[name])
                text = h5py.check_string_dtype(there[name].dtype)
                labels.append(np.atleast_1d((there[name].asstr() if text else there[name])[()]))
        except _UNREADABLE as error:
            raise _damaged(path, suffix, error) from None
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
    kinds = {path.suffix.lower() for path in paths}
    readers = [reader for known, reader in _READERS.items() if kinds <= set(known)]
    if not readers:
        raise _unknown(paths[0], kinds)
    if run is not None and readers[0] is not _labelled:
        raise DataError(
            f"{paths[0]}: run={run!r} names a dimension of NetCDF; here runs come first"
        )
    first = readers[0](paths[0], wanted, run, several)
    if len(paths) == 1:
        return first
    piles = {name: Pile(f"{paths[0]}, {name}") for name in wanted}
    for number, path in enumerate(paths):
        read = readers[0](path, wanted, run, True) if number else first
        for name, one in read.items():
            same = one.values.shape[1:] == first[name].values.shape[1:]
            if not same or not _same_points(one.points, first[name].points):
                raise DataError(f"{path}, {name}: other points than in {paths[0]}")
            piles[name].add(one.values)
    return {name: replace(first[name], values=piles[name].array()) for name in wanted}


def _unknown(path: Path, kinds: Iterable[str]) -> DataError:
    """Return the error for files that are not read, with a hint where there is one."""
    if len(set(kinds)) > 1:
        found = ", ".join(sorted(kinds))
        return DataError(f"{path}: several files must be of one kind; found {found}")
    suffix, known = path.suffix.lower(), ", ".join((*NPZ, *HDF5, *NETCDF, *ZARR, *MESHES))
    hint = {
        ".npy": "; one array has no name: use numpy.savez",
        ".mat": "; version 7.3 is HDF5 with all dimensions reversed: read it by h5py, transpose "
        "the arrays so that runs come first, and write .npz or .h5",
    }.get(suffix, "")
    return DataError(f"{path}: files of runs end in {known}; found {suffix or 'no suffix'!r}{hint}")


def _same_points(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    return one is other or np.array_equal(np.asarray(one), np.asarray(other))


def _damaged(path: Path, kind: str, error: BaseException) -> DataError:
    return DataError(f"{path}: not a readable {kind} file ({_reason(error)})")


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _require(name: str, shapes: Mapping[str, tuple[int, ...]], path: Path, why: str = "") -> None:
    """Refuse a name that is not there, listing those that are, with shapes, and the nearest."""
    if name in shapes:
        return
    listed = [f"{key} ({' x '.join(map(str, shape))})" for key, shape in shapes.items()]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    meant = f"; {name!r} is {why}, which is not read" if why else nearest(name, shapes, 0.5)
    there = ", ".join(listed[:SHOWN]) or "none"
    raise DataError(f"{path}: no array {name!r}; there are {there}{more}{meant}")


def _npz(
    path: Path, wanted: Sequence[str], run: str | None, alone: bool
) -> dict[str, LabelledField]:
    arrays: dict[str, NpzArray | str] = {}
    try:
        for name, entry in npz_arrays(path).items():
            try:
                arrays[name] = NpzArray(path, entry)
            except ValueError as error:
                if "Python objects" not in str(error):
                    raise
                arrays[name] = str(error)  # a pickle, which may run any program
    except _UNREADABLE as error:
        raise _damaged(path, "npz", error) from None
    return {name: _field(path, arrays, name, wanted, alone) for name in wanted}


def _hdf5(
    path: Path, wanted: Sequence[str], run: str | None, alone: bool
) -> dict[str, LabelledField]:
    try:
        require_ending_heaps(path)
        with h5py.File(path, "r") as file:
            attributes = [text_of(file.attrs.get(key)) for key in ("format", "kind")]
            if attributes == [FORMAT, "functions"]:
                return _of_pipeline(path, file, dict(data_sets(file)), wanted)
            arrays = {
                name: item if isinstance(item, str) or item.dtype.kind in "fiub"
                else f"an array of {item.dtype}"
                for name, item in data_sets(file)
            }  # fmt: skip
            full = {name: _full_name(name, arrays) for name in wanted}
            used = list(full.values())
            return {name: _field(path, arrays, full[name], used, alone) for name in wanted}
    except DataError:
        raise
    except _UNREADABLE as error:
        raise _damaged(path, "HDF5", error) from None


def _full_name(name: str, arrays: Mapping[str, object]) -> str:
    """Return the path of an array in groups that is named by its last part alone."""
    ends = sorted(path for path in arrays if path.endswith(f"/{name}"))
    ends = [path for path in ends if not isinstance(arrays[path], str)] or ends
    same = len({arrays[path] for path in ends}) == 1  # an array may have several names
    return ends[0] if same and name not in arrays else name


def _field(
    path: Path, arrays: Mapping[str, Any], name: str, wanted: Sequence[str], alone: bool
) -> LabelledField:
    """Return a field of an npz or HDF5 file with the points that its conventions give it.

    With `alone` the array is a single run.
    """
    shapes = {key: one.shape for key, one in arrays.items() if not isinstance(one, str)}
    _require(name, shapes, path, arrays.get(name, ""))
    where = f"{path}, {name}"
    values, units = _decoded(path, arrays, name)
    values = values[None] if alone else values
    values = (
        values.reshape(len(values), *_without_ones(values.shape[1:])) if values.ndim else values
    )
    there = arrays.keys() - set(wanted)
    group = name.rpartition("/")[0]
    plain = LabelledField(values, None, None, units)
    for home in dict.fromkeys((f"{name}_", f"{group}/" if group else "", "")):
        if f"{home}points" in there:
            try:
                return replace(plain, points=_coordinate(path, arrays, f"{home}points"))
            except DataError as error:  # it counts only if no other points are stated
                return replace(plain, points=error)
        kinds: dict[int, str] = {}
        for key in sorted(there):
            rest = key[len(home) :]
            if key.startswith(home) and "/" not in rest:
                kind = axis_number(rest, {})
                if kind is not None and (kind < TIME or values.ndim > len(kinds) + 1):
                    kinds.setdefault(kind, key)
        if not any(kind < TIME for kind in kinds):
            continue
        found = {}
        for kind, key in sorted(kinds.items()):
            try:
                found[kind] = _coordinate(path, arrays, key)
            except DataError as error:
                return replace(plain, points=error)
        return _with_axes(plain, found, where)
    return plain


TIME = 3
"""Number of the time axis."""


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without its axes of length one; one axis is kept."""
    return tuple(n for n in shape if n > 1) or shape[:1]


def _decoded(path: Path, arrays: Mapping[str, Any], name: str) -> tuple[np.ndarray, str]:
    """Return an array and its units; packed values are decoded (CF, sections 2.5 and 8.1)."""
    item = arrays[name]
    stored = getattr(item, "attrs", {})
    packing = {key: np.asarray(stored[key]) for key in PACKING if key in stored}
    try:
        require_stored(item)
        units = text_of(stored["units"]) if "units" in stored else ""
        raw = stored_values(item, f"{path}, {name}")
    except _UNREADABLE as error:
        raise DataError(f"{path}: array {name!r} is damaged ({_reason(error)})") from None
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


PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value", *VALID)
"""Attributes of packed values."""


def _coordinate(path: Path, arrays: Mapping[str, Any], key: str) -> np.ndarray:
    if isinstance(arrays[key], str):
        raise no_coordinate(f"{path}, {key}", arrays[key])
    values, _ = _decoded(path, arrays, key)
    if values.dtype.kind not in "fiub":
        raise DataError(f"{path}, {key}: coordinates must be numbers, found {values.dtype}")
    require_exact(values, f"{path}, {key}", DataError)
    return values.astype(np.float64)


def _with_axes(
    field: LabelledField, coordinates: Mapping[int, np.ndarray], where: str
) -> LabelledField:
    """Return a field with coordinates x, y, z, time: its axes, or one entry for each value."""
    from xarray import DataArray

    values, shape = field.values, field.values.shape[1:]
    names = [("x", "y", "z", "time")[kind] for kind in coordinates]
    arrays = [one.squeeze() if one.ndim > 1 else one for one in coordinates.values()]
    lengths = [len(one) if one.ndim == 1 else -1 for one in arrays]
    dims = ["run", *(f"dim_{k}" for k in range(len(shape)))]
    matches = [order for order in permutations(range(len(shape)))
               if [shape[k] for k in order] == lengths]  # fmt: skip
    if len(lengths) == len(shape) and matches:
        order = matches[0]
        for k, place in enumerate(order):
            dims[1 + place] = names[k]
        labelled = DataArray(values, dims=dims, coords=dict(zip(names, arrays, strict=True)))
    elif all(one.shape == shape for one in arrays):
        own = {name: (dims[1:], one) for name, one in zip(names, arrays, strict=True)}
        labelled = DataArray(values, dims=dims, coords=own)
    elif wrong := [one.shape for one in arrays if one.ndim != 1]:
        raise DataError(
            f"{where}: coordinates must be the axes of a grid, or one for each of {shape} values "
            f"of a run; found an array of {wrong[0]}"
        )
    else:
        return replace(field, points=tuple(arrays))  # `FieldRuns.of` says what does not fit
    return replace(read_labelled(labelled, "run", where), units=field.units)


def _of_pipeline(
    path: Path, file: h5py.File, arrays: Mapping[str, Any], wanted: Sequence[str]
) -> dict[str, LabelledField]:
    """Return fields of a file of the study's pipeline (docs/data-format.md) by their symbols."""
    with readable(path, "header cannot be read"):
        fields = OperatorFields.from_dict(json.loads(text_of(file.attrs["meta"])).get("fields"))
    there: dict[str, tuple[Any, Domain]] = {}
    for split in SPLITS:
        prefix = "" if split == "training" else f"{split}/"
        output = fields.output.grid if prefix else fields.training_grid()[0]
        sides = ((fields.input, "kappa", fields.input.grid), (fields.output, "u", output))
        for side, name, domain in sides:
            item = arrays.get(f"{split}/{name}")
            if isinstance(item, h5py.Dataset):
                there[prefix + side.symbol] = item, domain
    found: dict[str, LabelledField] = {}
    for name in wanted:
        _require(name, {key: item.shape for key, (item, _) in there.items()}, path)
        item, domain = there[name]
        require_stored(item)
        found[name] = LabelledField(stored_values(item, f"{path}, {name}"), domain, None, "")
    return found


def _labelled(
    path: Path, wanted: Sequence[str], run: str | None, alone: bool
) -> dict[str, LabelledField]:
    """Return the fields of a NetCDF or Zarr file; with `alone` it may be a single run."""
    with _dataset(path) as data:
        for name in wanted:
            _require(name, {str(n): v.shape for n, v in data.variables.items()}, path)
        try:
            for name in wanted:
                _require_whole(data[name], f"{path}, {name}")
            arrays = [data[name] for name in wanted]
            if alone:
                shared = [d for d in RUN_NAMES if all(d in one.dims for one in arrays)]
                run = run or (shared[0] if shared else "run")
                arrays = [one if run in one.dims else one.expand_dims(run) for one in arrays]
            run = run_dimension(arrays, run, str(path))
            return {
                name: read_labelled(one, run, f"{path}, {name}", data)
                for name, one in zip(wanted, arrays, strict=True)
            }
        except DataError:
            raise
        except _UNREADABLE as error:
            raise _damaged(path, "NetCDF", error) from None


@contextmanager
def _dataset(path: Path) -> Iterator[Any]:
    """Open a NetCDF or Zarr file by xarray; values are decoded when they are read."""
    import xarray

    if path.suffix.lower() in ZARR:
        require_own_zarr(path)
        library("zarr")
        kind, engine = "Zarr", "zarr"
    else:
        with path.open("rb") as file:
            classic = file.read(3) == b"CDF"
        kind, engine = "NetCDF", "scipy" if classic else "h5netcdf"
        if not classic:
            _require_own_netcdf(path)
    try:
        try:
            data = xarray.open_dataset(path, engine=engine, decode_timedelta=False)
        except (ValueError, OverflowError, ImportError):  # times of a calendar of its own
            data = xarray.open_dataset(
                path, engine=engine, decode_times=False, decode_timedelta=False
            )
    except _UNREADABLE as error:
        raise _damaged(path, kind, error) from None
    with data:
        yield data


def _require_own_netcdf(path: Path) -> None:
    """Refuse a NetCDF file any part of which is elsewhere or was never written."""
    try:
        require_ending_heaps(path)
        with h5py.File(path, "r") as file:
            for name, item in data_sets(file):
                if isinstance(item, str):
                    raise DataError(f"{path}: {name!r} is {item}, which is not read")
                require_stored(item)
    except DataError:
        raise
    except _UNREADABLE as error:
        raise _damaged(path, "NetCDF", error) from None


def _require_whole(array: Any, where: str) -> None:
    """Refuse 64-bit integers that xarray would round, as it does where some are missing."""
    known = array.encoding
    stored = np.dtype(known.get("dtype"))
    if array.dtype.kind == "f" and stored.kind in "iu" and stored.itemsize == 8:
        raw = (array.values - known.get("add_offset", 0)) / known.get("scale_factor", 1)
        if (np.abs(raw) > MAX_WHOLE).any():
            raise DataError(f"{where}: integers beyond 2^53 would be rounded")


def _mesh(
    path: Path, wanted: Sequence[str], run: str | None, alone: bool
) -> dict[str, LabelledField]:
    """Return fields of a mesh, which is one run."""
    found = read_mesh(path)
    for name in wanted:
        _require(name, {n: one.values.shape[1:] for n, one in found.items()}, path)
    return {name: found[name] for name in wanted}


_READERS = {NPZ: _npz, HDF5: _hdf5, (*NETCDF, *ZARR): _labelled, MESHES: _mesh}
"""Readers of one file, by suffix: of a path, names, the dimension of runs, and whether the file is
one of several, which may hold a single run."""
