"""Large arrays of runs stay on disk: mapped where they stand, or in a temporary file."""

from __future__ import annotations

import logging
import math
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from uqsonet.errors import DataError
from uqsonet.files import LARGE
from uqsonet.gauss.blocks import release
from uqsonet.runs.guard import require_room

LOG = logging.getLogger("uqsonet")

BLOCK_BYTES = 1 << 26  # bytes of runs that are worked on at a time


def row_blocks(array: Any, aligned: int = 1) -> Iterator[np.ndarray]:
    """Yield an array (N, ...), which may be an HDF5 data set, some runs at a time.

    Runs in a block are a multiple of `aligned`, where one run is not too large for that.
    """
    each = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    rows = max(1, BLOCK_BYTES // each)
    rows = max(rows // aligned, 1) * aligned if aligned * each < LARGE else rows
    for first in range(0, len(array), rows):
        yield array[first : first + rows]
        release(array)


class Pile:
    """Blocks of runs (B, ...) that become one array, in a temporary file if it is large."""

    def __init__(self, name: str) -> None:
        self._name, self._blocks, self._file = name, [], None
        self._bytes = self._rows = 0

    def add(self, block: np.ndarray) -> None:
        """Take the next block; raise a `DataError` if there is no room for the file."""
        self._bytes, self._rows = self._bytes + block.nbytes, self._rows + len(block)
        self._blocks.append(block)
        folder = tempfile.gettempdir()
        if self._bytes <= LARGE:
            return
        if self._file is None:
            LOG.info("%s: values go to a temporary file in %s (TMPDIR)", self._name, folder)
            self._file = tempfile.TemporaryFile()
        if self._blocks[0].dtype != block.dtype:
            found = f"{self._blocks[0].dtype} and {block.dtype}"
            raise DataError(f"{self._name}: values of {found} in different files")
        if shutil.disk_usage(folder).free < 2 * LARGE:
            raise DataError(f"{self._name}: no room in {folder} (TMPDIR) for values")
        for one in self._blocks:
            self._file.write(np.ascontiguousarray(one).data)
        self._blocks = [block[:0]]

    def array(self) -> np.ndarray:
        """Return all blocks."""
        if self._file is None:
            return self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks)
        self._file.flush()
        with self._file as file:
            shape = self._rows, *self._blocks[0].shape[1:]
            return np.memmap(file, self._blocks[0].dtype, "r", shape=shape)


def joined(blocks: Iterable[np.ndarray], name: str) -> np.ndarray:
    """Return blocks of runs as one array (`Pile`)."""
    pile = Pile(name)
    for block in blocks:
        pile.add(block)
    return pile.array()


def changed(array: np.ndarray, change: Callable[[np.ndarray], np.ndarray], name: str) -> np.ndarray:
    """Return an array (N, ...) with its runs changed, some at a time."""
    if array.nbytes <= LARGE:
        return change(array)
    return joined(map(change, row_blocks(array)), name)


def taken(array: np.ndarray, index: np.ndarray, name: str) -> np.ndarray:
    """Return some runs of an array (N, ...), by their numbers."""
    each = math.prod(array.shape[1:]) * array.dtype.itemsize
    if len(index) * each <= LARGE:
        return array[index]
    parts = np.array_split(index, len(index) * each // BLOCK_BYTES + 1)
    return joined((array[part] for part in parts), name)


def stored_values(item: Any, name: str) -> np.ndarray:
    """Return what a data set of HDF5, or an `NpzArray`, holds: a large one stays on disk."""
    if not isinstance(item, h5py.Dataset) or item.nbytes <= LARGE or item.ndim < 2:
        return np.asarray(item[()])
    start = None if item.chunks or item.dtype.kind not in "fiu" else item.id.get_offset()
    if start is not None:
        found = np.memmap(item.file.filename, item.dtype, "r", start, item.shape)
        if found[0].tobytes() == item[0].tobytes():
            return found
    return joined(row_blocks(item, (item.chunks or (1,))[0]), name)


def npz_arrays(path: Path) -> dict[str, NpzArray | str]:
    """Return the arrays of an npz file by name.

    In place of an array of Python objects, which is a pickle and may run any program, there is a
    text that says so.
    """
    with zipfile.ZipFile(path) as archive:
        entries = [one for one in archive.infolist() if one.filename.endswith(".npy")]
    require_room(path, (one.file_size for one in entries))
    found = {one.filename.removesuffix(".npy"): NpzArray(path, one) for one in entries}
    objects = "an array of Python objects"
    return {name: objects if one.dtype.hasobject else one for name, one in found.items()}


class NpzArray:
    """One array of an npz file, read when it is asked for.

    It is a ValueError if its header promises other bytes than there are.
    """

    def __init__(self, path: Path, entry: zipfile.ZipInfo) -> None:
        self._path, self._entry = path, entry
        header = np.lib.format
        with zipfile.ZipFile(path) as archive, archive.open(entry) as file:
            first = header.read_magic(file) == (1, 0)
            read = header.read_array_header_1_0 if first else header.read_array_header_2_0
            self.shape, self._fortran, self.dtype = read(file)
            self._start = file.tell()
        self.nbytes = math.prod(self.shape) * max(1, self.dtype.itemsize)
        if self.nbytes > entry.file_size and not self.dtype.hasobject:
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
