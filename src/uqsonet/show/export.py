"""Answers as datasets and files (CSV, npz, NetCDF, VTK)."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import DataError, library
from uqsonet.fields.cloud import MaskedGrid
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.layout import TIME_KEY, Coordinate
from uqsonet.files import atomic_path, write_text
from uqsonet.sensors.sensors import AXES

WRITTEN_FORMATS = (".csv", ".npz", ".nc", ".vtu")


def answer_arrays(
    posterior: Any, level: float = 0.9, points: object = None, samples: int = 0, **band: Any
) -> dict[str, np.ndarray]:
    """Return mean, std, lower and upper end of a band (M,) or (B, M), and samples if asked for.

    They are at points (M, d), by default the field's own; ``samples`` are (n, M) or (B, n, M).
    `band` is ``kind`` and ``whole`` of `FieldPosterior.band`.
    """
    lower, upper = posterior.band(level, points, **band)
    found = {"mean": posterior.mean(points), "std": posterior.std(points)}
    found |= {"lower": lower, "upper": upper}
    if samples:
        found["samples"] = posterior.sample(samples, points)
    return {name: np.asarray(value) for name, value in found.items()}


def as_dataset(
    posterior: Any, arrays: Mapping[str, np.ndarray], level: float, points: object = None
) -> Any:
    """Return `answer_arrays` of a level as an xarray.Dataset (`FieldPosterior.to_xarray`)."""
    xarray = library("xarray")
    field = posterior.field
    there = None if points is None else posterior._points(points)
    dims, coordinates, shaped = labelled(field, there)
    batch, labels = posterior.batch
    lead: tuple[str, ...] = () if posterior.single else (batch,)
    if lead:
        coordinates[batch] = labels
    variables, units = {}, {"units": field.units}
    for name, value in arrays.items():
        before = (*lead, "sample") if name == "samples" else lead
        variables[f"{field.name}_{name}"] = ((*before, *dims), shaped(value), units)
    attributes = {"level": level, "sensors": int(posterior.sensors.mask.sum(1).max())}
    return xarray.Dataset(variables, coordinates, attributes)


def labelled(
    field: Any, points: object = None
) -> tuple[tuple[str, ...], dict[str, Any], Callable[[np.ndarray], np.ndarray]]:
    """Return dimensions and coordinates of a field, and what gives values (..., M) their shape."""
    names, layout = field.axes, field.layout if points is None else None
    if layout is not None:
        known = {one.name: (one.dims, one.values, _written(one)) for one in layout.coordinates}
        return layout.dims, known, layout.in_file_order
    if points is None and isinstance(field.domain, Grid):
        axes = zip(names, field.domain.axes(), strict=True)
        dims, shape = names, tuple(field.domain.shape)
        coordinates: dict[str, Any] = {name: axis.numpy() for name, axis in axes}
    else:
        places = _places(field, points)
        dims, shape = ("point",), (len(places),)
        coordinates = {name: ("point", places[:, k]) for k, name in enumerate(names)}
    return dims, coordinates, lambda values: values.reshape(*values.shape[:-1], *shape)


def _written(one: Coordinate) -> dict[str, Any]:
    """Return the attributes of a coordinate that a file may have."""
    return {key: text for key, text in one.attributes.items() if key != TIME_KEY}


def _places(field: Field, points: object) -> np.ndarray:
    """Return points (M, d), by default those of the field."""
    return np.asarray(field.domain.points() if points is None else points)


def answer_lines(
    posterior: Any, arrays: Mapping[str, np.ndarray], points: object = None
) -> Iterator[list[str]]:
    """Yield the rows of a table ``[set,]x[,y[,z]],mean,std,lower,upper``, its header first.

    Over time it is ``time,x...``.
    """
    places, single = _places(posterior.field, points), posterior.single
    batch, labels = posterior.batch
    columns = {name: array for name, array in arrays.items() if name != "samples"}
    for k in range(arrays["samples"].shape[-2] if "samples" in arrays else 0):
        columns[f"sample_{k + 1}"] = arrays["samples"][..., k, :]
    names = [*posterior.field.axes, *columns]
    yield names if single else [batch, *names]
    for row, label in enumerate([""] if single else labels):
        here = [column if single else column[row] for column in columns.values()]
        for line in np.column_stack([places, *here]):
            yield [*([] if single else [str(label)]), *(f"{value:.9g}" for value in line)]


def placement_lines(placement: Any, fields: Sequence[Field]) -> Iterator[list[str]]:
    """Yield the rows of a table ``field,x[,y[,z]],before,after`` of chosen places, header first.

    Coordinates have the names of their file where all fields that are read share them.
    """
    names = []
    for k, plain in enumerate(AXES[: placement.places.shape[1]]):
        read = (one for one in fields if one.name in placement.fields and one.domain.dim > k)
        own = {one.axes[k] for one in read}
        names.append(own.pop() if len(own) == 1 else plain)
    yield ["field", *names, "before", "after"]
    for k, name in enumerate(placement.fields):
        numbers = (*placement.places[k], placement.before[k], placement.after[k])
        yield [name, *("" if np.isnan(value) else f"{value:.9g}" for value in numbers)]


def write_answer(
    posterior: Any, path: Path, arrays: Mapping[str, np.ndarray], level: float,
    points: object = None,
) -> None:  # fmt: skip
    """Write `answer_arrays` of a level in the format of the path's suffix (`require_format`).

    It raises `DataError` if the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        write_text(path, csv_text(answer_lines(posterior, arrays, points)))
    elif suffix == ".nc":
        dataset = as_dataset(posterior, arrays, level, points)
        if odd := [name for name in dataset.variables if "/" in str(name)]:
            raise DataError(f"{path}: {odd[0]!r}: names in NetCDF hold no '/'; write .npz")
        with atomic_path(path) as part:
            dataset.to_netcdf(part, engine="h5netcdf")
    elif suffix == ".vtu":
        _write_mesh(posterior.field, path, arrays, points)
    else:
        batch, labels = posterior.batch
        labels = {} if posterior.single else {batch: np.array(labels)}
        places = _places(posterior.field, points)
        with atomic_path(path) as part, part.open("wb") as file:
            np.savez(file, **arrays, points=places, level=np.array(level), **labels)  # type: ignore[arg-type]


