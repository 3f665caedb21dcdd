"""Arrays of an npz file, read when they are asked for: large ones are mapped."""

from __future__ import annotations

import math
import shutil
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.files import LARGE
from uqsonet.runs.guard import require_room


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
