"""What stands between a stranger's file and its reader: no pickle, no other file, no bomb.

A file is read only if all of its values are in the file itself, and if it holds no more than a
stated multiple of its size.
"""

from __future__ import annotations

import json
import math
import mmap
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from uqsonet.errors import DataError
from uqsonet.files import LARGE, readable

MAX_PACKED = 2000  # largest accepted compression ratio (deflate reaches 1,032)
MAX_UNPACKED = 100  # bytes of memory for each byte of a file, besides half a gigabyte
MAX_OBJECTS = 20_000  # maximum number of groups, data sets and variables in a file
HEAP = b"GCOL\x01\0\0\0"  # how a heap of texts begins in an HDF5 file

DIMENSIONS = "DIMENSION_LIST"
"""Attribute with references to a data set's dimensions, as NetCDF writes it; HDF5 reads it
whatever its type."""

ZARR_CODECS = {
    "blosc", "bytes", "bz2", "crc32c", "delta", "fixedscaleoffset", "gzip", "lz4", "lzma",
    "sharding_indexed", "shuffle", "transpose", "zlib", "zstd",
}  # fmt: skip
"""Codecs of Zarr that turn bytes into numbers and do nothing else."""

ZARR_METADATA = {".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json"}  # they hold no values


@contextmanager
def sound(path: Path, what: str) -> Iterator[None]:
    """Turn whatever libraries do at a damaged file into a `DataError` (`uqsonet.files.readable`).

    They may also ask for more memory than there is, or leave the program.
    """
    try:
        with readable(path, what):
            yield
    except MemoryError:
        raise DataError(f"{path}: {what} (it says that it holds more than memory does)") from None
    except SystemExit as error:
        raise DataError(f"{path}: {what} ({error})") from None


@contextmanager
def bounded(path: Path) -> Iterator[None]:
    """Let a reader take no more memory than a multiple of its file, where the system can say so."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + 2 * LARGE + MAX_UNPACKED * path.stat().st_size
    if 0 <= before[0] < most:
        most = before[0]
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def hdf5_arrays(path: Path) -> Iterator[tuple[h5py.File, dict[str, Any]]]:
    """Open an HDF5 file, and yield it with its `data_sets`, without those never written.

    A file at which HDF5 would not come to an end is a ValueError.
    """
    _require_ending_heaps(path)
    with h5py.File(path, "r") as file:
        there = data_sets(file)
        yield file, {k: one if isinstance(one, str) else _unwritten(one) or one for k, one in there}


def data_sets(file: h5py.Group) -> Iterator[tuple[str, h5py.Dataset | str]]:
    """Yield path and data set of all that is in an HDF5 file; nothing that leads out is followed.

    In place of a data set that is not to be read there is a text that says why. More than
    `MAX_OBJECTS` objects are a ValueError.
    """
    waiting, entered, count = [("", file)], {file["/"]}, 0
    while waiting:
        above, group = waiting.pop()
        for key in group:
            count += 1
            if count > MAX_OBJECTS:
                raise ValueError(f"more than {MAX_OBJECTS} groups and data sets")
            name = f"{above}{key}".encode("utf-8", "backslashreplace").decode()
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                kind = "an external" if isinstance(link, h5py.ExternalLink) else "a soft"
                yield name, f"{kind} link"
                continue
            item = group[key]
            if isinstance(item, h5py.Dataset):
                yield name, _unreadable(item) or item
            elif isinstance(item, h5py.Group) and item not in entered:  # it may be within itself
                entered.add(item)
                waiting.append((f"{name}/", item))


def _unreadable(item: h5py.Dataset) -> str:
    """Say why a data set is not read that leads out of the file, or at which HDF5 would crash."""
    if item.is_virtual:
        return "a virtual data set"
    if item.external:
        return "external storage"
    if DIMENSIONS in item.attrs:
        listed = item.attrs.get_id(DIMENSIONS)
        of = h5py.check_ref_dtype(h5py.check_vlen_dtype(listed.dtype) or listed.dtype)
        if of is not h5py.Reference or listed.shape != (item.ndim,):
            return f"its {DIMENSIONS} is no list of dimensions"
    return ""


def _unwritten(item: h5py.Dataset) -> str:
    """Say why a large data set is not read of which next to nothing was ever written."""
    if item.nbytes > LARGE and item.nbytes > MAX_PACKED * item.id.get_storage_size():
        return f"it says it has {item.nbytes} bytes, which were never written"
    if _in_pieces(item.shape or (), item.chunks or item.shape or (), item.id.get_num_chunks):
        return "it is stored in a great many pieces, most of which were never written"
    chunk = int(np.prod(item.chunks or (1,), dtype=object)) * item.dtype.itemsize
    if chunk > LARGE and chunk > 4 * item.nbytes:
        return f"it is stored in pieces of {chunk} bytes, and has {item.nbytes}"
    return ""


def _in_pieces(shape: Sequence[int], piece: Sequence[int], written: Callable[[], int]) -> bool:
    """Return whether an array has more than `MAX_OBJECTS` pieces, hardly any of them written."""
    count = math.prod(-(-n // max(k, 1)) for n, k in zip(shape, piece, strict=True))
    return count > MAX_OBJECTS and count > 100 * written()


def _require_ending_heaps(path: Path) -> None:
    """Refuse a heap of texts with free space of no size, at which HDF5 goes round for ever."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        heap = data.find(HEAP)
        while heap >= 0:
            place, end = heap + 16, heap + int.from_bytes(data[heap + 8 : heap + 16], "little")
            while place + 16 <= min(end, len(data)):
                number = int.from_bytes(data[place : place + 2], "little")
                size = int.from_bytes(data[place + 8 : place + 16], "little")
                if number == size == 0:
                    raise ValueError("a heap of texts without an end")
                place += 16 + (size + 7) // 8 * 8 if number else size
            heap = data.find(HEAP, heap + 1)


