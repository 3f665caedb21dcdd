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
from uqsonet.fields.layout import Coordinate, LabelledField, Layout
from uqsonet.files import LARGE, readable

MESHIO_FORMATS = {".vtu": "vtu", ".vtk": "vtk", ".msh": "gmsh"}
"""Formats of meshio, by suffix."""

HEAD = 1 << 14
"""Bytes at the beginning of a file that say how much it holds."""


def read_mesh(path: Path) -> dict[str, LabelledField]:
    """Return the fields of one run at the nodes or the centres of cells of a mesh, by their names.

    Components of a vector ``u`` are ``u_x``, ``u_y`` and ``u_z``. A field that stands at nodes and
    at cells under one name is that of the nodes; ``cells/u`` is the other. Coordinates that are the
    same at all points are dropped.

    Raises
    ------
    DataError
        If the file is damaged, or says that it holds more than it can.
    """
    meshio = library("meshio", "meshes")
    _require_room(path)
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with readable(path, "not a readable mesh"), quiet[0], quiet[1]:
        mesh = meshio.read(path, file_format=MESHIO_FORMATS[path.suffix.lower()])
        points = np.asarray(mesh.points, dtype=np.float64)
        if points.ndim != 2 or not points.size:
            raise ValueError(f"points of shape {points.shape}")
        even = [one for one in mesh.cells if np.ndim(one.data) == 2]
        blocks = tuple((one.type, np.asarray(one.data)) for one in even)
        own = np.pad(points, ((0, 0), (0, 3 - points.shape[1]))), blocks
        nodes = _at(points, mesh.point_data, "node", own)
        stated = {name: np.concatenate(parts) for name, parts in mesh.cell_data.items()}
        stated = {name: one for name, one in stated.items() if not name.startswith("gmsh:")}
        own = own if len(even) == len(mesh.cells) else None
        cells = _at(_centres(points, mesh.cells), stated, "cell", own) if stated else {}
    both = {f"cells/{name}" if name in nodes else name: one for name, one in cells.items()}
    return nodes | both


def _centres(points: np.ndarray, blocks: list[Any]) -> np.ndarray:
    """Return the mean of the corners of each cell; cells of a block may differ in their corners."""
    found = []
    for block in blocks:
        same = isinstance(block.data, np.ndarray) and block.data.ndim == 2
        parts = points[block.data].mean(1) if same else [points[c].mean(0) for c in block.data]
        found.append(np.reshape(parts, (-1, points.shape[1])))
    return np.concatenate(found)


def _at(
    points: np.ndarray, data: dict[str, np.ndarray], dim: str, mesh: Any
) -> dict[str, LabelledField]:
    """Return fields with values at these points, components of vectors apart."""
    values: dict[str, np.ndarray] = {}
    for name, array in data.items():
        array = np.asarray(array)
        if array.ndim == 2 and 1 < array.shape[1] <= len(AXES):
            values |= {f"{name}_{AXES[k]}": array[:, k] for k in range(array.shape[1])}
        elif array.size == len(points) and array.dtype.kind in "fiu":
            values[str(name)] = array.reshape(-1)
    kept = [k for k in range(points.shape[1]) if np.ptp(points[:, k]) > 0][: len(AXES)]
    axes = tuple(AXES[k] for k in kept)
    own = tuple(Coordinate(a, (dim,), points[:, k], {}) for a, k in zip(axes, kept, strict=True))
    layout = Layout((dim,), axes, np.arange(len(points), dtype=np.int32), own, mesh)
    return {n: LabelledField(one[None], points[:, kept], layout, "") for n, one in values.items()}


def _require_room(path: Path) -> None:
    """Refuse a file whose beginning promises more than its size allows."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD).decode("latin-1")
    counts = re.findall(r'(?:NumberOf\w+\s*=\s*"|POINTS\s+|CELLS\s+|\$Nodes\s+)(\d+)', head)
    if any(int(count) > max(size, LARGE // 100) for count in counts):
        raise DataError(f"{path}: says that it holds more than its {size} bytes can")
