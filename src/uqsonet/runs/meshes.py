"""Meshes with values at nodes or cells, as simulators write them: a file a run, read by meshio."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import DataError, library
from uqsonet.fields.field import AXES
from uqsonet.files import LARGE

MESHIO_FORMATS = {".vtu": "vtu", ".vtk": "vtk", ".msh": "gmsh"}
"""Formats of meshio, by suffix."""

HEAD = 1 << 14
"""Bytes at the beginning of a file that say how much it holds."""


def read_mesh(path: Path) -> Any:
    """Return one run at the nodes and the centres of cells of a mesh, as an xarray.Dataset.

    Components of a vector ``u`` are ``u_x``, ``u_y`` and ``u_z``. What stands at cells is named
    ``cells/u``. Coordinates that are the same at all points are dropped. The attribute ``mesh`` is
    `Layout.mesh` by dimension.

    Raises
    ------
    DataError
        If the file says that it holds more than it can; `readable` has to name what meshio raises.
    """
    from xarray import Dataset

    meshio = library("meshio", "meshes")
    _require_room(path)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        mesh = meshio.read(path, file_format=MESHIO_FORMATS[path.suffix.lower()])
    points = np.asarray(mesh.points, dtype=np.float64)
    if points.ndim != 2 or not points.size:
        raise ValueError(f"points of shape {points.shape}")
    even = [one for one in mesh.cells if np.ndim(one.data) == 2]
    blocks = tuple((one.type, np.asarray(one.data)) for one in even)
    own = np.pad(points, ((0, 0), (0, 3 - points.shape[1]))), blocks
    stated = {name: np.concatenate(parts) for name, parts in mesh.cell_data.items()}
    stated = {name: one for name, one in stated.items() if not name.startswith("gmsh:")}
    fields, axes = _at(points, mesh.point_data, "node", "")
    if stated:
        centred = _at(_centres(points, mesh.cells), stated, "cell", "cells/")
        fields, axes = fields | centred[0], axes | centred[1]
    shapes = {"node": own, "cell": own if len(even) == len(mesh.cells) else None}
    return Dataset(fields, attrs={"mesh": shapes}).assign_coords(axes)


def _centres(points: np.ndarray, blocks: list[Any]) -> np.ndarray:
    """Return the mean of the corners of each cell; cells of a block may differ in their corners."""
    found = []
    for block in blocks:
        same = isinstance(block.data, np.ndarray) and block.data.ndim == 2
        parts = points[block.data].mean(1) if same else [points[c].mean(0) for c in block.data]
        found.append(np.reshape(parts, (-1, points.shape[1])))
    return np.concatenate(found)


def _at(
    points: np.ndarray, data: dict[str, np.ndarray], dim: str, group: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return fields with values at these points, components of vectors apart, and coordinates."""
    values: dict[str, Any] = {}
    for name, array in data.items():
        array = np.asarray(array)
        if array.ndim == 2 and 1 < array.shape[1] <= len(AXES):
            parts = zip(AXES, array.T, strict=False)
            values |= {f"{group}{name}_{axis}": (dim, part) for axis, part in parts}
        elif array.size == len(points) and array.dtype.kind in "fiu":
            values[f"{group}{name}"] = dim, array.reshape(-1)
    kept = [k for k in range(points.shape[1]) if np.ptp(points[:, k]) > 0][: len(AXES)]
    return values, {f"{dim}/{AXES[k]}": (dim, points[:, k]) for k in kept}


def _require_room(path: Path) -> None:
    """Refuse a file whose beginning promises more than its size allows."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD).decode("latin-1")
    counts = re.findall(r'(?:NumberOf\w+\s*=\s*"|POINTS\s+|CELLS\s+|\$Nodes\s+)(\d+)', head)
    if any(int(count) > max(size, LARGE // 100) for count in counts):
        raise DataError(f"{path}: says that it holds more than its {size} bytes can")
