"""The layout of a field in its file: names and order of dimensions, coordinates, points."""

from __future__ import annotations

import base64
import contextlib
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from uqsonet.errors import DataError

MAX_CELLS = 100_000_000  # maximum number of entries of an array that a header may describe
CORNERS = {"triangle": 3, "quad": 4}  # of cells of a plane mesh, by meshio's kinds without numbers
TIME_KEY = "counted in"  # keeps how a file counts times; no file gets this attribute
TIME_UNITS = {"d": "D", "h": "h", "m": "m", "s": "s"}  # numpy's, by how those of CF begin


@dataclass(frozen=True)
class Coordinate:
    """One coordinate variable of a file."""

    name: str
    dims: tuple[str, ...]  # those that it runs along; none for a scalar
    values: np.ndarray  # numbers, or times (datetime64)
    attributes: Mapping[str, str | float]  # of the file: units, standard_name and so on

    @property
    def origin(self) -> tuple[np.datetime64, str] | None:
        """Instant of zero and unit of the numbers that times become; None for numbers.

        Times are counted as the file does ("hours since 2000-01-01"), else in days from the first.
        """
        if self.values.dtype.kind != "M":
            return None
        counted = re.match(r"(\w)\w*\s+since\s+(\S+)", str(self.attributes.get(TIME_KEY, "")))
        if counted and counted[1].lower() in TIME_UNITS:
            with contextlib.suppress(ValueError):
                return np.datetime64(counted[2], "ns"), TIME_UNITS[counted[1].lower()]
        return self.values.astype("M8[ns]").min(), "D"

    def numbers(self, values: Any) -> np.ndarray:
        """Return places along the coordinate as the domain counts them: times become numbers."""
        array = np.asarray(values)
        if self.origin is None or array.dtype.kind in "fiub":
            return np.asarray(array, dtype=np.float64)
        start, unit = self.origin
        return (array.astype("M8[ns]") - start) / np.timedelta64(1, unit)


