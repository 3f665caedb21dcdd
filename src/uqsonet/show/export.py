"""Answers as datasets and files (CSV, npz, NetCDF), and fitted models as weight files."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from uqsonet.errors import DataError, library
from uqsonet.fields.cloud import MaskedGrid
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.layout import TIME_KEY, Coordinate
from uqsonet.files import atomic_path, write_text
from uqsonet.sensors.sensors import AXES

FORMATS = (".csv", ".npz", ".nc", ".vtu")

LINE, QUAD, HEXAHEDRON, VERTEX = 3, 9, 12, 1
"""Kinds of cells of VTK."""


def answer_arrays(
    posterior: Any, level: float = 0.9, points: object = None, samples: int = 0, **band: Any
) -> dict[str, np.ndarray]:
    """Return mean, std, lower and upper end of a band, and samples if asked for.

    Parameters
    ----------
    posterior : Any
    level : float
    points : array (M, d), optional
        By default the field's own.
    samples : int
    **band
        ``kind`` and ``whole`` of `FieldPosterior.band`.

    Returns
    -------
    dict of str to ndarray
        Shape (M,) or (B, M); ``samples`` (n, M) or (B, n, M).
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
    dims, coordinates, shaped = labelled(field, points)
    lead: tuple[str, ...] = () if posterior.single else ("set",)
    if lead:
        coordinates["set"] = posterior.sensors.labels
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
        places = np.asarray(field.domain.points() if points is None else points)
        dims, shape = ("point",), (len(places),)
        coordinates = {name: ("point", places[:, k]) for k, name in enumerate(names)}
    return dims, coordinates, lambda values: values.reshape(*values.shape[:-1], *shape)


def _written(one: Coordinate) -> dict[str, Any]:
    """Return the attributes of a coordinate that a file may have."""
    return {key: text for key, text in one.attributes.items() if key != TIME_KEY}


def _places(posterior: Any, points: object) -> np.ndarray:
    return np.asarray(posterior.field.domain.points() if points is None else points)


def answer_lines(
    posterior: Any, arrays: Mapping[str, np.ndarray], points: object = None
) -> Iterator[list[str]]:
    """Yield the rows of a table ``[set,]x[,y[,z]],mean,std,lower,upper``, its header first."""
    places, single = _places(posterior, points), posterior.single
    columns = {name: array for name, array in arrays.items() if name != "samples"}
    for k in range(arrays["samples"].shape[-2] if "samples" in arrays else 0):
        columns[f"sample_{k + 1}"] = arrays["samples"][..., k, :]
    names = [*posterior.field.axes, *columns]
    yield names if single else ["set", *names]
    for row, label in enumerate([""] if single else posterior.sensors.labels):
        here = [column if single else column[row] for column in columns.values()]
        for line in np.column_stack([places, *here]):
            yield [*([] if single else [label]), *(f"{value:.9g}" for value in line)]


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
    """Write `answer_arrays` of a level: ``.csv``, ``.npz``, ``.nc`` or ``.vtu`` by the suffix.

    Raises
    ------
    DataError
        If the suffix is another, or the file cannot be written.
    """
    suffix, places = path.suffix.lower(), _places(posterior, points)
    require_format(path)
    if suffix == ".csv":
        write_text(path, csv_text(answer_lines(posterior, arrays, points)))
    elif suffix == ".nc":
        library("h5netcdf")
        dataset = as_dataset(posterior, arrays, level, points)
        with atomic_path(path) as part:
            dataset.to_netcdf(part, engine="h5netcdf")
    elif suffix == ".vtu":
        cells, kind = _cells(posterior.field.domain if points is None else None)
        flat = {f"{posterior.field.name}_{name}": array for name, array in arrays.items()}
        write_text(path, "".join(_vtu_lines(places, cells, kind, flat)))
    else:
        labels = {} if posterior.single else {"set": np.array(posterior.sensors.labels)}
        with atomic_path(path) as part, part.open("wb") as file:
            np.savez(file, **arrays, points=places, level=np.array(level), **labels)  # type: ignore[arg-type]


def _cells(domain: object) -> tuple[np.ndarray | None, int]:
    """Return the cells (k, q) between the points of a grid, and their kind; None for others.

    Cells with a corner that has no value are left out.
    """
    grid = domain.grid if isinstance(domain, MaskedGrid) else domain
    if not isinstance(grid, Grid):
        return None, VERTEX
    square = ((0, 0), (1, 0), (1, 1), (0, 1))
    corners = {
        1: ((0,), (1,)),
        2: square,
        3: (*((*c, 0) for c in square), *((*c, 1) for c in square)),
    }
    number = np.arange(grid.size).reshape(grid.shape)
    parts = [number[tuple(slice(c, n - 1 + c) for c, n in zip(corner, grid.shape, strict=True))]
             for corner in corners[grid.dim]]  # fmt: skip
    cells = np.stack([part.ravel() for part in parts], -1)
    if isinstance(domain, MaskedGrid):
        cells = (np.cumsum(domain.present) - 1)[cells[domain.present[cells].all(1)]]
    return cells, (LINE, QUAD, HEXAHEDRON)[grid.dim - 1]


def _vtu_lines(
    places: np.ndarray, cells: np.ndarray | None, kind: int, arrays: dict[str, np.ndarray]
) -> Iterator[str]:
    """Yield an unstructured grid as VTK's XML files have it: points (M, d), arrays (..., M)."""
    cells = np.arange(len(places))[:, None] if cells is None else cells

    def data(name: str, array: np.ndarray) -> str:
        array = np.ascontiguousarray(array)
        kinds = {"f": "Float64", "i": "Int64", "u": "UInt8"}
        text = base64.b64encode(np.uint64(array.nbytes).tobytes() + array.tobytes()).decode()
        shape = f' NumberOfComponents="{array.shape[1]}"' if array.ndim > 1 else ""
        stated = f"type={quoteattr(kinds[array.dtype.kind])} Name={quoteattr(name)}{shape}"
        return f'<DataArray {stated} format="binary">{text}</DataArray>\n'

    yield '<?xml version="1.0"?>\n<VTKFile type="UnstructuredGrid" version="1.0" '
    yield 'byte_order="LittleEndian" header_type="UInt64">\n<UnstructuredGrid>\n'
    yield f'<Piece NumberOfPoints="{len(places)}" NumberOfCells="{len(cells)}">\n<Points>\n'
    yield data("Points", np.pad(places, ((0, 0), (0, 3 - places.shape[1]))))
    yield "</Points>\n<Cells>\n" + data("connectivity", cells.ravel().astype(np.int64))
    yield data("offsets", np.arange(1, len(cells) + 1) * cells.shape[1])
    yield data("types", np.full(len(cells), kind, np.uint8)) + "</Cells>\n<PointData>\n"
    for name, array in arrays.items():
        for index in np.ndindex(array.shape[:-1]):
            number = "".join(f"_{k + 1}" for k in index)
            yield data(name + number, array[index].astype(np.float64))
    yield "</PointData>\n</Piece>\n</UnstructuredGrid>\n</VTKFile>\n"


def require_format(path: Path) -> None:
    """Refuse a file that no answer is written to.

    Raises
    ------
    DataError
    """
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path}: answers are written to {', '.join(FORMATS)}")


def csv_text(lines: Iterator[list[str]]) -> str:
    """Return rows as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
