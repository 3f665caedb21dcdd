"""Arrays of runs, some runs at a time; what becomes large goes to a temporary file."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from uqsonet.errors import DataError
from uqsonet.files import LARGE
from uqsonet.gauss.blocks import release

LOG = logging.getLogger("uqsonet")

BLOCK_BYTES = 1 << 26  # bytes of runs that are worked on at a time


def row_blocks(array: Any) -> Iterator[Any]:
    """Yield an array (N, ...), which may be one of xarray in a file, some runs at a time."""
    each = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    rows = max(1, BLOCK_BYTES // each)
    for first in range(0, len(array), rows):
        yield array[first : first + rows]
        release(array)


def joined(blocks: Iterable[np.ndarray], name: str) -> np.ndarray:
    """Return blocks of runs (B, ...) as one array, in a temporary file if it is large.

    It is a `DataError` if there is no room for the file, or if blocks differ in their type.
    """
    waiting: list[np.ndarray] = []
    file, size, rows, folder = None, 0, 0, tempfile.gettempdir()
    for block in blocks:
        waiting.append(block)
        size, rows = size + block.nbytes, rows + len(block)
        if len(kinds := {str(one.dtype) for one in waiting}) > 1:
            raise DataError(f"{name}: values of {' and '.join(sorted(kinds))} in different files")
        if size <= LARGE:
            continue
        if shutil.disk_usage(folder).free < 2 * LARGE:
            raise DataError(f"{name}: no room in {folder} (TMPDIR) for values")
        if file is None:
            LOG.info("%s: values go to a temporary file in %s (TMPDIR)", name, folder)
            file = tempfile.TemporaryFile()
        for one in waiting:
            file.write(np.ascontiguousarray(one).data)
        waiting = [block[:0]]
    if file is None:
        return waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
    with file:
        file.flush()
        return np.memmap(file, waiting[0].dtype, "r", shape=(rows, *waiting[0].shape[1:]))


def changed(array: Any, change: Callable[[Any], np.ndarray], name: str) -> np.ndarray:
    """Return an array (N, ...) with its runs changed, some at a time."""
    return change(array) if array.nbytes <= LARGE else joined(map(change, row_blocks(array)), name)


def taken(array: np.ndarray, index: np.ndarray, name: str) -> np.ndarray:
    """Return some runs of an array (N, ...), by their numbers."""
    size = len(index) * math.prod(array.shape[1:]) * array.dtype.itemsize
    parts = np.array_split(index, size // BLOCK_BYTES + 1) if size > LARGE else [index]
    return joined((array[part] for part in parts), name)
