"""Labelled arrays: runs, axes and points of a field from the dimensions of an xarray.DataArray.

Coordinates are recognised by the attributes of the CF conventions (``axis``, ``standard_name``,
``units``; https://cfconventions.org, chapter 4), then by usual names.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from uqsonet.errors import DataError, printable
from uqsonet.fields.layout import TIME_KEY, Coordinate, LabelledField, Layout
from uqsonet.runs.stored import changed

LOG = logging.getLogger("uqsonet")

TIME = 3  # number of the time axis

RUN_NAMES = (
    "run", "runs", "sample", "samples", "realization", "realisation", "member", "ensemble", "case",
    "simulation", "sim", "number", "batch", "trajectory", "n", "N",
)  # fmt: skip
"""Usual names of the dimension that counts runs."""

COORDINATE_NAMES = (
    r"x|lon|long|longitude|easting|xlong|nav_lon|lon_\w+|\w+_lon|x[-_]?(coordinate|c|coord)",
    r"y|lat|latitude|northing|xlat|nav_lat|lat_\w+|\w+_lat|y[-_]?(coordinate|c|coord)",
    r"z|height|depth|level|lev|altitude|z[-_]?(coordinate|c|coord)",
    r"t|time|valid_time|date|t[-_]?(coordinate|c|coord)",
)
"""Usual names of coordinates x, y, z and time, in lower case."""

STANDARD = (
    "longitude|projection_x_coordinate|grid_longitude",
    "latitude|projection_y_coordinate|grid_latitude",
    "height|depth|altitude|air_pressure",
    "time",
)
"""CF standard names of coordinates x, y, z and time."""

DEGREES = (r"degrees?_?(east|e)", r"degrees?_?(north|n)")  # CF units of coordinates x and y

VALID = ("valid_min", "valid_max", "valid_range")
"""CF attributes that say between which values, as stored, a file's values are (section 2.5.1)."""

PACKED = {"scale_factor": 1.0, "add_offset": 0.0}
"""CF attributes of packed values, and what they are where they are not there."""


def run_dimension(arrays: Sequence[Any], run: str | None, where: str) -> str:
    """Return the dimension that counts the runs of labelled arrays.

    It is `run`, else the one that is called run, sample, member or alike, else the one that all
    share and that has no coordinate. It is a `DataError` if none is, or several are.
    """
    shared = [str(d) for d in arrays[0].dims if all(d in one.dims for one in arrays)]
    listed = "; ".join(f"{one.name} ({', '.join(map(str, one.dims))})" for one in arrays)
    if run is not None:
        if run not in shared:
            raise DataError(f"{where}: not every field has a dimension {run!r}: {listed}")
        return run
    if called := [d for d in RUN_NAMES if d in shared]:
        return called[0]
    bare = [d for d in shared if all(d not in one.coords for one in arrays)]
    if len(bare) == 1 or (bare and all(one.dims[0] == bare[0] for one in arrays)):
        return bare[0]
    raise DataError(
        f"{where}: which dimension counts the runs? Say it with run=... (--run); there are {listed}"
    )


def axis_number(name: str, attributes: Any) -> int | None:
    """Return 0, 1, 2 or 3 for a coordinate that is x, y, z or time; None for another."""
    if (axis := str(attributes.get("axis", "")).upper()) in ("X", "Y", "Z", "T") and axis:
        return "XYZT".index(axis)
    stated = attributes.get("standard_name"), attributes.get("units"), name
    for text, patterns in zip(stated, (STANDARD, DEGREES, COORDINATE_NAMES), strict=True):
        for number, pattern in enumerate(patterns):
            if re.fullmatch(pattern, str(text).lower()):
                return number
    return None


