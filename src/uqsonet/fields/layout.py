"""The layout of a field in its file: names and order of dimensions, coordinates, points."""

from __future__ import annotations

import base64
import contextlib
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from uqsonet.errors import DataError

MAX_CELLS = 100_000_000  # maximum number of entries of an array that a header may describe
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
        coordinates = [
            {
                "name": one.name,
                "dims": list(one.dims),
                "times": one.origin is not None,
                "shape": list(one.values.shape),
                "values": as_base64(one.values.astype("M8[ns]" if one.origin else np.float64)),
                "attributes": dict(one.attributes),
            }
            for one in self.coordinates
        ]
        steps = np.diff(self.index.ravel(), prepend=np.int32(0))  # hardly ever change: short
        found: dict[str, Any] = {
            "dims": list(self.dims),
            "shape": list(self.index.shape),
            "axes": list(self.axes),
            "index": base64.b64encode(zlib.compress(steps.tobytes())).decode(),
        }
        if self.mesh is not None:
            nodes, cells = self.mesh
            cells = [[kind, one.shape[1], as_base64(one.astype(np.int32))] for kind, one in cells]
            found["mesh"] = [as_base64(nodes.astype(np.float64)), cells]
        return {**found, "coordinates": coordinates}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], size: int) -> Layout:
        """Return the layout that a header holds of a domain of so many points.

        KeyError, TypeError or ValueError if it describes none.
        """
        shape = tuple(int(n) for n in stored["shape"])
        if not 0 < (entries := math.prod(shape)) <= MAX_CELLS:
            raise ValueError(f"a layout of {shape} entries")
        if "index" not in stored:
            raise ValueError("an earlier version kept the layouts of files otherwise: fit again")
        packed = base64.b64decode(stored["index"], validate=True)
        steps = zlib.decompressobj().decompress(packed, 4 * entries)
        index = np.frombuffer(steps, np.int32).cumsum(dtype=np.int32).reshape(shape)
        if not -1 <= index.min() <= index.max() < size:
            raise ValueError(f"a layout of points {index.min()} to {index.max()} of {size}")
        coordinates = []
        for one in stored["coordinates"]:
            kind = np.int64 if one["times"] else np.float64
            values = from_base64(one["values"], kind).reshape([int(n) for n in one["shape"]])
            values = values.astype("M8[ns]") if one["times"] else values
            dims = tuple(map(str, one["dims"]))
            coordinates.append(Coordinate(str(one["name"]), dims, values, dict(one["attributes"])))
        mesh = None
        if "mesh" in stored:
            nodes, cells = from_base64(stored["mesh"][0], float), stored["mesh"][1]
            integers = ((str(k), from_base64(one, np.int32), int(q)) for k, q, one in cells)
            mesh = nodes.reshape(-1, 3), tuple((k, one.reshape(-1, q)) for k, one, q in integers)
        dims, axes = (tuple(map(str, stored[key])) for key in ("dims", "axes"))
        return cls(dims, axes, index, tuple(coordinates), mesh)


@dataclass(frozen=True)
class LabelledField:
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


def from_base64(text: str, kind: DTypeLike) -> np.ndarray:
    """Return the entries (n,) of a text that `as_base64` made; ValueError if it is none."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
