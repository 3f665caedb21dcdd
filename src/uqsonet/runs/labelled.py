"""Labelled arrays: runs, axes and points of a field from the dimensions of an xarray.DataArray.

Coordinates are recognised by the attributes of the CF conventions (``axis``, ``standard_name``,
``units``; https://cfconventions.org, chapter 4), then by usual names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uqsonet.errors import DataError, printable
from uqsonet.fields.layout import TIME_KEY, Coordinate, LabelledField, Layout
from uqsonet.runs.stored import changed

RUN_NAMES = (
    "run", "runs", "sample", "samples", "realization", "realisation", "member", "ensemble", "case",
    "simulation", "sim", "number", "batch", "n", "N",
)  # fmt: skip
"""Usual names of the dimension that counts runs."""

COORDINATE_NAMES = (
    r"x|lon|long|longitude|easting|xlong|nav_lon|lon_\w+|\w+_lon|x[-_]?(coordinate|c|coord)",
    r"y|lat|latitude|northing|xlat|nav_lat|lat_\w+|\w+_lat|y[-_]?(coordinate|c|coord)",
    r"z|height|depth|level|lev|altitude|z[-_]?(coordinate|c|coord)",
    r"t|time|date|t[-_]?(coordinate|c|coord)",
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
    order, own, points = _standing(array, dims, beside, where)
    axes = points if isinstance(points, tuple) else ()
    falling = [len(axis) > 1 and bool((np.diff(axis) < 0).all()) for axis in axes]
    turned = slice(None, None, -1)
    fallen = {dims[k]: turned for k, falls in zip(order, falling, strict=False) if falls}
    names = tuple(one.name for one in own) or tuple(dims[k] for k in order)

    def in_domain_order(some: Any) -> Any:
        return some.transpose(..., *(dims[k] for k in order)).isel(fallen)

    entries = np.arange(math.prod(shape), dtype=np.int32)
    index = np.empty_like(entries)
    index[in_domain_order(Variable(dims, entries.reshape(shape))).values.ravel()] = entries
    array = in_domain_order(array)
    # Large values of a file go from there to a temporary file, some runs at a time.
    values = _valid(array) if array.variable._in_memory else changed(array, _valid, where)
    if axes:
        points = tuple(a[turned] if falls else a for a, falls in zip(axes, falling, strict=True))
    elif isinstance(points, np.ndarray):
        values = values.reshape(len(values), -1)
    layout = Layout(dims, names, index.reshape(shape), (*own, *scalars))
    return LabelledField(values, points, layout, printable(array.attrs.get("units", "")))


def _standing(
    array: Any, dims: tuple[str, ...], beside: Any, where: str
) -> tuple[tuple[int, ...], list[Coordinate], Any]:
    """Return the order of dimensions as axes, their coordinates, and `LabelledField.points`."""
    if dims and all(d in array.coords for d in dims):
        for d in dims:
            if array.coords[d].ndim != 1:
                raise no_coordinate(f"{where}, {d}", f"an array of {array.coords[d].shape}")
        return _along(dims, [_coordinate(d, array.coords[d], where) for d in dims])
    own = _auxiliary(array, dims, beside, where)
    if not own:
        if lacking := [d for d in dims if d in array.coords]:
            bare = next(d for d in dims if d not in array.coords)
            raise DataError(f"{where}: has coordinates along {lacking[0]}, and none along {bare}")
        order = _axis_order(dims, [axis_number(d, {}) for d in dims])
        return order, [], _unused(array, dims, beside, where)
    if len(dims) > 1 and all(one.values.ndim == 1 for one in own):
        return _along(dims, own)
    numbers = [one.numbers(one.values) for one in own]
    if meshed := _as_mesh(numbers):
        return meshed[0], own, meshed[1]
    return tuple(range(len(dims))), own, np.stack([one.reshape(-1) for one in numbers], -1)


def _along(
    dims: tuple[str, ...], own: list[Coordinate]
) -> tuple[tuple[int, ...], list[Coordinate], tuple[np.ndarray, ...]]:
    """Return order, coordinates and axes of a grid, which has a coordinate along each dimension."""
    along = {one.dims[0]: one for one in own}
    kinds = [axis_number(along[d].name, along[d].attributes) for d in dims]
    order = _axis_order(dims, kinds)
    own = [along[dims[k]] for k in order]
    return order, own, tuple(one.numbers(one.values) for one in own)


def _axis_order(dims: Sequence[str], kinds: Sequence[int | None]) -> tuple[int, ...]:
    """Return the dimensions in the order x, y, z, time, others in between as they stand."""
    rank = [2.5 if kind is None else kind for kind in kinds]
    return tuple(sorted(range(len(dims)), key=lambda k: (rank[k], k)))


def _coordinate(name: str, variable: Any, where: str) -> Coordinate:
    """Return a coordinate variable with its values in memory."""
    values = np.asarray(variable.values)
    if values.dtype.kind not in "fiubM":
        raise no_coordinate(f"{where}, {name}", str(values.dtype))
    if values.dtype.kind != "M":
        values = values.astype(np.float64)
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


def _valid(array: Any) -> np.ndarray:
    """Return the values of a labelled array, NaN where they are outside their valid range."""
    return without_invalid(np.asarray(array.values), {**array.attrs, **array.encoding})


def without_invalid(values: np.ndarray, stated: Mapping[str, Any]) -> np.ndarray:
    """Return decoded values with NaN where they are outside the range that their file states.

    `stated` are attributes of the variable, and the ``dtype`` of what is stored. The range is that
    of stored values, unless these are integers and it is not.
    """
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


def _auxiliary(array: Any, dims: tuple[str, ...], beside: Any, where: str) -> list[Coordinate]:
    """Return coordinates x, y[, z] along all of the dimensions, or along each in turn."""
    candidates = {**({} if beside is None else beside.variables), **array.coords}
    whole: dict[int, Coordinate] = {}
    single: dict[int, Coordinate] = {}
    for name, variable in candidates.items():
        kind = axis_number(str(name), variable.attrs)
        along = tuple(str(d) for d in variable.dims)
        if kind is None or name in (array.name, *array.dims):
            continue
        if sorted(along) == sorted(dims):
            whole.setdefault(kind, _coordinate(str(name), variable.transpose(*dims), where))
        elif len(along) == 1 and along[0] in dims:
            single.setdefault(kind, _coordinate(str(name), variable, where))
    if whole:
        return [whole[kind] for kind in sorted(whole)]
    covered = {one.dims[0] for one in single.values()}
    if len(single) == len(dims) and covered == set(dims):
        return [single[kind] for kind in sorted(single)]
    return []


def _as_mesh(
    coordinates: list[np.ndarray],
) -> tuple[tuple[int, ...], tuple[np.ndarray, ...]] | None:
    """Return order and axes of coordinates that are a mesh of axes (`numpy.meshgrid`)."""
    dim = coordinates[0].ndim
    if dim < 2 or len(coordinates) != dim:
        return None
    orders = [tuple(range(dim)), (1, 0, *range(2, dim))]
    for order in orders:
        turned = [one.transpose(order) for one in coordinates]
        ends = [np.moveaxis(one, k, 0).reshape(one.shape[k], -1)[:, 0]
                for k, one in enumerate(turned)]  # fmt: skip
        mesh = np.meshgrid(*ends, indexing="ij")
        if all(np.array_equal(a, b) for a, b in zip(mesh, turned, strict=True)):
            return order, tuple(ends)
    return None


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