def read_fields(
    data: Any, names: Mapping[str, str], run: str | None, alone: bool, path: object,
    wanted: Sequence[str],
) -> dict[str, LabelledField]:  # fmt: skip
    """Return the wanted fields of an xarray.Dataset; with `alone` it may hold a single run.

    `names` say which variable of the dataset each field is, also those that are not wanted now.
    """
    found, kept = {}, set(names.values())
    if "unread" in data.attrs:
        if run is not None:
            how = "names a dimension of NetCDF; here runs come first"
            raise DataError(f"{path}: run={run!r} {how}")
        sizes = [(*data[name].shape, 1)[0] for name in kept]
        others = [one for one in (*data.variables, *data.attrs["unread"]) if one not in kept]
        return {
            name: _without_names(data, own, None if alone else max(sizes), others, path)
            for name, own in names.items()
            if name in wanted
        }
    arrays, meshes = [data[name] for name in names.values()], data.attrs.get("mesh")
    if alone or meshes:
        shared = (d for d in RUN_NAMES if all(d in one.dims for one in arrays))
        run = run or next(shared, "run")
        arrays = [one if run in one.dims else one.expand_dims(run) for one in arrays]
    run = run_dimension(arrays, run, str(path))
    called_axes = [name for name in kept if axis_number(name, data[name].attrs) is not None]
    beside = None if meshes else data.drop_vars(called_axes)  # T is no time of other fields
    for name, array in zip(names, arrays, strict=True):
        if name not in wanted:
            continue
        found[name] = one = read_labelled(array, run, f"{path}, {name}", beside)
        if meshes and one.layout:
            layout = replace(one.layout, mesh=meshes[array.dims[-1]])
            found[name] = one._replace(layout=layout)
    return found


def _without_names(
    data: Any, name: str, runs: int | None, others: Sequence[str], path: object
) -> LabelledField:
    """Return a field whose dimensions have no names: runs come first, or it is a single one.

    Names of other arrays say which its coordinates are. What is wrong with them counts only if
    nobody states points.
    """
    where, array = f"{path}, {name}", data[name]
    if runs is None:
        array = array.expand_dims("run")
    elif len(array.shape) > 1 and array.shape[:2] == (1, runs):
        LOG.info("%s: the first axis, of length one, is left out", where)
        array = array[0]
    array = array.squeeze([d for d in array.dims[1:] if array.sizes[d] == 1])
    dims = ["run", *(f"dim_{k}" for k in range(array.ndim - 1))]
    array, points = array.rename(dict(zip(array.dims, dims, strict=False))), None
    if array.shape[1:]:  # else coordinates are those of other fields
        try:
            points = _beside(data, name, array.ndim - 1, others, path)
            if isinstance(points, dict):
                own = [one.squeeze() if one.ndim > 1 else one for one in points.values()]
                labelled = _with_axes(array, dict(zip(points, own, strict=True)), where)
                if labelled is not None:
                    return read_labelled(labelled, "run", where)
                points = tuple(one.values for one in own)  # of a flat grid, if any
        except DataError as error:
            points = error
    units = printable(array.attrs.get("units", ""))
    return LabelledField(_read(array, where), points, None, units)


def _beside(data: Any, name: str, axes: int, others: Sequence[str], path: object) -> Any:
    """Return what other arrays are to a field by their names.

    Points (n, d), coordinates x, y, z and time by number, or None. They stand under the field's
    name, in its group, at the top, or in the one other group that has some.
    """

    def standing_at(home: str) -> Any:
        if f"{home}points" in others:
            return _stated(data, f"{home}points", path).values.astype(np.float64)
        here = sorted((key for key in others if key.startswith(home)), reverse=True)
        called = ((axis_number(key.removeprefix(home), {}), key) for key in here)
        kinds = {kind: key for kind, key in called if kind is not None}  # the first by name
        if len(kinds) > axes:
            kinds.pop(TIME, None)  # of other fields
        if any(kind < TIME for kind in kinds):
            return {kind: _stated(data, key, path) for kind, key in sorted(kinds.items())}
        return None

    for home in (f"{name}_", name[: name.rfind("/") + 1], ""):
        if (found := standing_at(home)) is not None:
            return found
    lines = (key.rpartition("/") for key in others if key in data and data[key].ndim == 1)
    homes = {f"{at}/" for at, _, last in lines if at and axis_number(last, {}) in range(TIME)}
    if len(homes) > 1:
        raise DataError(
            f"{path}: coordinates stand in several groups, {', '.join(sorted(homes))}; say by "
            "points= which are meant"
        )
    return standing_at(homes.pop()) if homes else None


def _stated(data: Any, key: str, path: object) -> Any:
    """Return a variable whose values are places."""
    unread = data.attrs["unread"].get(key)
    if unread or data[key].dtype.kind not in "fiubM":
        raise no_coordinate(f"{path}, {key}", unread or str(data[key].dtype))
    return data.variables[key]


