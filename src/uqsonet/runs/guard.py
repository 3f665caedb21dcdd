"""What is asked of a file before it is read. Open files that you trust, as with xarray.

Refused, whoever made the file, are pickles, which can run any program; what reads another file; and
sizes far beyond what there is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from uqsonet.errors import DataError
from uqsonet.files import LARGE, readable

MAX_RATIO = 2000  # bytes that a file may say it holds for each of its own (deflate reaches 1,032)
PLAIN_FILTERS = {2, 3, 5, 6}  # of HDF5: shuffle, checksum, n-bit, scale and offset
ZARR_PACKERS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}


def require_room(path: Path, sizes: Iterable[int]) -> None:
    """Refuse (`ValueError`) a file, or a folder, whose arrays say they have far more bytes."""
    held = sum(one.stat().st_size for one in (path, *path.rglob("*")) if one.is_file())
    if (stated := sum(sizes)) > max(LARGE, MAX_RATIO * held):
        raise ValueError(f"says that it holds {stated} bytes, and has {held}")


def unpacked(shape: Sequence[int], piece: Sequence[int], dtype: np.dtype) -> int:
    """Return the bytes of an array that is read in whole pieces, and decoded to doubles."""
    return max(math.prod(shape), math.prod(piece)) * max(8, dtype.itemsize)


@contextmanager
def hdf5_arrays(path: Path) -> Iterator[tuple[h5py.File, dict[str, h5py.Dataset | str]]]:
    """Open an HDF5 file, and yield it with its `data_sets`."""
    with h5py.File(path, "r") as file:
        found = dict(data_sets(file))
        arrays = (one for one in found.values() if not isinstance(one, str))
        require_room(path, (unpacked(a.shape, a.chunks or (), a.dtype) for a in arrays))
        yield file, found


def data_sets(file: h5py.Group) -> Iterator[tuple[str, h5py.Dataset | str]]:
    """Yield path and data set of all that is in an HDF5 file; nothing that leads out is followed.

    In place of a data set that is not to be read there is a text that says why.
    """
    waiting, entered = [("", file)], {file["/"]}
    while waiting:
        above, group = waiting.pop()
        for key in group:
            name = f"{above}{key}".encode("utf-8", "backslashreplace").decode()
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                yield name, f"{'a soft' if isinstance(link, h5py.SoftLink) else 'an external'} link"
            elif isinstance(item := group[key], h5py.Dataset):
                yield name, _unreadable(item) or item
            elif isinstance(item, h5py.Group) and item not in entered:  # it may be within itself
                entered.add(item)
                waiting.append((f"{name}/", item))


def _unreadable(item: h5py.Dataset) -> str:
    """Say why a data set is not read: it is empty, leads out of the file, or is packed twice."""
    if item.shape is None or item.is_virtual:
        return "an empty data set" if item.shape is None else "a virtual data set"
    if item.external:
        return "external storage"
    how = item.id.get_create_plist()
    packers = {k for k in range(how.get_nfilters()) if how.get_filter(k)[0] not in PLAIN_FILTERS}
    return "packed twice" if len(packers) > 1 else ""


def require_own_zarr(path: Path) -> None:
    """Refuse (`DataError`) a Zarr folder with links, pickles, or less than it says it holds."""
    homes, sizes = set[Path](), []
    for one in (path, *path.rglob("*")):
        if one.is_symlink():
            raise DataError(f"{path}: {one.name!r} is a link, which is not followed")
        if one.name in (".zarray", "zarr.json"):
            with readable(one, "not read"):
                stored = json.loads(one.read_text(encoding="utf-8"))
                if stored.get("node_type") != "group":
                    sizes.append(_zarr_size(stored))
                    homes.add(one.parent.parent)
    if path not in homes:
        groups = ", ".join(sorted(map(str, homes)))
        there = f"its arrays stand in groups; open one of them: {groups}"
        raise DataError(f"{path}: {there if homes else 'no Zarr array in this folder'}")
    with readable(path, "not a readable Zarr file"):
        require_room(path, sizes)


def _zarr_size(stored: dict[str, Any]) -> int:
    """Return the bytes of an array of Zarr; one of Python objects, or packed twice, is refused."""
    codecs, kind = [*_codecs(stored)], stored.get("dtype", stored.get("data_type"))
    if "pickle" in codecs or "O" in str(kind):
        raise ValueError("an array of Python objects")
    if sum(name in ZARR_PACKERS for name in codecs) > 1:
        raise ValueError("packed twice")
    if isinstance(kind, dict):  # in format 3 a type with a length
        kind = f"V{(kind.get('configuration') or {}).get('length_bytes', 8)}"
    grid = (stored.get("chunk_grid") or {}).get("configuration") or {}
    dtype = np.dtype("V8" if kind in ("string", "bytes") else kind)
    return unpacked(stored["shape"], stored.get("chunks") or grid["chunk_shape"], dtype)


def _codecs(stored: dict[str, Any]) -> Iterator[str]:
    """Yield the names of an array's codecs, those within shards included."""
    listed = (stored.get("compressor"), *(stored.get("filters") or ()))
    for codec in (*listed, *(stored.get("codecs") or ())):
        if isinstance(codec, dict):
            yield str(codec.get("id", codec.get("name"))).rpartition(".")[2]
            yield from _codecs(codec.get("configuration") or {})