def text_of(value: object) -> str:
    """Return an attribute as text, whatever it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def npz_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of an npz file (`NpzArray`) by name.

    In place of an array of Python objects, which is a pickle and may run any program, there is a
    text that says so. It is a ValueError if an entry is packed as `numpy.savez` never does,
    overlaps another, or is too large.
    """
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            raise ValueError("numpy.savez writes them")
    with zipfile.ZipFile(path) as archive:
        entries = [one for one in archive.infolist() if one.filename.endswith(".npy")]
    size = path.stat().st_size
    if len(entries) > MAX_OBJECTS or sum(one.compress_size for one in entries) > size:
        raise ValueError("its entries overlap")
    found: dict[str, Any] = {}
    for one in entries:
        if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{one.filename} is packed as numpy.savez never does")
        if one.file_size > LARGE and one.file_size > MAX_PACKED * size:
            raise ValueError(f"{one.filename} unpacks to {one.file_size} bytes")
        array = NpzArray(path, one)
        objects = "an array of Python objects" if array.dtype.hasobject else ""
        found[one.filename.removesuffix(".npy")] = objects or array
    return found


class NpzArray:
    """One array of an npz file, read when it is asked for.

    It is a ValueError if its header promises other bytes than there are.
    """

    def __init__(self, path: Path, entry: zipfile.ZipInfo) -> None:
        self._path, self._entry = path, entry
        with zipfile.ZipFile(path) as archive, archive.open(entry) as file:
            version = np.lib.format.read_magic(file)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }.get(version)
            if read is None:
                raise ValueError(f"a header of version {version}")
            self.shape, self._fortran, self.dtype = read(file)
            self._start = file.tell()
        self.nbytes = int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
        if self.dtype.itemsize == 0 or (self.nbytes > entry.file_size and not self.dtype.hasobject):
            raise ValueError(f"promises {self.shape} entries of {self.dtype}, which are not there")

    def __getitem__(self, _: tuple[()]) -> np.ndarray:
        """Return the array: a large one as a map of its file, or of what it unpacks to."""
        with zipfile.ZipFile(self._path) as archive, archive.open(self._entry) as file:
            if self.nbytes <= LARGE:
                return np.lib.format.read_array(file, allow_pickle=False)
            order: Any = "F" if self._fortran else "C"
            if self._entry.compress_type == zipfile.ZIP_STORED:
                start = _data_of(self._path, self._entry) + self._start
                return np.memmap(self._path, self.dtype, "r", start, self.shape, order)
            file.read(self._start)
            with tempfile.TemporaryFile() as unpacked:
                shutil.copyfileobj(file, unpacked, LARGE >> 4)
                unpacked.flush()
                return np.memmap(unpacked, self.dtype, "r", 0, self.shape, order)