def _with_axes(array: Any, coordinates: Mapping[int, Any], where: str) -> Any:
    """Return an array with coordinates x, y, z, time: its axes, or one entry for each value.

    None for lines of numbers that fit neither.
    """
    own = {("x", "y", "z", "time")[kind]: one for kind, one in coordinates.items()}
    lengths, dims = [one.shape for one in own.values()], array.dims[1:]
    along = {name: dims for name in own}
    for order in permutations(dims, len(own)) if len(own) == len(dims) else ():
        if [(array.sizes[d],) for d in order] == lengths:
            array, along = array.rename(dict(zip(order, own, strict=True))), {n: [n] for n in own}
            break
    else:
        if all(len(one) == 1 for one in lengths) and set(lengths) != {array.shape[1:]}:
            return None
        if wrong := [one for one in lengths if one != array.shape[1:]]:
            raise DataError(
                f"{where}: coordinates must be the axes of a grid, or one for each of "
                f"{array.shape[1:]} values of a run; found an array of {wrong[0]}"
            )
    return array.assign_coords(
        {n: (along[n], one.values, one.attrs, one.encoding) for n, one in own.items()}
    )


def read_labelled(array: Any, run: str, where: str, beside: Any = None) -> LabelledField:
    """Return the runs of an xarray.DataArray with their points and their layout.

    The dimension `run` counts the runs. Coordinates may be among the file's other variables, which
    are `beside` it in an xarray.Dataset; those that cannot be used are a `DataError`.
    """
    from xarray import Variable

    single = [d for d in array.dims if array.sizes[d] == 1 and d != run]
    if len(single) == array.ndim - 1:
        single = single[:-1]
    array = array.squeeze(single).transpose(run, ...)
    dims, shape = tuple(str(d) for d in array.dims[1:]), array.shape[1:]
    scalars = [_coordinate(c, array.coords[c], where) for c in array.coords if c in single]
    own, order = _coordinates(array, dims, beside, where), range(len(dims))
    names, points, fallen = tuple(one.name for one in own), None, {}
    if own:
        order, points = _standing(own, dims, shape)
    else:
        order = sorted(order, key=lambda k: _rank(dims[k], {}))
        names, points = tuple(dims[k] for k in order), _unused(array, dims, beside, where)
    if isinstance(points, tuple):
        turned = slice(None, None, -1)
        falls = [len(axis) > 1 and bool((np.diff(axis) < 0).all()) for axis in points]
        points = tuple(axis[turned] if f else axis for axis, f in zip(points, falls, strict=True))
        fallen = {dims[k]: turned for k, f in zip(order, falls, strict=True) if f}

    def in_domain_order(some: Any) -> Any:
        return some.transpose(..., *(dims[k] for k in order)).isel(fallen)

    entries = np.arange(math.prod(shape), dtype=np.int32)
    index = np.empty_like(entries)
    index[in_domain_order(Variable(dims, entries.reshape(shape))).values.ravel()] = entries
    values = _read(array, where, in_domain_order)
    if isinstance(points, np.ndarray):
        values = values.reshape(len(values), -1)
    layout = Layout(dims, names, index.reshape(shape), (*own, *scalars))
    return LabelledField(values, points, layout, printable(array.attrs.get("units", "")))


def _coordinates(array: Any, dims: tuple[str, ...], beside: Any, where: str) -> list[Coordinate]:
    """Return the coordinates of an array in the order x, y, z, time, others in between.

    They are those of its dimensions, else those along all of them, or along each in turn.
    """
    if all(d in array.coords for d in dims):
        found = [_coordinate(d, array.coords[d], where) for d in dims]
        return sorted(found, key=lambda one: _rank(one.name, one.attributes))
    whole: dict[int, Coordinate] = {}
    single: dict[int, Coordinate] = {}
    for name, variable in {**({} if beside is None else beside.variables), **array.coords}.items():
        kind = axis_number(str(name).rpartition("/")[2], variable.attrs)
        along = tuple(str(d) for d in variable.dims)
        if kind is None or name in (array.name, *array.dims):
            continue
        if sorted(along) == sorted(dims):
            whole.setdefault(kind, _coordinate(str(name), variable.transpose(*dims), where))
        elif len(along) == 1 and along[0] in dims:
            single.setdefault(kind, _coordinate(str(name), variable, where))
    each = sorted(one.dims[0] for one in single.values()) == sorted(dims)
    if not (found := whole or (single if each else {})):
        if lacking := [d for d in dims if d in array.coords]:
            bare = next(d for d in dims if d not in array.coords)
            raise DataError(f"{where}: has coordinates along {lacking[0]}, and none along {bare}")
    return [found[kind] for kind in sorted(found)]


