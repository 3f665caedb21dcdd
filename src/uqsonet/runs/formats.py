"""Every file of runs as an xarray.Dataset (`as_dataset`): npz, HDF5, NetCDF, Zarr, meshes."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from uqsonet.errors import DataError, library
from uqsonet.files import FORMAT, LARGE, readable, text_of
from uqsonet.runs.guard import hdf5_arrays, require_own_zarr, require_room
from uqsonet.runs.labelled import PACKED, VALID
from uqsonet.runs.meshes import MESHIO_FORMATS, read_mesh
from uqsonet.runs.records import read_records
from uqsonet.runs.stored import changed

KINDS = {
    ".npz": "npz", ".h5": "HDF5", ".hdf5": "HDF5", ".hdf": "HDF5", ".nc": "NetCDF",
    ".nc4": "NetCDF", ".netcdf": "NetCDF", ".zarr": "Zarr", ".csv": "CSV", ".parquet": "Parquet",
    **dict.fromkeys(MESHIO_FORMATS, "mesh"),
}  # fmt: skip
"""Kinds of files that can be read, by suffix."""

NEEDS = {"Zarr": ("zarr", ""), "Parquet": ("pyarrow", ""), "mesh": ("meshio", "meshes")}
"""Libraries that not every installation has, and the extra that brings them."""

HINTS = {
    ".npy": "; one array has no name: use numpy.savez",
    ".mat": "; version 7.3 is HDF5 with all dimensions reversed: read it by h5py, transpose the "
    "arrays so that runs come first, and write .npz or .h5",
}
"""Ways out for files that are not read, by suffix."""

USED = (
    "units", "calendar", "axis", "standard_name", "_Unsigned", "_FillValue", "missing_value",
    *PACKED, *VALID,
)  # fmt: skip
"""Attributes that are used of an array in HDF5."""


def is_zarr(path: Path) -> bool:
    """Return whether a folder is a group or an array of Zarr, of format 2 or 3."""
    return any((path / name).is_file() for name in (".zgroup", ".zarray", "zarr.json"))


def kind_of(path: Path) -> str:
    """Return the kind of a file by its suffix, or without a known one by how it begins (WRF's)."""
    suffix = path.suffix.lower()
    kind = KINDS.get(suffix, "Zarr" if is_zarr(path) else "")
    if not kind and suffix not in HINTS and path.is_file():
        with path.open("rb") as file:
            head = file.read(8)
        kind = "NetCDF" if head[:3] == b"CDF" else ""
        if head == b"\x89HDF\r\n\x1a\n":
            with readable(path, "not a readable HDF5 file"), hdf5_arrays(path) as (opened, _):
                kind = "NetCDF" if "_NCProperties" in opened.attrs else "HDF5"
    if not kind:
        found = repr(suffix or "no suffix") + HINTS.get(suffix, "")
        raise DataError(f"{path}: files of runs end in {', '.join(KINDS)}; found {found}")
    return kind


@contextmanager
def as_dataset(path: Path, run: str | None = None, fields: Sequence[str] = ()) -> Iterator[Any]:
    """Yield what a file holds as an xarray.Dataset; its arrays are read when they are used.

    In tables of readings `run` is the column that counts runs, and fields are what is asked for.

    Values are decoded by the CF conventions. Dimensions of an npz or HDF5 file have no names: its
    dataset has the attribute ``unread``, which says by name what is not read and why. Nodes and
    cells of a mesh are the attribute ``mesh``.
    """
    kind = kind_of(path)
    if kind in NEEDS:
        library(*NEEDS[kind])
    with readable(path, f"not a readable {kind} file"):
        if kind == "npz":
            yield _without_names(_npz_arrays(path))
        elif kind == "mesh":
            yield read_mesh(path)
        elif kind in ("CSV", "Parquet"):
            yield read_records(path, run, fields)
        elif kind == "HDF5":
            with hdf5_arrays(path) as (file, arrays):
                if text_of(file.attrs.get("format")) == FORMAT:
                    how = "uqsonet_study.storage.load_functions reads pairs"
                    raise DataError(f"{path}: a file of the pipeline; {how}")
                yield _without_names(arrays)
        else:
            with (_netcdf if kind == "NetCDF" else _zarr)(path) as data:
                yield _decoded(data)


def _decoded(data: Any, **how: Any) -> Any:
    """Return a dataset decoded by conventions; times of a calendar of its own stay numbers."""
    from xarray import decode_cf

    try:
        return decode_cf(data, decode_timedelta=False, **how)
    except (ValueError, OverflowError, ImportError):
        return decode_cf(data, decode_timedelta=False, decode_times=False, **how)


def _netcdf(path: Path) -> Any:
    """Return the dataset of a NetCDF file as it is stored."""
    import xarray

    with path.open("rb") as file:
        engine = "scipy" if file.read(3) == b"CDF" else "h5netcdf"
    if engine == "h5netcdf":
        with hdf5_arrays(path) as (_, arrays):
            for name, one in arrays.items():
                if isinstance(one, str):
                    raise DataError(f"{path}: {name!r} is not read: {one}")
    return xarray.open_dataset(path, engine=engine, decode_cf=False)


def _zarr(path: Path) -> Any:
    """Return the dataset of a Zarr folder as it is stored."""
    import xarray

    require_own_zarr(path)
    try:
        return xarray.open_dataset(path, engine="zarr", consolidated=False, decode_cf=False)
    except KeyError:
        raise DataError(
            f"{path}: arrays need names of dimensions, as to_zarr of xarray writes them; without "
            "them: numpy.savez('runs.npz', k=zarr.open(...)['k'][:], ...)"
        ) from None


def _without_names(arrays: Mapping[str, Any]) -> Any:
    """Return arrays whose dimensions have no names as a dataset.

    A text in place of an array says why that is not read.
    """
    import xarray
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class Stored(BackendArray):
        """An array of a file, read in parts when it is used."""

        def __init__(self, item: Any) -> None:
            self.item, self.shape, self.dtype = item, item.shape, np.dtype(item.dtype)

        def __getitem__(self, key: Any) -> np.ndarray:
            support = indexing.IndexingSupport.OUTER_1VECTOR
            read = self.item.__getitem__
            return indexing.explicit_indexing_adapter(key, self.shape, support, read)

    found, unread = {}, {name: one for name, one in arrays.items() if isinstance(one, str)}
    for name, item in arrays.items():
        if name in unread:
            continue
        attributes = {}
        for key in USED:
            if key in getattr(item, "attrs", ()):
                value = item.attrs[key]
                value = np.ravel(value)[0] if np.size(value) == 1 else value
                attributes[key] = text_of(value) if isinstance(value, bytes) else value
        dims = [f"{name}//{axis}" for axis in range(len(item.shape))]
        values = _mapped(item) if isinstance(item, h5py.Dataset) else item
        if not isinstance(values, np.memmap):
            values = indexing.LazilyIndexedArray(Stored(values))
        data = xarray.Dataset({name: (dims, values, attributes)})
        try:
            found[name] = _decoded(data, concat_characters=False, decode_coords=False)[name]
        except (TypeError, ValueError) as error:
            unread[name] = f"its attributes cannot be used ({error})"
    return xarray.Dataset(found, attrs={"unread": unread})


def _mapped(item: h5py.Dataset) -> Any:
    """Return a map of a large data set that is stored in one piece, else the data set."""
    if item.nbytes > LARGE and not item.chunks and item.dtype.kind in "fiu":
        start = item.id.get_offset()
        if start is not None:
            found = np.memmap(item.file.filename, item.dtype, "r", start, item.shape)
            return found if found[0].tobytes() == item[0].tobytes() else item
    return item


def _npz_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of an npz file by name; a pickle, which may run any program, is a text."""
    with zipfile.ZipFile(path) as archive:
        entries = [one for one in archive.infolist() if one.filename.endswith(".npy")]
        require_room(path, (one.file_size for one in entries))
        return {one.filename[:-4]: _npz_array(path, archive, one) for one in entries}


def _npz_array(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Any:
    """Return an array of an npz file: a map of a large one that is not packed."""
    header = np.lib.format
    with archive.open(entry) as file:
        first = header.read_magic(file) == (1, 0)
        read = header.read_array_header_1_0 if first else header.read_array_header_2_0
        shape, fortran, dtype = read(file)
        start = file.tell()
    size = math.prod(shape) * max(1, dtype.itemsize)
    if dtype.hasobject:
        return "an array of Python objects"
    if size > entry.file_size:
        raise ValueError(f"promises {shape} entries of {dtype}, which are not there")
    if size > LARGE and entry.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            file.seek(entry.header_offset + 26)
            start += entry.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
        return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
    return NpzArray(path, entry, shape, dtype)


@dataclass
class NpzArray:
    """An array of an npz file, read when it is used; a large one goes to a temporary file once."""

    path: Path
    entry: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype
    kept: np.ndarray | None = None

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return a part of the array."""
        if self.kept is not None:
            return self.kept[key]
        name = self.entry.filename[:-4]
        with readable(self.path, f"array {name!r} is damaged"), zipfile.ZipFile(self.path) as file:
            whole = np.lib.format.read_array(file.open(self.entry), allow_pickle=False)
            if whole.nbytes > LARGE:
                whole = self.kept = changed(whole, np.asarray, f"{self.path}, {name}")
            return whole[key]