def _data_of(path: Path, entry: zipfile.ZipInfo) -> int:
    """Return where in a zip file the bytes of an entry begin."""
    with path.open("rb") as file:
        file.seek(entry.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    return entry.header_offset + 30 + name + extra


def is_zarr(path: Path) -> bool:
    """Return whether a folder is a group or an array of Zarr, of format 2 or 3."""
    return any((path / name).is_file() for name in (".zgroup", ".zarray", "zarr.json"))


def require_own_zarr(path: Path) -> None:
    """Refuse (`DataError`) a Zarr folder with links, hardly written, or with an unknown codec."""
    files = [path, *path.rglob("*")]
    for one in files:
        if one.is_symlink():
            raise DataError(f"{path}: {one.name!r} is a link, which is not followed")
    homes = []
    for one in files:
        if one.name not in (".zarray", "zarr.json"):
            continue
        with readable(one, "cannot be read"):
            stored = json.loads(one.read_text(encoding="utf-8"))
            if stored.get("node_type") == "group":
                continue
            codecs = [stored.get("compressor"), *(stored.get("filters") or ())]
            names = _require_codecs(one, [*codecs, *(stored.get("codecs") or ())])
            if "blosc" in names:
                _require_whole_blosc(one, stored, "sharding_indexed" in names)
            if "O" in str(stored.get("dtype", "")):
                raise DataError(f"{one}: an array of Python objects, which is not read")
            _require_written(one, stored)
        homes.append(one.parent.parent)
        if len(homes) > MAX_OBJECTS:
            raise DataError(f"{path}: more than {MAX_OBJECTS} arrays")
    if not homes:
        raise DataError(f"{path}: no Zarr array in this folder")
    if path not in homes:
        groups = ", ".join(sorted(map(str, set(homes))))
        raise DataError(f"{path}: its arrays stand in groups; open one of them: {groups}")


def _require_written(path: Path, stored: dict[str, Any]) -> None:
    """Refuse an array of Zarr, or a chunk of one, of which next to nothing was ever written."""
    sizes = [one.stat().st_size for one in path.parent.rglob("*") if one.is_file()]
    shape, piece = stored["shape"], _piece(stored)
    most = 8 * max(math.prod(shape), math.prod(piece))
    pieces = _in_pieces(shape, piece, lambda: len(sizes))
    if pieces or (most > LARGE and most > MAX_PACKED * sum(sizes)):
        raise DataError(f"{path}: says that it holds {most} bytes, which were never written")


def _require_whole_blosc(path: Path, stored: dict[str, Any], in_shards: bool) -> None:
    """Refuse chunks packed by blosc, which reads past their end where they say they are longer."""
    if in_shards:
        raise DataError(f"{path}: codec 'blosc' in shards is not read; write it with zstd")
    most = 16 * math.prod(_piece(stored))
    for one in path.parent.rglob("*"):
        if one.name in ZARR_METADATA or not one.is_file():
            continue
        with one.open("rb") as file:
            head = file.read(16)
        unpacked, _, packed = struct.unpack("<III", head[4:].ljust(12, b"\xff"))
        if packed > one.stat().st_size or unpacked > most:
            raise DataError(f"{path}: chunk {one.name!r} is damaged: it says it has {packed} bytes")


def _piece(stored: dict[str, Any]) -> Sequence[int]:
    """Return the shape of an array's chunks."""
    grid = (stored.get("chunk_grid") or {}).get("configuration") or {}
    return stored.get("chunks") or grid["chunk_shape"]


def _require_codecs(path: Path, codecs: Sequence[Any]) -> set[str]:
    """Refuse codecs that are not in `ZARR_CODECS`, nested ones included; return their names."""
    names = set[str]()
    for codec in codecs:
        if not isinstance(codec, dict):
            continue
        name = str(codec.get("id", codec.get("name")))
        if name not in ZARR_CODECS:
            raise DataError(f"{path}: codec {name!r} is not read")
        names.add(name)
        inner = codec.get("configuration") or {}
        if isinstance(inner, dict):
            inner = [*inner.get("codecs", ()), *inner.get("index_codecs", ())]
            names |= _require_codecs(path, inner)
    return names