def _standing(own: list[Coordinate], dims: tuple[str, ...], shape: tuple[int, ...]) -> Any:
    """Return the dimension that each coordinate runs along, and axes; or points (n, d)."""
    from xarray import Variable

    sizes, every = dict(zip(dims, shape, strict=True)), range(len(dims))
    numbers = [Variable(one.dims, one.numbers(one.values)).set_dims(sizes) for one in own]
    places = [one.transpose(*dims).values for one in numbers]
    along = [[k for k in every if np.diff(one, axis=k).any()] for one in places]
    if sorted(along) == [[k] for k in every]:
        order = [one[0] for one in along]
        axes = [np.moveaxis(one, k, 0).reshape(shape[k], -1)[:, 0]
                for k, one in zip(order, places, strict=True)]  # fmt: skip
        if len(axes) > 1 or len(set(np.sign(np.diff(axes[0])))) < 2:
            return order, tuple(axes)
    return every, np.stack([one.reshape(-1) for one in places], -1)


def _rank(name: str, attributes: Any) -> float:
    """Return a number by which coordinates come in the order x, y, z, others, time."""
    kind = axis_number(name, attributes)
    return 2.5 if kind is None else kind


def _coordinate(name: str, variable: Any, where: str) -> Coordinate:
    """Return a coordinate variable with its values in memory."""
    values = np.asarray(variable.values)
    if values.dtype.kind not in "fiubM":
        raise no_coordinate(f"{where}, {name}", str(values.dtype))
    if values.dtype.kind != "M":
        values = values.astype(np.float64)
    name = name.rpartition("/")[2]
    kept = {
        str(key): printable(text) if isinstance(text, str) else float(text)
        for key, text in variable.attrs.items()
        if isinstance(text, str | int | float | np.number)
    }
    if values.dtype.kind == "M":
        kept[TIME_KEY] = str(variable.encoding.get("units", ""))
    return Coordinate(name, tuple(str(d) for d in variable.dims), values, kept)


def no_coordinate(what: str, found: str) -> DataError:
    """Return the error for a coordinate that stands in a file and cannot be used."""
    return DataError(
        f"{what}: coordinates must be numbers in the file itself that fit the field, or be given "
        f"as points=...; found {found}"
    )


def _read(array: Any, where: str, arranged: Callable[[Any], Any] = lambda rows: rows) -> np.ndarray:
    """Return the values of a labelled array, arranged, NaN where they are out of their valid range.

    Large ones of a file go from there to a temporary file, some runs at a time.
    """
    if array.dtype.kind not in "biuf":  # texts may say that they have any length
        raise DataError(f"{where}: values must be real numbers, found {array.dtype}")
    if array.variable._in_memory:
        return valid_values(arranged(array))
    return changed(array, lambda rows: valid_values(arranged(rows.compute())), where)


def valid_values(array: Any) -> np.ndarray:
    """Return the values of an array; its range is that of what is stored, or if floats decoded."""
    values, stated = np.asarray(array.values), {**array.attrs, **array.encoding}
    ends = {key: np.asarray(stated[key]).ravel() for key in VALID if key in stated}
    if not ends:
        return values
    low, high = ends.get("valid_range", np.array([-np.inf, np.inf]))
    low, high = ends.get("valid_min", [low])[0], ends.get("valid_max", [high])[0]
    packed = np.dtype(stated.get("dtype", values.dtype)).kind in "iu"
    scale, offset = (float(np.ravel(stated.get(k, d))[0]) for k, d in PACKED.items())
    step = abs(scale) / 4 if packed else 0.0
    if not packed or all(end.dtype.kind in "iu" for end in ends.values()):
        low, high = sorted((low * scale + offset, high * scale + offset))
    slack = [1e-6 * abs(end) + step if np.isfinite(end) else 0.0 for end in (low, high)]
    invalid = (values < low - slack[0]) | (values > high + slack[1])
    return np.where(invalid, np.nan, values)


def _unused(array: Any, dims: tuple[str, ...], beside: Any, where: str) -> DataError | None:
    """Return the error for a file with coordinates none of which fits the field."""
    if beside is None:
        return None
    there = beside.variables
    kinds = {n: axis_number(str(n), one.attrs) for n, one in there.items()}
    used = {d for n, kind in kinds.items() if kind is None for d in there[n].dims}
    for name, kind in kinds.items():
        variable = there[name]
        meant = kind is not None or (name in beside.coords and variable.dtype.kind == "f")
        near = set(variable.dims) & set(dims)
        alone = kind is not None and variable.dims and not used & set(variable.dims)
        if meant and (near or alone) and name not in (array.name, *array.dims):
            along, own = (", ".join(map(str, one)) for one in (variable.dims, dims))
            found = f"a coordinate along ({along}), {array.name} along ({own})"
            return no_coordinate(f"{where}, {name}", found)
    return None