def _write_mesh(
    field: Field, path: Path, arrays: Mapping[str, np.ndarray], points: object = None
) -> None:
    """Write arrays (..., M) on the mesh of the field's file, or on the cells of its grid."""
    layout, side = field.layout if points is None else None, "point_data"
    flat: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        for index in np.ndindex(array.shape[:-1]):
            text = "_".join([field.name, name, *(f"{k + 1}" for k in index)])
            flat[html.escape(text)] = array[index]  # meshio does not
    if layout is None or layout.mesh is None:
        nodes = _places(field, points)
        cells = _cells(field.domain if points is None else None, len(nodes))
    else:
        (nodes, cells), flat = layout.mesh, {k: layout.in_file_order(v) for k, v in flat.items()}
        side = "point_data" if layout.dims == ("node",) else "cell_data"
    ends = np.cumsum([len(one) for _, one in cells])[:-1]
    data = flat if side == "point_data" else {k: np.split(v, ends) for k, v in flat.items()}
    nodes = np.pad(nodes, ((0, 0), (0, 3 - nodes.shape[1])))
    with atomic_path(path) as part:
        mesh = library("meshio", "meshes").Mesh(nodes, list(cells), **{side: data})
        mesh.write(part, file_format="vtu")


def _cells(domain: object, size: int) -> list[tuple[str, np.ndarray]]:
    """Return the cells between the points of a grid; of others each of the points is a cell.

    Cells with a corner that has no value are left out.
    """
    grid = domain.grid if isinstance(domain, MaskedGrid) else domain
    if not isinstance(grid, Grid):
        return [("vertex", np.arange(size)[:, None])]
    corners = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0),
                        (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)])  # fmt: skip
    number = np.arange(grid.size).reshape(grid.shape)
    parts = [number[tuple(slice(c, n - 1 + c) for c, n in zip(corner, grid.shape))]  # noqa: B905
             for corner in corners[: 2**grid.dim]]  # fmt: skip
    cells = np.stack([part.ravel() for part in parts], -1)
    if isinstance(domain, MaskedGrid):
        cells = (np.cumsum(domain.present) - 1)[cells[domain.present[cells].all(1)]]
    return [(("line", "quad", "hexahedron")[grid.dim - 1], cells)]


def require_format(path: Path) -> None:
    """Refuse (`DataError`) a file that no answer is written to, and one whose library is absent."""
    if path.suffix.lower() not in WRITTEN_FORMATS:
        raise DataError(f"{path}: answers are written to {', '.join(WRITTEN_FORMATS)}")
    if path.suffix.lower() == ".vtu":
        library("meshio", "meshes")


def csv_text(lines: Iterator[list[str]]) -> str:
    """Return rows as the text of a CSV file, in which no name is a formula of a spreadsheet."""
    text = io.StringIO()
    rows = ([f"'{c}" if re.match(r"[=@\t\r]|[+-][^\d.in]", c) else c for c in row] for row in lines)
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