@dataclass(frozen=True)
class Layout:
    """How one run of a field stands in its file, so that an answer can be given the same way.

    A domain numbers its points along rising axes in the order x, y, z, time. A file may have
    other names, another order, falling axes, points that share a place, and entries without a value
    in any run.

    Of a mesh whose nodes (dimension ``node``) or cells the entries are, there are nodes (n, 3), and
    cells (c, q) as numbers of nodes by meshio's kinds.
    """

    dims: tuple[str, ...]  # in the order of the file
    axes: tuple[str, ...]  # name of each coordinate of the domain
    index: np.ndarray  # int32, in the shape of a run: the domain's point of each entry, or -1
    coordinates: tuple[Coordinate, ...] = ()
    mesh: tuple[np.ndarray, tuple[tuple[str, np.ndarray], ...]] | None = None

    @property
    def longitudes(self) -> list[int]:
        """Numbers of the domain's coordinates that are longitudes in degrees."""
        named = {one.name: one.attributes for one in self.coordinates}

        def is_longitude(axis: str) -> bool:
            stated = named.get(axis, {})
            east = str(stated.get("units", "degrees")).lower().startswith("degree")
            called = axis.lower() in ("lon", "long", "longitude") and east
            return called or stated.get("standard_name") == "longitude"

        return [number for number, axis in enumerate(self.axes) if is_longitude(axis)]

    @property
    def triangles(self) -> np.ndarray | None:
        """Triangles (t, 3) of a mesh as numbers of the domain's points; None of other fields."""
        if self.mesh is None or self.dims[-1] != "node":
            return None
        kinds = [(CORNERS.get(kind.rstrip("0123456789"), 0), cells) for kind, cells in self.mesh[1]]
        found = [cells[:, [0, k, k + 1]] for corners, cells in kinds for k in range(1, corners - 1)]
        numbers = self.index.reshape(-1)[np.concatenate(found)] if found else np.empty((0, 3))
        numbers = numbers[(numbers >= 0).all(1)]
        return numbers if len(numbers) else None

    def renumbered(self, numbers: np.ndarray) -> Layout:
        """Return the layout where the domain's points (n,) have other numbers, -1 for none."""
        index = np.where(self.index < 0, -1, numbers[self.index])
        return replace(self, index=index.astype(np.int32))

    def in_file_order(self, values: np.ndarray) -> np.ndarray:
        """Return values (..., n) at the domain's points as arrays (..., *shape) of the file.

        Entries without a value are NaN.
        """
        placed = values[..., self.index]
        return np.where(self.index < 0, np.nan, placed) if self.index.min() < 0 else placed

    def as_dict(self) -> dict[str, Any]:
        """Return the layout as it is stored in a header."""
        steps = np.diff(self.index, axis=-1, prepend=np.int32(0)) if self.dims else self.index
        found: dict[str, Any] = {
            "dims": list(self.dims),
            "axes": list(self.axes),
            "index": _packed(steps),  # hardly ever change: short
            "coordinates": [
                [one.name, list(one.dims), _packed(one.values), dict(one.attributes)]
                for one in self.coordinates
            ],
        }
        if self.mesh is not None:
            nodes, cells = self.mesh
            found["mesh"] = [_packed(nodes), [[kind, _packed(one)] for kind, one in cells]]
        return found

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], size: int) -> Layout:
        """Return the layout that a header holds of a domain of so many points.

        KeyError, TypeError or ValueError if it describes none.
        """
        if "index" not in stored:
            raise ValueError("an earlier version kept the layouts of files otherwise: fit again")
        dims, axes = (tuple(map(str, stored[key])) for key in ("dims", "axes"))
        index = _unpacked(stored["index"])
        index = index.cumsum(-1, dtype=np.int32) if dims else index
        if not index.size or not -1 <= index.min() <= index.max() < size:
            raise ValueError(f"a layout whose points are not those of a domain of {size}")
        coordinates = tuple(
            Coordinate(str(name), tuple(map(str, along)), _unpacked(values), dict(attributes))
            for name, along, values, attributes in stored["coordinates"]
        )
        mesh = None
        if "mesh" in stored:
            nodes, cells = stored["mesh"]
            mesh = _unpacked(nodes), tuple((str(kind), _unpacked(one)) for kind, one in cells)
        return cls(dims, axes, index, coordinates, mesh)


def _packed(values: np.ndarray) -> list[Any]:
    """Return an array of numbers or times as type, shape, and a text for headers."""
    return [
        values.dtype.str,
        list(values.shape),
        base64.b64encode(zlib.compress(values.tobytes())).decode(),
    ]


def _unpacked(stored: Sequence[Any]) -> np.ndarray:
    """Return the array that `_packed` made a text of; ValueError if it is none."""
    dtype, shape = np.dtype(stored[0]), [int(n) for n in stored[1]]
    if dtype.kind not in "fiuM" or not 0 <= math.prod(shape) <= MAX_CELLS:
        raise ValueError(f"an array of {shape} entries of {dtype}")
    packed = base64.b64decode(stored[2], validate=True)
    try:
        data = zlib.decompressobj().decompress(packed, 1 + dtype.itemsize * math.prod(shape))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    return np.frombuffer(data, dtype).reshape(shape)


class LabelledField(NamedTuple):
    """What a labelled array says of a field.

    Values (N, n1[, n2[, n3]]) or (N, n) have the axes in the order x, y, z, time, each rising.
    Points are the axes of a grid, those (n, d) of a cloud, or None where the file has no
    coordinates. A `DataError` in their place says why those of the file cannot be used; it counts
    only if nobody states others.
    """

    values: np.ndarray
    points: tuple[np.ndarray, ...] | np.ndarray | DataError | None
    layout: Layout | None
    units: str


def as_base64(values: np.ndarray) -> str:
    """Return the bytes of an array, in C order, as a text for headers and pages."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
