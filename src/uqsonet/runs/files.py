"""From files to runs: npz, HDF5, NetCDF (`open_runs`).

>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product, takewhile
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import h5py
import numpy as np

from uqsonet.errors import DataError, MissingLibraryError, library, nearest
from uqsonet.fields.grid import Domain
from uqsonet.fields.numbers import MAX_WHOLE, require_exact
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import FORMAT, LARGE, readable
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.functions import SPLITS
from uqsonet.runs.hdf5 import data_sets, text_of
from uqsonet.runs.runs import Runs
from uqsonet.sensors.sensors import AXES

Found = tuple[np.ndarray, object, str]
"""Values of a field, runs first, their points as `FieldRuns.of` takes them, and units.

In place of points there may be the error that says why those of the file cannot be used.
"""

NPZ, HDF5, NETCDF = (".npz",), (".h5", ".hdf5", ".hdf"), (".nc", ".nc4", ".netcdf")
"""Suffixes of files that can be read."""

RUN_NAMES = (
    "run", "runs", "sample", "samples", "realization", "realisation", "member", "ensemble", "case",
    "simulation", "sim", "number", "batch", "n", "N",
)  # fmt: skip
"""Usual names of the dimension that counts runs in NetCDF files."""

AXIS_NAMES = (
    ("x", "lon", "longitude"),
    ("y", "lat", "latitude"),
    ("z", "height", "depth", "level"),
)
"""Usual names of coordinates in NetCDF files, for x, y and z."""

MAX_PACKED = 2000
"""Largest accepted compression ratio (deflate reaches 1,032)."""

SHOWN = 30
"""Most names that a message lists."""

_UNREADABLE = (
    OSError, ValueError, KeyError, RuntimeError, TypeError, EOFError, OverflowError, MemoryError,
    SyntaxError, TokenError, zipfile.BadZipFile, zlib.error, NotImplementedError,
)  # fmt: skip
"""Errors that libraries raise for a damaged file."""


def open_runs(
    path: Path | str,
    input: str | Sequence[str],
    output: str | Sequence[str],
    points: object = None,
    transform: str | Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    missing: Literal["error", "drop", "fill"] = "error",
    periodic: bool = False,
    run: str | None = None,
) -> Runs:
    """Return the runs that a file holds: one array for each field, a run in each row.

    Parameters
    ----------
    path : path
        ``.npz``, ``.h5`` / ``.hdf5`` / ``.hdf``, or NetCDF (``.nc`` / ``.nc4`` / ``.netcdf``, which
        needs the extra ``runs``).
    input, output : str or sequence of str
        Names of the fields: one, several in a list, or ``"k,f"``.
    points : optional
        Where the values stand, instead of what the file says (`FieldRuns.of`): for all fields, or a
        mapping by field.
    transform : {"identity", "log"}, or mapping by field, optional
        One word is meant for the inputs. By default `uqsonet.fit` chooses.
    units : mapping by field, optional
    missing : {"error", "drop", "fill"}
        What to do about NaN (`FieldRuns.of`).
    periodic : bool
        The fields repeat beyond their grids.
    run : str, optional
        NetCDF: the dimension that counts runs.

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

    NetCDF: the dimension of runs is `run`, else the one called run, sample, realization, member,
    case or alike, else the one that all fields share and that has no coordinate. The coordinate
    variables of the other dimensions are the axes; x, y and z (or lon, lat, height) are put into
    this order. One remaining dimension with auxiliary coordinates ``x(point)``, ``y(point)`` is a
    point cloud. ``units`` are taken, and ``_FillValue`` is missing.
    """
    path = Path(path)
    sides = _listed(input, "input"), _listed(output, "output")
    wanted = [name for side in sides for name in side]
    if not path.is_file():
        raise DataError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: empty file")
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
    for name, (values, found, unit) in _read(path, wanted, run).items():
        key = keys[name]
        where = place.get(key, found if points is None or place else points)
        if isinstance(where, DataError):
            raise where
        fields[key] = FieldRuns.of(
            values, where, given["transform"].get(key),
            given["units"].get(key, unit), periodic, missing, f"{path}, {name}",
        )  # fmt: skip
    ins, outs = ({keys[name]: fields[keys[name]] for name in side} for side in sides)
    return Runs(ins, outs, path.stem)


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


def _read(path: Path, wanted: Sequence[str], run: str | None) -> dict[str, Found]:
    suffix = path.suffix.lower()
    if run is not None and suffix not in NETCDF:
        raise DataError(f"{path}: run={run!r} names a dimension of NetCDF; here runs come first")
    if suffix in NPZ:
        arrays = _npz(path)
        return {name: _field(path, arrays, name, wanted) for name in wanted}
    if suffix in HDF5:
        return _hdf5(path, wanted)
    if suffix in NETCDF:
        return _NetCDF(path, wanted, run).fields()
    known = ", ".join((*NPZ, *HDF5, *NETCDF))
    hint = "; one array has no name: use numpy.savez" if suffix == ".npy" else ""
    raise DataError(f"{path}: files of runs end in {known}; found {suffix or 'no suffix'!r}{hint}")


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


def _npz(path: Path) -> dict[str, np.ndarray | str]:
    """Return the arrays of a file, with what is said of those that are not read."""
    found: dict[str, np.ndarray | str] = {}
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                raise ValueError("numpy.savez writes them")
        with zipfile.ZipFile(path) as archive:
            for name in (n for n in archive.namelist() if n.endswith(".npy")):
                with archive.open(name) as file:
                    array: np.ndarray | str = "an array of Python objects"
                    try:
                        array = np.lib.format.read_array(file, allow_pickle=False)
                    except ValueError as error:
                        # An array of Python objects is a pickle, which may run any program.
                        if "allow_pickle" not in str(error):
                            raise
                found[name.removesuffix(".npy")] = array
    except _UNREADABLE as error:
        raise _damaged(path, "npz", error) from None
    return found


def _hdf5(path: Path, wanted: Sequence[str]) -> dict[str, Found]:
    try:
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
            return {name: _field(path, arrays, full[name], used) for name in wanted}
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


def _field(path: Path, arrays: Mapping[str, Any], name: str, wanted: Sequence[str]) -> Found:
    """Return a field of an npz or HDF5 file with the points that its conventions give it."""
    shapes = {key: one.shape for key, one in arrays.items() if not isinstance(one, str)}
    _require(name, shapes, path, arrays.get(name, ""))

    def read(key: str) -> np.ndarray:
        try:
            _require_stored(arrays[key])
            return np.asarray(arrays[key][()])
        except _UNREADABLE as error:
            raise DataError(f"{path}: array {key!r} is damaged ({_reason(error)})") from None

    def coordinate(key: str) -> np.ndarray:
        if isinstance(arrays[key], str):
            raise _no_coordinate(f"{path}, {key}", arrays[key])
        return _numeric(read(key), f"{path}, {key}")

    values, points, there = read(name), None, arrays.keys() - set(wanted)
    attributes = getattr(arrays[name], "attrs", {})
    units = text_of(attributes["units"]) if "units" in attributes else ""
    group = name.rpartition("/")[0]
    try:
        for home in dict.fromkeys((f"{name}_", f"{group}/" if group else "", "")):
            if f"{home}points" in there:
                return values, coordinate(f"{home}points"), units
            names = takewhile(there.__contains__, (f"{home}{axis}" for axis in AXES))
            if axes := [coordinate(axis) for axis in names]:
                values, points = placed(values, axes, f"{path}, {name}")
                break
    except DataError as error:
        return values, error, units
    return values, points, units


def _require_stored(array: object) -> None:
    """Refuse a large HDF5 array of which next to nothing was ever written."""
    if isinstance(array, h5py.Dataset) and array.nbytes > LARGE:
        if array.nbytes > MAX_PACKED * array.id.get_storage_size():
            raise ValueError(f"says it has {array.nbytes} bytes, which were never written")


def placed(values: np.ndarray, axes: Sequence[np.ndarray], where: str) -> tuple[np.ndarray, object]:
    """Return runs with their points as `FieldRuns.of` takes them.

    Parameters
    ----------
    values : ndarray, shape (N, ...)
    axes : sequence of ndarray
        For each coordinate the axis of a grid, or one entry for each value of a run; those of
        ``numpy.meshgrid`` with either indexing become a grid.
    where : str
        For messages.

    Raises
    ------
    DataError
    """
    shape = values.shape[1:]
    if len(axes) > 1 and all(axis.shape == shape for axis in axes):
        if len(shape) == len(axes):
            for indexing in ("ij", "xy"):
                swapped = indexing == "xy"
                turned = [axis.swapaxes(0, 1) if swapped else axis for axis in axes]
                ends = [np.moveaxis(axis, k, 0).reshape(axis.shape[k], -1)[:, 0]
                        for k, axis in enumerate(turned)]  # fmt: skip
                mesh = np.meshgrid(*ends, indexing="ij")
                if all(np.array_equal(a, b) for a, b in zip(mesh, turned, strict=True)):
                    return values.swapaxes(1, 2) if swapped else values, tuple(ends)
        points = np.stack([axis.reshape(-1) for axis in axes], -1)
        return values.reshape(len(values), -1), points
    if wrong := [axis.shape for axis in axes if axis.ndim != 1]:
        raise DataError(
            f"{where}: coordinates must be the axes of a grid, or one for each of {shape} values "
            f"of a run; found an array of {wrong[0]}"
        )
    return values, tuple(axes)


def _of_pipeline(
    path: Path, file: h5py.File, arrays: Mapping[str, Any], wanted: Sequence[str]
) -> dict[str, Found]:
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
    found: dict[str, Found] = {}
    for name in wanted:
        _require(name, {key: item.shape for key, (item, _) in there.items()}, path)
        item, domain = there[name]
        _require_stored(item)
        found[name] = np.asarray(item[()]), domain, ""
    return found


class _NetCDF:
    """A NetCDF file through xarray."""

    def __init__(self, path: Path, wanted: Sequence[str], run: str | None) -> None:
        xarray = library("xarray")
        with path.open("rb") as file:
            classic = file.read(3) == b"CDF"
        engine = "scipy" if classic else "h5netcdf"
        try:
            library(engine)
        except MissingLibraryError as error:
            what = "a NetCDF file of the classic format" if classic else "NetCDF"
            raise MissingLibraryError(f"{path}: {what}: {error}") from None
        try:
            if not classic:
                with h5py.File(path, "r") as file:
                    for name, item in data_sets(file):
                        if isinstance(item, str):
                            raise DataError(f"{path}: {name!r} is {item}, which is not read")
                        _require_stored(item)
            with xarray.open_dataset(
                path, engine=engine, decode_times=False, decode_timedelta=False
            ) as data:
                data.load()
        except DataError:
            raise
        except _UNREADABLE as error:
            raise _damaged(path, "NetCDF", error) from None
        self._path, self._data, self._wanted = path, data, wanted
        shapes = {str(name): array.shape for name, array in data.variables.items()}
        for name in wanted:
            _require(name, shapes, path)
        self._run = self._run_dimension(wanted, run)

    def fields(self) -> dict[str, Found]:
        """Return the fields by name."""
        return {name: self._field(name) for name in self._wanted}

    def _run_dimension(self, wanted: Sequence[str], run: str | None) -> str:
        data = self._data
        shared = [d for d in data[wanted[0]].dims if all(d in data[n].dims for n in wanted)]
        listed = "; ".join(f"{n} ({', '.join(map(str, data[n].dims))})" for n in wanted)
        if run is not None:
            if run not in shared:
                raise DataError(f"{self._path}: not every field has a dimension {run!r}: {listed}")
            return run
        if called := [d for d in RUN_NAMES if d in shared]:
            return called[0]
        bare = [str(d) for d in shared if d not in data.coords]
        if len(bare) == 1:
            return bare[0]
        if bare and all(data[n].dims[0] == bare[0] for n in wanted):
            return bare[0]
        raise DataError(
            f"{self._path}: which dimension counts the runs? Say it with run=... (--run); there "
            f"are {listed}"
        )

    def _field(self, name: str) -> Found:
        data = self._data
        self._require_exact(name)
        array = data[name].transpose(self._run, ...)
        rest = [str(d) for d in array.dims[1:]]
        order = sorted(rest, key=lambda d: (_axis_number(d), rest.index(d)))
        unit = str(array.attrs.get("units", ""))
        if all(d in data.coords for d in rest):
            array = array.transpose(self._run, *order)
            axes = [self._coordinate(d, [d]) for d in order]
            return array.values, tuple(axes), unit
        beside = [self._beside(names, rest) for names in AXIS_NAMES]
        if beside[0] is not None:
            axes = [axis for axis in beside if axis is not None]
            return *placed(array.values, axes, f"{self._path}, {name}"), unit
        if lacking := [d for d in rest if d in data.coords]:
            without = next(d for d in rest if d not in data.coords)
            raise DataError(
                f"{self._path}: {name} has coordinates along {lacking[0]}, and none along {without}"
            )
        return array.transpose(self._run, *order).values, self._unused(name, rest), unit

    def _unused(self, name: str, rest: Sequence[str]) -> DataError | None:
        """Return what is to say of a coordinate that stands there and is not used for a field.

        It is one by its name, or is declared as one, and shares a dimension with the field, or has
        one that no array has.
        """
        data, known = self._data, {one for names in AXIS_NAMES for one in names}
        called = {given: str(given).lower() in known for given in data.variables}
        used = {d for given, v in data.variables.items() if not called[given] for d in v.dims}
        for given, v in data.variables.items():
            meant = called[given] or (given in data.coords and v.dtype.kind == "f")
            near = set(v.dims) & set(rest) or (called[given] and v.dims and not used & set(v.dims))
            if meant and near and given not in self._wanted:
                along = (", ".join(map(str, dims)) for dims in (v.dims, rest))
                found = "a coordinate along ({}), {} along ({})".format(next(along), name, *along)
                return _no_coordinate(f"{self._path}, {given}", found)
        return None

    def _require_exact(self, name: str) -> None:
        """Refuse 64-bit integers that xarray has rounded, as it does where some are missing."""
        array = self._data[name]
        known = array.encoding
        stored = np.dtype(known.get("dtype"))
        if array.dtype.kind == "f" and stored.kind in "iu" and stored.itemsize == 8:
            raw = (array.values - known.get("add_offset", 0)) / known.get("scale_factor", 1)
            if (np.abs(raw) > MAX_WHOLE).any():
                raise DataError(f"{self._path}, {name}: integers beyond 2^53 would be rounded")

    def _beside(self, names: Sequence[str], dims: Sequence[str]) -> np.ndarray | None:
        """Return an auxiliary coordinate of these names along just these dimensions."""
        for name, given in product(names, self._data.variables):
            variable = self._data.variables[given]
            if str(given).lower() == name and sorted(map(str, variable.dims)) == sorted(dims):
                return self._coordinate(given, dims)
        return None

    def _coordinate(self, name: Any, dims: Sequence[str]) -> np.ndarray:
        self._require_exact(name)
        return _numeric(self._data[name].transpose(*dims).values, f"{self._path}, {name}")


def _axis_number(name: str) -> int:
    found = [k for k, names in enumerate(AXIS_NAMES) if name.lower() in names]
    return found[0] if found else len(AXIS_NAMES)


def _no_coordinate(what: str, found: str) -> DataError:
    return DataError(
        f"{what}: coordinates must be numbers in the file itself that fit the field, or be given "
        f"as points=...; found {found}"
    )


def _numeric(values: np.ndarray, what: str) -> np.ndarray:
    if values.dtype.kind not in "fiub":
        raise DataError(f"{what}: coordinates must be numbers, found {values.dtype}")
    require_exact(values, what, DataError)
    return values.astype(np.float64)
