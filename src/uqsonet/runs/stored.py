"""Large arrays of runs stay on disk: mapped where they stand, or in a temporary file."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import h5py
import numpy as np

from uqsonet.errors import DataError
from uqsonet.files import LARGE
from uqsonet.gauss.blocks import release

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
