"""Meshes with values at their nodes, as simulators write them: one file a run, read by meshio."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np

from uqsonet.errors import DataError, library
from uqsonet.fields.layout import Coordinate, Layout
from uqsonet.files import LARGE
from uqsonet.runs.guard import sound
from uqsonet.runs.labelled import LabelledField

AXES = ("x", "y", "z")
"""Coordinates of nodes, and endings of the components of vectors."""

FORMATS = {".vtu": "vtu", ".vtk": "vtk", ".msh": "gmsh"}
"""Formats of meshio, by suffix."""

HEAD = 1 << 14
"""Bytes at the beginning of a file that say how much it holds."""


def read_mesh(path: Path) -> dict[str, LabelledField]:
    """Return the fields of one run at the nodes of a mesh, by their names.

    Components of a vector ``u`` are ``u_x``, ``u_y`` and ``u_z``. Coordinates that are the same at
    all nodes are dropped.

    Raises
    ------
    DataError
        If the file is damaged, or says that it holds more than it can.
    """
    meshio = library("meshio", "meshes")
    _require_sound(path)
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    values: dict[str, np.ndarray] = {}
    with sound(path, "not a readable mesh"), quiet[0], quiet[1]:
        mesh = meshio.read(path, file_format=FORMATS[path.suffix.lower()])
        points = np.asarray(mesh.points, dtype=np.float64)
        for name, array in mesh.point_data.items():
            array = np.asarray(array)
            if array.ndim == 2 and 1 < array.shape[1] <= len(AXES):
                values |= {f"{name}_{AXES[k]}": array[:, k] for k in range(array.shape[1])}
            elif array.size == len(points) and array.dtype.kind in "fiu":
                values[str(name)] = array.reshape(-1)
        if points.ndim != 2 or not points.size:
            raise ValueError(f"points of shape {points.shape}")
    kept = [k for k in range(points.shape[1]) if np.ptp(points[:, k]) > 0][: len(AXES)]
    axes = tuple(AXES[k] for k in kept)
    dims, size = ("node",), len(points)
    own = tuple(Coordinate(a, dims, points[:, k], {}) for a, k in zip(axes, kept, strict=True))
    layout = Layout(dims, (size,), axes, (0,), (False,), own)
    return {
        name: LabelledField(array[None], points[:, kept], layout, "")
        for name, array in values.items()
    }


def _require_sound(path: Path) -> None:
    """Refuse a file whose beginning promises more than its size allows.

    Raises
    ------
    DataError
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD).decode("latin-1")
    if "vtkLZMADataCompressor" in head:
        raise DataError(f"{path}: packed by LZMA, which is not read; write it with zlib")
    if "<!ENTITY" in head:
        raise DataError(f"{path}: XML entities are not read")
    counts = re.findall(r'(?:NumberOf\w+\s*=\s*"|POINTS\s+|CELLS\s+|\$Nodes\s+)(\d+)', head)
    if any(int(count) > max(size, LARGE // 100) for count in counts):
        raise DataError(f"{path}: says that it holds more than its {size} bytes can")
